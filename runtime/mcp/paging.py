"""Lists in pages, from one source after the other. Pure, but for what the sources do.

A cursor names a source and a place in it. Clients keep it between two requests and may change it: a source refuses the
place that it does not know, and another source than there is has no place at all.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tenuto.errors import InvalidRequest

T = TypeVar("T")

Page = Callable[[str | None, int], Awaitable[tuple[Sequence[T], str | None]]]
"""At most so many entries from a place on, None for the beginning; and the place of the next, None where none is."""

_INVALID = "the cursor is not valid; begin again without one"


@dataclass(frozen=True, slots=True)
class Source(Generic[T]):
    """Some entries of a list, under a name that no other source of that list has."""

    name: str
    page: Page[T]


def whole(name: str, entries: Sequence[T]) -> Source[T]:
    """A source of entries that are in memory. A place in it is a number."""

    async def page(place: str | None, limit: int) -> tuple[Sequence[T], str | None]:
        start = 0 if place is None else _number(place)
        if start > len(entries):
            raise InvalidRequest(_INVALID, "cursor")
        end = start + limit
        return entries[start:end], str(end) if end < len(entries) else None

    return Source(name, page)


async def paged(sources: Sequence[Source[T]], cursor: str | None, limit: int) -> tuple[list[T], str | None]:
    """A page over all sources in their order, and the cursor of the next one.

    Raises:
        InvalidRequest: the cursor leads nowhere.
    """
    index, place = _opened([source.name for source in sources], cursor)
    entries: list[T] = []
    for number, source in enumerate(sources[index:], index):
        found, after = await source.page(place, limit - len(entries))
        entries += found
        place = None
        if after is not None:
            return entries, f"{source.name}:{after}"
        if len(entries) >= limit and number + 1 < len(sources):
            return entries, f"{sources[number + 1].name}:"
    return entries, None


def _opened(names: Sequence[str], cursor: str | None) -> tuple[int, str | None]:
    if cursor is None:
        return 0, None
    name, colon, place = cursor.partition(":")
    if not colon or name not in names:
        raise InvalidRequest(_INVALID, "cursor")
    return names.index(name), place or None


def _number(place: str) -> int:
    if not (place.isascii() and place.isdigit() and len(place) < 10):
        raise InvalidRequest(_INVALID, "cursor")
    return int(place)

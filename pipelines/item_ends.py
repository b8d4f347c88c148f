"""Where the content of each item ends in what a chat template has written, and what stands between two such places."""

from collections.abc import Sequence

from tenuto.pipelines.placeholders import Part, Placeholder
from tenuto.sessions.items import AssistantItem, Item


def item_ends(items: Sequence[Item], parts: Sequence[Part], closings: Sequence[str]) -> list[tuple[int, int]]:
    """Where the content of each item ends: a part and an offset in it. Never falls.

    A placeholder that comes again after the content of a later item belongs to that glue, not to its own item.
    """
    places: dict[int, list[int]] = {}
    for place, part in enumerate(parts):
        if isinstance(part, Placeholder) and part.owner is not None:
            places.setdefault(part.owner, []).append(place)
    last: dict[int, int] = {}
    limit = len(parts)
    for index in reversed(range(len(items))):
        earlier = [place for place in places.get(index, ()) if place < limit]
        if earlier:
            limit = last[index] = earlier[-1]
    ends: list[tuple[int, int]] = []
    for index, item in enumerate(items):
        end = ends[-1] if ends else (0, 0)
        if index in last:
            end = (last[index] + 1, 0)
            if isinstance(item, AssistantItem):
                end = _turn_end(parts, last[index] + 1, closings)
        ends.append(end)
    return ends


def _turn_end(parts: Sequence[Part], place: int, closings: Sequence[str]) -> tuple[int, int]:
    """Where an assistant's turn is closed in the template text that follows its last placeholder."""
    text = parts[place] if place < len(parts) else ""
    if isinstance(text, Placeholder):
        return place, 0
    found = (text.find(closing) for closing in closings)
    return place, next((offset for offset in found if offset >= 0), 0)


def between(parts: Sequence[Part], begin: tuple[int, int], end: tuple[int, int]) -> tuple[Part, ...]:
    """The parts from one place to another."""
    (first, skip), (last, keep) = begin, end
    found: list[Part] = []
    for place in range(first, min(last + 1, len(parts))):
        part = parts[place]
        if not isinstance(part, Placeholder):
            part = part[skip if place == first else 0 : keep if place == last else None]
        elif place == last:
            break
        if part:
            found.append(part)
    return tuple(found)

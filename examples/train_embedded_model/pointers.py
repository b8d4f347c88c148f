"""Where a call's name and values were copied from, and which tool a request asks for.

Most of a call is copied: its name from the list of tools, its values from what was said. The model needs a head that
looks there, and is told the place besides the token.
"""

from collections.abc import Iterator
from typing import NamedTuple

from train_embedded_model.layout import MACROS
from train_embedded_model.tokens import Encoder

_MOST_SOURCES = 4
"""What stands in more places than these says nothing about where to look."""


class Pointer(NamedTuple):
    """`place`: of the token before one that is copied. `sources`: where that one stands already.

    A pointer stands for the first token of what is copied, and in a name for those after an underscore: many tools of a
    list begin alike. And one stands at the end of every request: it looks at the names of the tools that will be
    called, and at the end of the list where none will be.
    """

    place: int
    sources: list[int]


class Finder:
    """Finds the pointers of encoded conversations."""

    def __init__(self, encoder: Encoder) -> None:
        find = encoder.token
        self._name, self._values = find('{"name": "'), {find('": "'), find('": ')}
        self._ends = {find(text) for text in (*MACROS, '"', "}", "]") if text[0] in '",}]'}
        self._newline, self._underscore = find("Ċ"), find("_")
        self._begin, self._end = find("<tools>"), find("</tools>")

    def pointers(self, ids: list[int], trained: list[bool]) -> Iterator[Pointer]:
        """Those of all calls; `trained`: which tokens the model is to say."""
        listed = ids.index(self._end) if self._end in ids else 0
        places: dict[int, list[int]] = {}
        known = begin = end = 0
        for place in range(1, len(ids)):
            if not trained[place]:
                continue
            if not trained[place - 1]:
                for earlier in range(known, place):
                    places.setdefault(ids[earlier], []).append(earlier)
                if places.get(self._end, [0])[-1] > max(known, listed):
                    begin, end = places[self._begin][-1], places[self._end][-1]
                    yield Pointer(place - 1, self._called(ids, trained, place, range(begin, end)) or [end])
                known = place
            before = ids[place - 1]
            if before == self._name or before in self._values:
                copied = self._until_end(ids, place)
                if before == self._name:
                    found = self._in_list(ids, copied, range(begin, end))
                else:
                    there = [p for p in places.get(ids[place], ()) if ids[p : p + len(copied)] == copied]
                    found = [p for p in there if p > listed] or there
                for step in range(len(copied) if 0 < len(found) <= _MOST_SOURCES else 0):
                    if step == 0 or (before == self._name and copied[step - 1] == self._underscore):
                        yield Pointer(place - 1 + step, [source + step for source in found])

    def _called(self, ids: list[int], trained: list[bool], place: int, names: range) -> list[int]:
        """Where the names of a message's calls begin in a list."""
        found: list[int] = []
        while place < len(ids) and trained[place]:
            if ids[place - 1] == self._name:
                found += self._in_list(ids, self._until_end(ids, place), names)
            place += 1
        return list(dict.fromkeys(found))

    def _in_list(self, ids: list[int], name: list[int], names: range) -> list[int]:
        """Where a line of a list is the name."""
        whole = [self._newline, *name, self._newline]
        return [place + 1 for place in names if ids[place : place + len(whole)] == whole]

    def _until_end(self, ids: list[int], place: int) -> list[int]:
        end = place + 1
        while end < len(ids) and ids[end] not in self._ends:
            end += 1
        return ids[place:end]

"""Where a call's name and values were copied from.

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
    list begin alike.
    """

    place: int
    sources: list[int]


class Finder:
    """Finds the pointers of encoded conversations."""

    def __init__(self, encoder: Encoder) -> None:
        find = encoder.tokenizer.token_to_id
        self._name, self._values = find('{"name": "'), {find('": "'), find('": ')}
        self._ends = {find(text) for text in (*MACROS, '"', "}", "]") if text[0] in '",}]'}
        self._newline, self._underscore, self._listed = find("Ċ"), find("_"), find("</tools>")

    def pointers(self, ids: list[int], trained: list[bool]) -> Iterator[Pointer]:
        """Those of all calls; `trained`: which tokens the model is to say."""
        listed = ids.index(self._listed) if self._listed in ids else 0
        places: dict[int, list[int]] = {}
        known = 0
        for place in range(1, len(ids)):
            if not trained[place]:
                continue
            if not trained[place - 1]:
                for earlier in range(known, place):
                    places.setdefault(ids[earlier], []).append(earlier)
                known = place
            before = ids[place - 1]
            if before == self._name or before in self._values:
                copied = self._until_end(ids, place)
                there = [p for p in places.get(ids[place], ()) if ids[p : p + len(copied)] == copied]
                if before == self._name:
                    found = [p for p in there if p < listed and ids[p + len(copied)] == self._newline]
                else:
                    found = [p for p in there if p > listed] or there
                for step in range(len(copied) if 0 < len(found) <= _MOST_SOURCES else 0):
                    if step == 0 or (before == self._name and copied[step - 1] == self._underscore):
                        yield Pointer(place - 1 + step, [source + step for source in found])

    def _until_end(self, ids: list[int], place: int) -> list[int]:
        end = place + 1
        while end < len(ids) and ids[end] not in self._ends:
            end += 1
        return ids[place:end]

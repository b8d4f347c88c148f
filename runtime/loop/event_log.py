"""All that a run has told, by number, in little room: an answer's pieces stand as one text with the places they end.

Every follower of a run reads here, at its own pace, and holds nothing but its place: so what followers cost does not
depend on how fast they read, nor on how many there are.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.runtime.loop.events import ReasoningAdded, RunEvent, TextAdded, ToolReturned

_PACKED = 256
"""So many events are packed at a time."""
_EVENT_BYTES = 200
_TOKEN_BYTES = 300
"""A logprob and its text; each of its alternatives weighs the same."""

Piece = TextAdded | ReasoningAdded


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Pieces of one text in a row, of one kind and round."""

    kind: type[Piece]
    round: int
    text: str
    ends: "array[int]"

    def __len__(self) -> int:
        return len(self.ends)

    def at(self, index: int) -> RunEvent:
        begin = self.ends[index - 1] if index else 0
        return self.kind(self.round, self.text[begin : self.ends[index]])


class EventLog:
    """Events by their number, from 1. Event-loop thread only."""

    def __init__(self) -> None:
        self._packed: list[_Pieces | RunEvent] = []
        self._starts: list[int] = []
        """Before each of these there are so many events."""
        self._latest: list[RunEvent] = []
        self._before = 0
        self.nbytes = 0
        """About how many bytes all of it takes."""

    def __len__(self) -> int:
        return self._before + len(self._latest)

    def append(self, event: RunEvent) -> None:
        """Add an event; its number is the length then."""
        self._latest.append(event)
        self.nbytes += _weight(event)
        if len(self._latest) == _PACKED:
            self.pack()

    def at(self, number: int) -> RunEvent:
        """The event of that number."""
        place = number - 1
        if place >= self._before:
            return self._latest[place - self._before]
        entry = bisect_right(self._starts, place) - 1
        packed = self._packed[entry]
        return packed.at(place - self._starts[entry]) if isinstance(packed, _Pieces) else packed

    def pack(self) -> None:
        """Let what there is take as little room as it can. Nobody who reads notices."""
        row: list[Piece] = []
        for event in self._latest:
            if row and not _goes_on(row[-1], event):
                self._keep(row)
                row = []
            if isinstance(event, TextAdded | ReasoningAdded) and _is_plain(event):
                row.append(event)
            else:
                self._add(event, 1)
        self._keep(row)
        self._latest = []

    def _keep(self, row: Sequence[Piece]) -> None:
        if not row:
            return
        ends, end = array("I"), 0
        for piece in row:
            end += len(piece.text)
            ends.append(end)
        pieces = _Pieces(type(row[0]), row[0].round, "".join(piece.text for piece in row), ends)
        self.nbytes += _EVENT_BYTES + len(pieces.text) + ends.itemsize * len(row) - sum(map(_weight, row))
        self._add(pieces, len(row))

    def _add(self, entry: _Pieces | RunEvent, events: int) -> None:
        self._packed.append(entry)
        self._starts.append(self._before)
        self._before += events


def _is_plain(piece: Piece) -> bool:
    return isinstance(piece, ReasoningAdded) or not piece.logprobs


def _goes_on(last: Piece, event: RunEvent) -> bool:
    return (
        isinstance(event, TextAdded | ReasoningAdded)
        and type(event) is type(last)
        and event.round == last.round
        and _is_plain(event)
    )


def _weight(event: RunEvent) -> int:
    match event:
        case TextAdded():
            tokens = sum(1 + len(logprob.top) for logprob in event.logprobs)
            return _EVENT_BYTES + len(event.text) + _TOKEN_BYTES * tokens
        case ReasoningAdded():
            return _EVENT_BYTES + len(event.text)
        case ToolReturned():
            return _EVENT_BYTES + len(event.call.arguments) + len(event.result)
        case _:
            return _EVENT_BYTES

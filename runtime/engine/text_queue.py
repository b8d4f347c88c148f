"""The texts that wait to be embedded, and which of them are in the next step: pure, without threads, clocks or weights.

Principals take turns by the tokens of theirs that have been taken, and so do the requests of each principal: a request
with one text does not wait for one with thousands.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tenuto.pipelines.embedding import TextTokens
from tenuto.runtime.engine.messages import Embed


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """A text, by its request and its place in it."""

    request: str
    place: int
    tokens: TextTokens


@dataclass(slots=True)
class _Waiting:
    """A request of which texts wait. `served` counts tokens, from what the others had when it came."""

    command: Embed
    served: int
    next: int = 0


@dataclass(slots=True)
class _Line:
    """The requests of one principal."""

    served: int
    requests: dict[str, _Waiting] = field(default_factory=dict)


class TextQueue:
    """What waits. One thread."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._principals: dict[str, str] = {}

    def __len__(self) -> int:
        """How many requests there are."""
        return len(self._principals)

    def add(self, command: Embed) -> None:
        """A request has come."""
        principal = command.principal
        if principal not in self._lines:
            self._lines[principal] = _Line(_least(line.served for line in self._lines.values()))
        line = self._lines[principal]
        line.requests[command.request] = _Waiting(command, _least(one.served for one in line.requests.values()))
        self._principals[command.request] = principal

    def remove(self, request: str) -> None:
        """A request is not wanted any more; it may be gone already."""
        principal = self._principals.pop(request, None)
        if principal is not None:
            line = self._lines[principal]
            del line.requests[request]
            if not line.requests:
                del self._lines[principal]

    def take(self, most_tokens: int, most_texts: int) -> list[Taken]:
        """The texts of the next step: one at least, if any waits, and no more tokens than that beside others."""
        taken: list[Taken] = []
        left = most_tokens
        while self._lines and len(taken) < most_texts:
            line = min(self._lines.values(), key=lambda line: line.served)
            waiting = min(line.requests.values(), key=lambda one: one.served)
            tokens = waiting.command.texts[waiting.next]
            if taken and len(tokens) > left:
                break  # whatever is shorter waits with it, so that it does not wait for ever
            taken.append(Taken(waiting.command.request, waiting.next, tokens))
            left -= len(tokens)
            line.served += len(tokens)
            waiting.served += len(tokens)
            waiting.next += 1
            if waiting.next == len(waiting.command.texts):
                self.remove(waiting.command.request)
        return taken


def _least(served: Iterable[int]) -> int:
    return min(served, default=0)

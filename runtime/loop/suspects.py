"""The rounds of which one may be what ends engines: each is tried by itself, so that the others do not fail with it."""

from collections import deque
from collections.abc import Mapping

from tenuto.runtime.loop.open_round import OpenRound


class Suspects:
    """Those under which as many engines have ended as may, without a token since. Event-loop thread only."""

    def __init__(self) -> None:
        self._waiting: deque[str] = deque()
        self._tried = ""

    def clear(self) -> None:
        """There is no engine to try them with."""
        self._waiting.clear()
        self._tried = ""

    def add(self, sequence: str) -> None:
        """One more, which is tried after those before it."""
        self._waiting.append(sequence)

    def next(self, rounds: Mapping[str, OpenRound]) -> str | None:
        """The next to be told to the engine; None where none waits, or the last has neither got a token nor ended."""
        tried = rounds.get(self._tried)
        if not self._waiting or (tried is not None and tried.losses):
            return None
        while self._waiting:
            self._tried = self._waiting.popleft()
            if (opened := rounds.get(self._tried)) is not None and not opened.is_told:
                return self._tried
        return None

"""Stop strings over a stream of text: finds the first one, and holds back what could still become one.

The first is the one that is complete first, since generation stops there; of those that end at the same place it is
the longest. So the outcome is the same however the text is cut into pieces.
"""

from collections.abc import Iterable


class StopStrings:
    """Looks for stop strings across the borders of pieces. Any thread, one stream."""

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = tuple(string for string in strings if string)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The text that is safe to show now. After a match, `matched` is set and nothing more is shown."""
        if self.matched is not None:
            return ""
        text = self._held + text
        found = min(((at + len(s), at, s) for s in self._strings if (at := text.find(s)) >= 0), default=None)
        if found is not None:
            _, at, self.matched = found
            self._held = ""
            return text[:at]
        hold = self._could_begin(text)
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold]

    def flush(self) -> str:
        """What was held back, once no more text comes."""
        held, self._held = self._held, ""
        return held

    def _could_begin(self, text: str) -> int:
        """The length of the longest end of the text that begins a stop string."""
        longest = max((len(s) for s in self._strings), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            tail = text[len(text) - size :]
            if any(s.startswith(tail) for s in self._strings):
                return size
        return 0

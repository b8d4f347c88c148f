"""Stop strings over a stream of text: finds the first one, and holds back what could still become one.

The first is the one that is complete first, since generation stops there; of those that end at the same place it is
the longest. So the outcome is the same however the text is cut into pieces.
"""

from collections.abc import Iterable
from typing import Protocol

from tenuto.pipelines.base import Codec
from tenuto.pipelines.turns import CallBroken, TextDelta, TurnParser
from tenuto.runtime.engine.messages import Reading, Round
from tenuto.sessions.items import ToolSpec


class _TextReader(Protocol):
    """Gives the text, in which stop strings count, of the tokens of a round."""

    def push(self, token: int) -> str:
        """The text that has come with this token."""


def _text_reader(codec: Codec, round: Round) -> _TextReader:
    """The reader of a round's text."""
    if round.reading is Reading.RAW:
        return codec.decoder()
    tools = [ToolSpec(name, "", {}) for name in round.callable]
    return _TurnText(codec.parser(calls=round.reading is Reading.CALLS, tools=tools))


class _TurnText:
    """The text of a turn as whoever answers with it reads it: by the same parser."""

    def __init__(self, parser: TurnParser) -> None:
        self._parser = parser

    def push(self, token: int) -> str:
        return "".join(
            event.text
            for event in self._parser.push(token)
            if isinstance(event, TextDelta) or (isinstance(event, CallBroken) and event.index is None)
        )


class Stops:
    """The stop strings of a round, looked for in its text."""

    def __init__(self, codec: Codec, round: Round) -> None:
        self._reader = _text_reader(codec, round)
        self._strings = StopStrings(round.stop_strings)

    @property
    def matched(self) -> str | None:
        """The first one that has come."""
        return self._strings.matched

    def skip(self, token: int) -> None:
        """Read on by what a client has written, in which stop strings do not count."""
        self._reader.push(token)

    def push(self, token: int) -> bool:
        """Read on; true once one has come."""
        self._strings.push(self._reader.push(token))
        return self._strings.matched is not None


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

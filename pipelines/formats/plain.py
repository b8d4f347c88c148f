"""The format of a model that calls no tools: a turn is text."""

from collections.abc import Sequence

from tenuto.pipelines.content import StreamDecoder
from tenuto.pipelines.formats.base import Marker, Surroundings
from tenuto.pipelines.formats.streams import TrimmedText
from tenuto.pipelines.turns import TextDelta, TurnEvent, TurnParser


class Plain:
    """No calls, no reasoning."""

    opener: Marker | None = None
    reasons = False

    def __init__(self, surroundings: Surroundings) -> None:
        self._vocabulary = surroundings.vocabulary

    def parser(self, *, calls: bool) -> TurnParser:
        """A fresh parser; there are no calls to ask for."""
        del calls
        return _PlainParser(StreamDecoder(self._vocabulary))

    def call_rule(self, names: Sequence[str]) -> str:
        """There is none."""
        raise NotImplementedError(f"a model without a tool-call format was asked to call {', '.join(names)}")

    def calls_rule(self, *, parallel: bool) -> str:
        """There is none."""
        raise NotImplementedError("a model without a tool-call format was asked to call")

    def turn_rule(self, body: str) -> str:
        """A turn is nothing else."""
        return body


class _PlainParser:
    def __init__(self, decoder: StreamDecoder) -> None:
        self._decoder = decoder
        self._text = TrimmedText(keep_start=True)

    def push(self, token: int) -> list[TurnEvent]:
        return self._say(self._decoder.push(token))

    def finish(self) -> list[TurnEvent]:
        return self._say(self._decoder.flush())

    def _say(self, text: str) -> list[TurnEvent]:
        said = self._text.push(text)
        return [TextDelta(said)] if said else []

"""The text that a client sees of a round: cut at stop strings, with the logprobs of the tokens that it was made of."""

from collections import deque
from dataclasses import dataclass

from tenuto.pipelines.backend import TokenLogprob
from tenuto.pipelines.base import Codec
from tenuto.runtime.engine.stops import StopStrings
from tenuto.runtime.loop.events import TextLogprob


@dataclass(frozen=True, slots=True)
class Shown:
    """A piece of text that may be shown, and the logprobs of the tokens that begin in what is shown by now."""

    text: str
    logprobs: tuple[TextLogprob, ...] = ()


class TextStream:
    """Puts text and the logprobs of its tokens together. Any thread, one round.

    The text of a token may come with a later one, since half a character, white space and what could begin a stop
    string are held back; and a token may have none, or what it has may be no text but reasoning or a call. So a token
    waits until it is known: it is the text's if text comes next, and nobody's if something else does.
    """

    def __init__(self, codec: Codec, stops: StopStrings) -> None:
        self._codec = codec
        self._stops = stops
        self._waiting: list[TextLogprob] = []
        self._begun: deque[tuple[int, TextLogprob]] = deque()  # where in the text each token begins, in bytes
        self._read = 0
        self._shown = 0

    @property
    def matched(self) -> str | None:
        """The stop string that has come."""
        return self._stops.matched

    def sampled(self, logprob: TokenLogprob) -> None:
        """A token was sampled; what is made of it follows."""
        if logprob.token not in self._codec.info.control_tokens:
            self._waiting.append(self._readable(logprob))

    def interrupt(self) -> None:
        """What has come is no text."""
        self._waiting.clear()

    def push(self, text: str) -> Shown:
        """Text has come; gives what may be shown now."""
        if not self._waiting and not self._begun:  # no logprobs are asked for
            return Shown(self._stops.push(text))
        if self._waiting:
            self._begin_tokens(text)
        return self._show(self._stops.push(text))

    def flush(self) -> Shown:
        """No more comes: what was held back, unless a stop string cut it off."""
        if self._stops.matched is not None:
            return Shown("")
        return self._show(self._stops.flush())

    def _begin_tokens(self, text: str) -> None:
        """The tokens that wait are this text's, but for white space at its beginning, which is not shown."""
        keeps_space = text[:1].isspace()
        for token in self._waiting:
            data = token.data
            if not keeps_space:
                data = data.lstrip()
                keeps_space = bool(data)
            if data:
                self._begun.append((self._read, token))
                self._read += len(data)
        self._waiting.clear()

    def _show(self, text: str) -> Shown:
        if not text or not self._begun:
            return Shown(text)
        self._shown += len(text.encode(errors="replace"))
        logprobs = []
        while self._begun and self._begun[0][0] < self._shown:
            logprobs.append(self._begun.popleft()[1])
        return Shown(text, tuple(logprobs))

    def _readable(self, logprob: TokenLogprob) -> TextLogprob:
        text, data = self._spell(logprob.token)
        top = tuple((*self._spell(token), value) for token, value in logprob.top)
        return TextLogprob(text, data, logprob.logprob, top)

    def _spell(self, token: int) -> tuple[str, bytes]:
        data = self._codec.piece(token)
        return data.decode("utf-8", "replace"), data

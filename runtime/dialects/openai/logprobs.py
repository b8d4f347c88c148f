"""Logprobs in the form of OpenAI's chat, and in the older form of its text completions.

There are many for each token, so their forms are plain dataclasses: these describe an answer as well, and cost less.
"""

from codecs import getincrementaldecoder
from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.runtime.loop.events import TextLogprob

LEAST = -9999.0
"""What OpenAI writes for a token that could not be; JSON has no infinity."""


@dataclass(slots=True)
class LikelyAnswer:
    """How likely a token was. Its `bytes` may be part of a character; those of all tokens joined are text."""

    token: str
    bytes: list[int]
    logprob: float


@dataclass(slots=True)
class TokenLogprobAnswer(LikelyAnswer):
    """How likely a token of the answer was, and the likeliest in its place."""

    top_logprobs: list[LikelyAnswer]


@dataclass(slots=True)
class LogprobsAnswer:
    """How likely the tokens of an answer were."""

    content: list[TokenLogprobAnswer]
    refusal: None = None


@dataclass(slots=True)
class TextLogprobsAnswer:
    """The older form. Two tokens of the same text among the likeliest are one entry, with the likelier's figure."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


def chat_logprobs(logprobs: Sequence[TextLogprob]) -> LogprobsAnswer:
    """A choice's `logprobs`."""
    return LogprobsAnswer([_token(one) for one in logprobs])


class TextLogprobs:
    """The older form, for the pieces of one text. `text_offset` counts the characters of what is new."""

    def __init__(self) -> None:
        self._at = 0
        self._utf8 = getincrementaldecoder("utf-8")("replace")

    def form(self, logprobs: Sequence[TextLogprob]) -> TextLogprobsAnswer:
        """The next tokens."""
        return TextLogprobsAnswer(
            tokens=[one.token for one in logprobs],
            token_logprobs=[finite(one.logprob) for one in logprobs],
            top_logprobs=[{text: finite(figure) for text, _, figure in reversed(one.top)} for one in logprobs],
            text_offset=[self._offset(one.data) for one in logprobs],
        )

    def _offset(self, data: bytes) -> int:
        at = self._at
        self._at += len(self._utf8.decode(data))
        return at


def finite(logprob: float) -> float:
    """A logprob that JSON can hold."""
    return logprob if logprob > LEAST else LEAST


def _token(one: TextLogprob) -> TokenLogprobAnswer:
    top = [LikelyAnswer(text, list(data), finite(logprob)) for text, data, logprob in one.top]
    return TokenLogprobAnswer(one.token, list(one.data), finite(one.logprob), top)

"""Logprobs in the form of OpenAI's chat, and in the older form of its text completions."""

from codecs import getincrementaldecoder
from collections.abc import Sequence
from typing import Any

from tenuto.runtime.loop.events import TextLogprob

LEAST = -9999.0
"""What OpenAI writes for a token that could not be; JSON has no infinity."""


def chat_logprobs(logprobs: Sequence[TextLogprob]) -> dict[str, Any]:
    """A choice's `logprobs`. A token's `bytes` may be part of a character; those of all tokens joined are text."""
    content = [
        _token(one.token, one.data, one.logprob) | {"top_logprobs": [_token(*each) for each in one.top]}
        for one in logprobs
    ]
    return {"content": content, "refusal": None}


class TextLogprobs:
    """The older form, for the pieces of one text. `text_offset` counts the characters of what is new."""

    def __init__(self) -> None:
        self._at = 0
        self._utf8 = getincrementaldecoder("utf-8")("replace")

    def form(self, logprobs: Sequence[TextLogprob]) -> dict[str, Any]:
        """The next tokens. Two of the same text among the likeliest are one entry, with the likelier's figure."""
        return {
            "tokens": [one.token for one in logprobs],
            "token_logprobs": [finite(one.logprob) for one in logprobs],
            "top_logprobs": [{text: finite(figure) for text, _, figure in reversed(one.top)} for one in logprobs],
            "text_offset": [self._offset(one.data) for one in logprobs],
        }

    def _offset(self, data: bytes) -> int:
        at = self._at
        self._at += len(self._utf8.decode(data))
        return at


def finite(logprob: float) -> float:
    """A logprob that JSON can hold."""
    return max(logprob, LEAST)


def _token(text: str, data: bytes, logprob: float) -> dict[str, Any]:
    return {"token": text, "bytes": list(data), "logprob": finite(logprob)}

"""How much of a tool's result the model gets to read."""

from tenuto.pipelines.base import Codec

ANSWER_TOKENS = 256
"""Kept free for the answer."""
LEAST_TOKENS = 32
"""Less than this of a result says nothing."""


def fit(codec: Codec, text: str, left: int) -> str | None:
    """The result, or its head and tail with what was left out, where `left` tokens of context remain.

    It gets half of them less the answer's. None where not even a little fits.
    """
    room = (left - ANSWER_TOKENS) // 2
    if len(text.encode()) <= room:  # a token is at least one byte
        return text
    tokens = codec.tokenize(text)
    if len(tokens) <= room:
        return text
    if room < LEAST_TOKENS:
        return None
    note = len(codec.tokenize(_omitted(len(tokens)))) + 2
    head = (room - note) * 2 // 3
    tail = room - note - head
    omitted = len(tokens) - head - tail
    begin, end = codec.detokenize(tokens[:head]), codec.detokenize(tokens[len(tokens) - tail :])
    return begin.rstrip("\ufffd") + _omitted(omitted) + end.lstrip("\ufffd")


def _omitted(tokens: int) -> str:
    return f"\n[... {tokens} tokens omitted ...]\n"

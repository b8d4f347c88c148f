"""How much of a tool's result the model gets to read."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import anyio.to_thread

from tenuto.errors import ContextTooLong
from tenuto.pipelines.base import Codec
from tenuto.runtime.loop.amounts import RENDERED
from tenuto.runtime.loop.images import LOOKING, may_see
from tenuto.sessions.items import ToolResultItem

ANSWER_TOKENS = 256
"""Kept free for the answer."""
LEAST_TOKENS = 32
"""Less than this of a result says nothing."""


def check_length(codec: Codec, texts: Iterable[str], context: int) -> None:
    """Refuse texts that cannot fit, however they come apart into tokens, before anybody tokenises them.

    Raises:
        ContextTooLong: they have at least as many tokens as the model takes.
    """
    least = sum(map(len, texts)) // codec.info.longest_piece
    if least >= context:
        raise ContextTooLong(least, context, at_least=True)


async def fit_all(codec: Codec, results: Sequence[ToolResultItem], left: int) -> tuple[list[ToolResultItem], bool]:
    """The results with what the model gets to read of each, in turn; False where one has no room at all."""
    fitted: list[ToolResultItem] = []
    fits = True
    for result in results:
        if len(result.text) > RENDERED.characters:
            text = await anyio.to_thread.run_sync(fit, codec, result.text, left)
        else:
            text = fit(codec, result.text, left)
        if text is None:
            text, fits = "", False
        left -= len(codec.tokenize(text))
        if may_see(codec, [result]):
            pieces = await anyio.to_thread.run_sync(codec.pieces, [result], limiter=LOOKING)
            left -= sum(len(piece.span) for piece in pieces)
        fitted.append(result if text == result.text else replace(result, shown=text))
    return fitted, fits


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
    note = len(codec.tokenize(_omitted(len(tokens)))) + 2
    if room < note + LEAST_TOKENS:
        return None
    head = (room - note) * 2 // 3
    tail = room - note - head
    omitted = len(tokens) - head - tail
    begin, end = codec.detokenize(tokens[:head]), codec.detokenize(tokens[len(tokens) - tail :])
    return begin.rstrip("\ufffd") + _omitted(omitted) + end.lstrip("\ufffd")


def _omitted(tokens: int) -> str:
    return f"\n[... {tokens} tokens omitted ...]\n"

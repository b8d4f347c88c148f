"""What a model does once for all requests, done when it is loaded and not by the first of them.

That is what grammars need of its vocabulary, a first step, and the tokens with which every conversation begins that has
the default tools. What has been read of these is lent to all.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import anyio
import anyio.to_thread

from tenuto.errors import InvalidRequest, TemplateFailed
from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.base import Codec, GrammarSource, ToolChoice
from tenuto.runtime.engine.messages import THE_SERVER, Failed, Round
from tenuto.runtime.loop.model import Model
from tenuto.runtime.loop.sharing import tool_block
from tenuto.runtime.loop.tool_room import ToolRoom
from tenuto.sessions.items import ToolSpec

logger = logging.getLogger(__name__)

WARM_S = 2.0
"""A load takes no longer for it. What has not been read by then is read by the requests that need it."""
_SEQUENCE = "warm-up"
_ANY_TOOL = (ToolSpec("f", "", {"type": "object"}),)


@dataclass(frozen=True, slots=True)
class _First:
    """What the model reads first, and what it is held to then."""

    tokens: tuple[int, ...]
    grammar: GrammarSource | None


async def warm_up(model: Model, tools: Sequence[ToolSpec]) -> None:
    """Let a model that has just been loaded do this; `tools` are those that a conversation has by default. What fails
    here is for the requests to tell."""
    fitting = await ToolRoom().fitting(model.codec, tools, model.context)
    first = await anyio.to_thread.run_sync(_first, model.codec, fitting)
    tokens = first.tokens[: model.context - 1]
    opened = model.engine.submit(
        _SEQUENCE,
        tokens,
        Round(1, Sampling(temperature=0.0), model.codec.info.stop_tokens, grammar=first.grammar),
        principal=THE_SERVER,
    )
    with anyio.move_on_after(WARM_S) as limit:
        async for event in opened:
            if isinstance(event, Failed):
                logger.warning("%s fails in its first step: %s", model.id, event.error)
    if limit.cancelled_caught:
        opened.cancel()


def _first(codec: Codec, tools: Sequence[ToolSpec]) -> _First:
    grammar = _grammar(codec, tools or _ANY_TOOL)
    if grammar is not None:
        codec.constraint(grammar)
    codec.parser(calls=grammar is not None, tools=tools)
    try:
        block = tool_block(codec, tools)
    except TemplateFailed:  # it takes no such conversation, and says so to who has one
        block = ()
    return _First(block or tuple(codec.tokenize("a")), grammar)


def _grammar(codec: Codec, tools: Sequence[ToolSpec]) -> GrammarSource | None:
    try:
        return codec.grammar(tools, ToolChoice.AUTO, parallel=True)
    except InvalidRequest:  # a schema that cannot be enforced: who uses the tool is told
        return None

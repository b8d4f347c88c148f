"""Whether a model can be held to what a request asks for: found out before anything of a session changes."""

from dataclasses import replace

import anyio

from tenuto.errors import InvalidRequest
from tenuto.pipelines.base import Codec, Sampling, ToolChoice
from tenuto.runtime.loop.options import RunOptions
from tenuto.runtime.loop.requests import ResponseFormat
from tenuto.sessions.items import JsonObject


def check_bias(codec: Codec, sampling: Sampling) -> None:
    """Refuse a bias for what is no token of the model."""
    size = codec.info.vocabulary
    unknown = next((token for token, _ in sampling.logit_bias if not 0 <= token < size), None)
    if unknown is not None:
        raise InvalidRequest(f"{unknown} is no token of this model, which has {size} of them", "logit_bias")


async def constrained(codec: Codec, options: RunOptions, response: ResponseFormat | None) -> RunOptions:
    """The options with the schema that the answer is held to. Compiles in a thread what the rounds will need: the event
    loop finds it made.

    Raises:
        InvalidRequest: the model cannot be held to the calls or the answer that are asked for.
    """
    if response is None and options.allowed is None and options.choice is not ToolChoice.REQUIRED:
        tools = options.callable(options.choice)
        if options.choice is ToolChoice.NONE or codec.knows_grammar(tools, parallel=options.parallel):
            return options
    return await anyio.to_thread.run_sync(_constrain, codec, options, response)


def _constrain(codec: Codec, options: RunOptions, response: ResponseFormat | None) -> RunOptions:
    wanted = replace(options, answer=None if response is None else _schema(response))
    try:
        _try(codec, wanted)
    except InvalidRequest as error:
        if response is None or response.strict or error.param != "response_format":
            raise
        wanted = replace(options, answer={})
        _try(codec, wanted)
    return wanted


def _schema(response: ResponseFormat) -> JsonObject:
    if response.kind == "json_object":
        return {"type": "object"}
    return {} if response.schema is None else response.schema


def _try(codec: Codec, options: RunOptions) -> None:
    """Make the grammar of the first round and, where that must call, of those after it."""
    choices = [options.choice, ToolChoice.AUTO] if options.choice is ToolChoice.REQUIRED else [options.choice]
    for choice in choices:
        tools = options.callable(choice)
        source = codec.grammar(tools, choice, parallel=options.parallel, answer=options.answer)
        if source is None and options.allowed is not None and choice is not ToolChoice.NONE:
            raise InvalidRequest("this model writes calls as text, and cannot be held to allowed tools", "tool_choice")

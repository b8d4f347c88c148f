"""Whether a model can be held to what a request asks for: found out before anything of a session changes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import anyio

from tenuto.errors import GenerationFailed, InvalidRequest
from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.base import Codec, GrammarSource, ToolChoice
from tenuto.runtime.loop.options import RunOptions, Unenforced
from tenuto.runtime.loop.prefill import Prefill
from tenuto.runtime.loop.requests import ResponseFormat
from tenuto.sessions.items import JsonObject, ToolSpec


def check_bias(codec: Codec, sampling: Sampling) -> None:
    """Refuse a bias for what is no token of the model."""
    size = codec.info.vocabulary
    unknown = next((token for token, _ in sampling.logit_bias if not 0 <= token < size), None)
    if unknown is not None:
        raise InvalidRequest(f"{unknown} is not a token of this model, whose vocabulary has {size}", "logit_bias")


async def constrained(codec: Codec, options: RunOptions, response: ResponseFormat | None) -> RunOptions:
    """The options with the schema that the answer is held to, and with what cannot be enforced. Compiles in a thread
    what the rounds will need: the event loop finds it made.

    Raises:
        InvalidRequest: the model cannot be held to the calls or the answer that are asked for.
    """
    if response is None and options.answer is None and options.allowed is None and options.prefill is None:
        known = _at_hand(codec, options)
        if known is not None:
            unenforced = _of_tools(known)
            return options if unenforced == options.unenforced else replace(options, unenforced=unenforced)
    return await anyio.to_thread.run_sync(_constrain, codec, options, response)


async def prepare(codec: Codec, options: RunOptions, choice: ToolChoice, found: Sequence[ToolSpec]) -> None:
    """Compile in a thread what a round of that choice will need that may call what searches have found."""
    if found and choice is not ToolChoice.NONE:
        await anyio.to_thread.run_sync(_compile, codec, options, choice, found)


def _compile(codec: Codec, options: RunOptions, choice: ToolChoice, found: Sequence[ToolSpec]) -> None:
    codec.grammar(options.callable(choice, found), choice, parallel=options.parallel, answer=options.answer)


def _at_hand(codec: Codec, options: RunOptions) -> Iterable[str] | None:
    """What cannot be enforced of the tools, where that is known without compiling."""
    if options.choice is ToolChoice.NONE:
        return ()
    if options.choice is ToolChoice.REQUIRED:
        return None
    return codec.unenforced(options.callable(options.choice), parallel=options.parallel)


def _constrain(codec: Codec, options: RunOptions, response: ResponseFormat | None) -> RunOptions:
    if response is None:  # an answer that is held to a schema all the same is so since an earlier request
        kept = tuple(
            each for each in options.unenforced if each.what == "response_format" and options.answer is not None
        )
        return replace(options, unenforced=(*kept, *_try(codec, options)))
    wanted = replace(options, answer=_schema(response))
    try:
        return replace(wanted, unenforced=_try(codec, wanted))
    except InvalidRequest as error:
        if response.strict or error.param != "response_format":
            raise
        wanted = replace(options, answer={})
        loose = Unenforced("response_format", str(error))
        return replace(wanted, unenforced=(loose, *_try(codec, wanted)))


def _schema(response: ResponseFormat) -> JsonObject:
    if response.kind == "json_object":
        return {"type": "object"}
    return {} if response.schema is None else response.schema


def _try(codec: Codec, options: RunOptions) -> tuple[Unenforced, ...]:
    """Make the grammar of the first round and, where that must call, of those after it. Tells what they do not hold."""
    found: list[str] = []
    choices = [options.choice, ToolChoice.AUTO] if options.choice is ToolChoice.REQUIRED else [options.choice]
    for choice in choices:
        tools = options.callable(choice)
        source = codec.grammar(tools, choice, parallel=options.parallel, answer=options.answer)
        if source is not None:
            found += source.unenforced
            if choice is options.choice and options.prefill is not None:
                _expect_fitting(codec, source, options.prefill)
        elif options.allowed is not None and choice is not ToolChoice.NONE:
            raise InvalidRequest(
                "this model writes calls as plain text, so it cannot be restricted to allowed tools", "tool_choice"
            )
    return _of_tools(found)


def _expect_fitting(codec: Codec, source: GrammarSource, prefill: Prefill) -> None:
    """Raises InvalidRequest where what the client has begun cannot be gone on with to what it asks for."""
    constraint = codec.constraint(source)
    try:
        for token in codec.begun_with(prefill.text):
            constraint.accept(token)
    except GenerationFailed:
        raise InvalidRequest(
            "messages: the last message, with which the answer begins, does not fit what the answer is to be:"
            " leave it out, or the response format or tool_choice",
            "messages",
        ) from None


def _of_tools(reasons: Iterable[str]) -> tuple[Unenforced, ...]:
    """Each once, as they came."""
    return tuple(Unenforced("tools", reason) for reason in dict.fromkeys(reasons))

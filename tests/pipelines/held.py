"""One whole turn of a model that is held to a grammar, sampled at temperature 1 by an engine."""

from collections.abc import Sequence

import anyio

from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.base import Codec, GrammarSource, Pipeline, ToolChoice
from tenuto.pipelines.turns import CallFinished, ReasoningDelta, TurnEvent, TurnParser
from tenuto.runtime.engine.engine import Engine, EngineSettings
from tenuto.runtime.engine.messages import Round, StopCause, Stopped, TokensSampled
from tenuto.runtime.loop.engine_client import EngineClient, QueueLimits
from tenuto.sessions.items import JsonObject, ToolSpec, UserItem
from tests.patience import HANGS_S
from tests.pipelines.schemas import check

SLOTS, CELLS, TRIES = 16, 1536, 4


def prompt(codec: Codec, tools: list[ToolSpec]) -> list[int]:
    rendered = codec.suffix([], [UserItem("Tell me something.")], tools, ended=True)
    return [*(token for item in rendered.items for token in item), *rendered.opening]


async def say(
    engine: EngineClient, codec: Codec, name: str, tools: list[ToolSpec], answer: JsonObject | None
) -> list[int]:
    """The tokens of one whole turn that is held to its grammar."""
    choice = ToolChoice.REQUIRED if tools else ToolChoice.NONE
    grammar = codec.grammar(tools, choice, parallel=False, answer=answer)
    tokens, cause = await _sampled(engine, codec, name, prompt(codec, tools), grammar)
    assert cause is StopCause.END, f"{name} came to no end: {codec.detokenize(tokens)}"
    return tokens


async def _sampled(
    engine: EngineClient, codec: Codec, name: str, tokens: Sequence[int], grammar: GrammarSource | None
) -> tuple[list[int], StopCause]:
    number = int(name.rpartition("-")[2])
    round = Round(CELLS, Sampling(temperature=1.0, seed=number), codec.info.stop_tokens, grammar=grammar)
    said: list[int] = []
    cause = StopCause.LIMIT
    async for event in engine.submit(name, list(tokens), round, principal="alice"):
        match event:
            case TokensSampled():
                said += event.tokens
            case Stopped():
                cause = event.cause
            case _:
                raise AssertionError(event)
    engine.release(name)
    return said, cause


async def force_calls(pipeline: Pipeline, schemas: Sequence[JsonObject]) -> None:
    """Each call that a model with random weights is forced to make is valid by its tool, which is one of two."""
    codec = pipeline.codec
    engine = EngineClient(
        "tiny", SLOTS, Engine(pipeline, EngineSettings(host_cache_bytes=0)), QueueLimits(len(schemas))
    )
    opening = codec.suffix([], [UserItem("Go on.")], [], ended=True).opening or codec.tokenize("Go on.")

    async def one(number: int, schema: JsonObject) -> None:
        tools = [ToolSpec("tell", "", schema), ToolSpec("ask_again", "", schemas[number - 1])]
        grammar = codec.grammar(tools, ToolChoice.REQUIRED, parallel=False)
        assert grammar is not None
        for again in range(TRIES):
            name = f"call-{number + again * len(schemas)}"
            tokens, cause = await _sampled(engine, codec, name, opening, grammar)
            events = told(codec.parser(calls=True, tools=tools), tokens)
            if cause is StopCause.END or not any(isinstance(event, ReasoningDelta) for event in events):
                break  # else it has reasoned to its limit, and never come to the call
        assert cause is StopCause.END, f"{name} came to no end: {codec.detokenize(tokens)}"
        calls = [event for event in events if isinstance(event, CallFinished)]
        assert len(calls) == 1, f"{codec.detokenize(tokens)!r} was read as {events}"
        if not grammar.unenforced:
            check({tool.name: tool.parameters for tool in tools}[calls[0].name], calls[0].arguments)

    try:
        with anyio.fail_after(HANGS_S * (1 + len(schemas) // 20)):
            async with anyio.create_task_group() as group:
                for number, schema in enumerate(schemas):
                    group.start_soon(one, number, schema)
    finally:
        await engine.stop()


def told(parser: TurnParser, tokens: Sequence[int]) -> list[TurnEvent]:
    """All that a parser says of a turn."""
    return [event for token in tokens for event in parser.push(token)] + parser.finish()

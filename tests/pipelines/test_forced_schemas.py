"""Whatever the schema, what a model is forced to say is valid by it: the embedded model, at temperature 1.

The schemas come from a seeded search of hypothesis; the engine answers sixteen at a time.
"""

from collections.abc import AsyncIterator

import anyio
import pytest

from tenuto.pipelines.base import Pipeline, ToolChoice
from tenuto.pipelines.loader import LoadSettings, load
from tenuto.pipelines.turns import CallFinished, TextDelta
from tenuto.runtime.engine.engine import Engine, EngineSettings
from tenuto.runtime.loop.engine_client import EngineClient, QueueLimits
from tenuto.sessions.items import JsonObject, ToolSpec
from tests.pipelines.held import CELLS, say
from tests.pipelines.schemas import ANSWERS, ARGUMENTS, check, some

ANSWERED, CALLED = 200, 100
PARTS = pytest.mark.parametrize(
    "part", [pytest.param(10, id="tenth"), pytest.param(1, id="all", marks=pytest.mark.thorough)]
)
SLOTS = 16


@pytest.fixture
def pipeline(embedded_model: str) -> Pipeline:
    return load(embedded_model, LoadSettings(slots=SLOTS, cells=CELLS, batch_tokens=512, threads=1))


@pytest.fixture
async def engine(pipeline: Pipeline) -> AsyncIterator[EngineClient]:
    thread = Engine(pipeline, EngineSettings(host_cache_bytes=0))
    engine = EngineClient("embedded", SLOTS, thread, QueueLimits(ANSWERED))
    yield engine
    await engine.stop()


@PARTS
async def test_every_forced_answer_is_valid_by_its_schema(engine: EngineClient, pipeline: Pipeline, part: int) -> None:
    async def one(number: int, schema: JsonObject) -> None:
        parser = pipeline.codec.parser(calls=False)
        tokens = await say(engine, pipeline.codec, f"answer-{number}", [], schema)
        events = [event for token in tokens for event in parser.push(token)] + parser.finish()
        check(schema, "".join(event.text for event in events if isinstance(event, TextDelta)))

    with anyio.fail_after(200):
        async with anyio.create_task_group() as group:
            for number, schema in enumerate(some(ANSWERS, ANSWERED // part)):
                group.start_soon(one, number, schema)


@PARTS
async def test_every_forced_call_is_valid_by_its_tool(engine: EngineClient, pipeline: Pipeline, part: int) -> None:
    async def one(number: int, schema: JsonObject) -> None:
        tools = [ToolSpec("tell", "", schema)]
        grammar = pipeline.codec.grammar(tools, ToolChoice.REQUIRED, parallel=False)
        assert grammar is not None
        assert not grammar.unenforced
        parser = pipeline.codec.parser(calls=True)
        tokens = await say(engine, pipeline.codec, f"call-{number}", tools, None)
        events = [event for token in tokens for event in parser.push(token)] + parser.finish()
        (call,) = (event for event in events if isinstance(event, CallFinished))
        check(schema, call.arguments)

    with anyio.fail_after(200):
        async with anyio.create_task_group() as group:
            for number, schema in enumerate(some(ARGUMENTS, CALLED // part)):
                group.start_soon(one, number, schema)

"""Whatever the schema, what a model is forced to say is valid by it: the embedded model, at temperature 1.

The schemas come from a seeded search of hypothesis; the engine answers sixteen at a time.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import jsonschema
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.base import Codec, Pipeline, ToolChoice
from tenuto.pipelines.loader import LoadSettings, load
from tenuto.pipelines.turns import CallFinished, TextDelta
from tenuto.runtime.engine.engine import Engine, EngineSettings
from tenuto.runtime.engine.messages import Round, StopCause, Stopped, TokensSampled
from tenuto.runtime.loop.engine_client import EngineClient, QueueLimits
from tenuto.sessions.items import JsonObject, ToolSpec, UserItem

ANSWERED, CALLED = 200, 100
PARTS = pytest.mark.parametrize(
    "part", [pytest.param(4, id="quarter"), pytest.param(1, id="all", marks=pytest.mark.thorough)]
)
SLOTS, CELLS = 16, 1536
NAMES = st.sampled_from(["a", "b", "city", "zip code", "näme", 'q"uote', "x_1", "é🎵"])
CHARACTERS = st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"])
CONSTANTS = st.one_of(st.none(), st.booleans(), st.integers(-99, 99), st.text(CHARACTERS, max_size=5))
PATTERNS = ["^[a-z]{1,8}$", r"^\d{3}-\d{4}$", "^(yes|no|maybe)$", "^[A-F0-9]{2}(:[A-F0-9]{2}){0,3}$"]


def ranges(kind: str, strategy: st.SearchStrategy[int], low: str, high: str) -> st.SearchStrategy[JsonObject]:
    """Schemas of a kind with two bounds."""
    return st.tuples(strategy, strategy).map(lambda pair: {"type": kind, low: min(pair), high: max(pair)})


LEAVES: st.SearchStrategy[JsonObject] = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    ranges("integer", st.integers(-2000, 2000), "minimum", "maximum"),
    # Without a step a number may have digits without end, which a weak model writes.
    ranges("number", st.integers(-50, 50), "minimum", "maximum").map(lambda number: {**number, "multipleOf": 0.25}),
    ranges("string", st.integers(0, 12), "minLength", "maxLength"),
    st.sampled_from(PATTERNS).map(lambda pattern: {"type": "string", "pattern": pattern}),
    st.sampled_from(["date", "uuid", "ipv4"]).map(lambda form: {"type": "string", "format": form}),
    st.lists(CONSTANTS, min_size=1, max_size=4).map(lambda values: {"enum": values}),
    CONSTANTS.map(lambda value: {"const": value}),
)


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[JsonObject]) -> JsonObject:
    properties = draw(st.dictionaries(NAMES, inner, max_size=4))
    required = [name for name in properties if draw(st.booleans())]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[JsonObject]) -> JsonObject:
    least = draw(st.integers(0, 2))
    schema: JsonObject = {"type": "array", "minItems": least, "maxItems": least + draw(st.integers(0, 2))}
    if draw(st.booleans()):
        schema["prefixItems"] = draw(st.lists(inner, min_size=1, max_size=2))
    return {**schema, "items": draw(inner)}


@st.composite
def referring(draw: st.DrawFn, inner: st.SearchStrategy[JsonObject]) -> JsonObject:
    """An object two of whose members share a definition."""
    reference = {"$ref": "#/$defs/shared"}
    schema: JsonObject = {"type": "object", "properties": {"one": reference, "other": reference}}
    return {**schema, "required": ["one"], "additionalProperties": False, "$defs": {"shared": draw(inner)}}


INNER = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        objects(inner), arrays(inner), st.lists(inner, min_size=1, max_size=3).map(lambda kinds: {"anyOf": kinds})
    ),
    max_leaves=4,
)
ANSWERS = st.one_of(objects(INNER), referring(LEAVES), arrays(INNER), LEAVES)
ARGUMENTS = st.one_of(objects(INNER), referring(LEAVES))


def some(strategy: st.SearchStrategy[JsonObject], count: int) -> list[JsonObject]:
    """So many different schemas, the same in every run."""
    found: dict[str, JsonObject] = {}

    @seed(20_26)
    @settings(
        max_examples=2 * count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def search(schema: JsonObject) -> None:
        found.setdefault(json.dumps(schema, sort_keys=True), schema)

    search()
    assert len(found) >= count
    return list(found.values())[-count:]  # the later ones are the larger ones


@pytest.fixture
def pipeline(embedded_model: str) -> Pipeline:
    return load(embedded_model, LoadSettings(slots=SLOTS, cells=CELLS, batch_tokens=512, threads=1))


@pytest.fixture
async def engine(pipeline: Pipeline) -> AsyncIterator[EngineClient]:
    thread = Engine(pipeline, EngineSettings(host_cache_bytes=0))
    engine = EngineClient("embedded", SLOTS, thread, QueueLimits(ANSWERED))
    yield engine
    await engine.stop()


def prompt(codec: Codec, tools: list[ToolSpec]) -> list[int]:
    rendered = codec.suffix([], [UserItem("Tell me something.")], tools, ended=True)
    return [*(token for item in rendered.items for token in item), *rendered.opening]


async def say(
    engine: EngineClient, codec: Codec, name: str, tools: list[ToolSpec], answer: JsonObject | None
) -> list[int]:
    """The tokens of one whole turn that is held to its grammar."""
    choice = ToolChoice.REQUIRED if tools else ToolChoice.NONE
    grammar = codec.grammar(tools, choice, parallel=False, answer=answer)
    number = int(name.rpartition("-")[2])
    round = Round(CELLS, Sampling(temperature=1.0, seed=number), codec.info.stop_tokens, grammar=grammar)
    tokens: list[int] = []
    async for event in engine.submit(name, prompt(codec, tools), round, principal="alice"):
        match event:
            case TokensSampled():
                tokens += event.tokens
            case Stopped():
                assert event.cause is StopCause.END, f"{name} came to no end: {codec.detokenize(tokens)}"
            case _:
                raise AssertionError(event)
    engine.release(name)
    return tokens


def check(schema: JsonObject, text: str) -> None:
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    value: Any = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    errors = [error.message for error in validator.iter_errors(value)]
    assert not errors, f"{text!r} is not valid by {json.dumps(schema)}: {errors}"


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

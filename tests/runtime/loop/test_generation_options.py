"""What a request asks of the generation itself: logprobs, biases, formats, allowed tools, stop strings; raw text."""

import json
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tenuto.errors import ContextTooLong, InvalidRequest
from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.base import ToolChoice
from tenuto.pipelines.sampling_defaults import AskedSampling
from tenuto.runtime.engine.messages import StopCause
from tenuto.runtime.loop.events import TextAdded
from tenuto.runtime.loop.raw import RawPiece, RawRequest, RawRun
from tenuto.runtime.loop.requests import ResponseFormat, ToolSelection
from tenuto.sessions.principal import Principal
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import PATIENCE_S, answer, asks, call, client_tools, codec, events, says

FORMAT = ResponseFormat(
    "json_schema",
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
)
ALICE = Principal("alice")
COUNT = asks("count", call("count__add", by=1), text="Well.", reasoning="Hm.")


# Logprobs and biases.


@pytest.mark.parametrize("stop", [(), ("ö",), ("w",), ("!",), ("never",)])
async def test_logprobs_are_those_of_the_text_that_is_shown(open_process: Open, stop: tuple[str, ...]) -> None:
    process = await open_process(says("hi", "  héllö wörld!  \n", reasoning="Let me see."))
    run = await process.start("hi", sampling=AskedSampling(logprobs=2), stop=stop)
    told = [event for event in await events(run) if isinstance(event, TextAdded)]
    done = await answer(run)
    assert [one for event in told for one in event.logprobs] == done.logprobs
    assert b"".join(one.data for one in done.logprobs).decode().strip() == done.text.strip() != ""
    for one in done.logprobs:
        assert one.logprob == 0
        assert len(one.top) == 2
        assert one.top[0] == (one.token, one.data, one.logprob)


async def test_a_call_has_no_logprobs_and_what_is_said_beside_it_has(open_process: Open) -> None:
    process = await open_process(COUNT, {"tool": "1", "text": "One."})
    done = await process.ask("count", sampling=AskedSampling(logprobs=0))
    assert b"".join(one.data for one in done.logprobs) == b"Well.One."
    assert all(one.top == () for one in done.logprobs)


async def test_without_being_asked_for_there_are_no_logprobs(open_process: Open) -> None:
    process = await open_process(says("hi", "ho"))
    assert (await process.ask("hi")).logprobs == []


async def test_a_bias_keeps_a_token_out_and_brings_one_in(open_process: Open) -> None:
    process = await open_process(says("hi", "ab"))
    banned = AskedSampling(logit_bias=((ord("a"), -100.0), (ord("z"), 1.0)))
    assert (await process.ask("hi", "s", sampling=banned)).text == "zb"
    wanted = AskedSampling(logit_bias=((ord("z"), 100.0),))
    assert (await process.ask("hi", "t", sampling=wanted, max_tokens=3)).text == "zzz"


@pytest.mark.parametrize("token", [-1, 10**6])
async def test_a_bias_for_what_is_no_token_is_refused_before_anything_changes(open_process: Open, token: int) -> None:
    process = await open_process()
    with pytest.raises(InvalidRequest, match=f"{token} is not a token of this model") as refused:
        await process.start("hi", sampling=AskedSampling(logit_bias=((token, 1.0),)))
    assert refused.value.param == "logit_bias"
    assert await process.store.session("alice", "s") is None


# Formats.


@pytest.mark.parametrize("reasoning", ["", "It is one."])
async def test_an_answer_in_a_format_is_one_json_value(open_process: Open, reasoning: str) -> None:
    process = await open_process(says("hi", 'Sure: {"a": 1} and more', reasoning=reasoning))
    done = await process.ask("hi", response=FORMAT, tools=ToolSelection(given=True))
    assert set(json.loads(done.text)) == {"a"}
    assert (done.reasoning, done.stop_reason) == (reasoning, "end")


async def test_any_object_is_enough_where_no_schema_is_given(open_process: Open) -> None:
    process = await open_process(says("hi", '{"b": [1, {}]}'))
    done = await process.ask("hi", response=ResponseFormat("json_object"))
    assert json.loads(done.text) == {"b": [1, {}]}


async def test_a_model_may_call_before_it_answers_in_the_format(open_process: Open) -> None:
    process = await open_process(
        asks("count", call("count__add", by=1), reasoning="Hm."), {"tool": "1", "text": '{"a": 12}'}
    )
    done = await process.ask("count", response=FORMAT)
    assert [one.name for one in done.server_calls] == ["count__add"]
    assert (done.text, done.reasoning) == ('{"a": 12}', "Hm.")


async def test_a_required_call_comes_before_the_format(open_process: Open) -> None:
    process = await open_process(asks("count", call("count__add", by=1)), {"tool": "1", "text": '{"a": 12}'})
    tools = ToolSelection(choice=ToolChoice.REQUIRED, only="count__add")
    done = await process.ask("count", response=FORMAT, tools=tools)
    assert ([one.name for one in done.server_calls], done.text) == (["count__add"], '{"a": 12}')


BROKEN: list[Any] = [{"type": "nonsense"}, {"$ref": "#/nowhere"}, {"type": "object", "propertyNames": {"pattern": "a"}}]


@pytest.mark.parametrize("schema", BROKEN)
async def test_a_schema_that_cannot_be_enforced_is_refused_before_anything_changes(
    open_process: Open, schema: Any
) -> None:
    process = await open_process()
    with pytest.raises(InvalidRequest, match=r"the schema of the answer cannot be enforced: .+") as refused:
        await process.start("hi", response=ResponseFormat("json_schema", schema))
    assert refused.value.param == "response_format"
    assert await process.store.session("alice", "s") is None


@pytest.mark.parametrize("schema", BROKEN)
async def test_where_it_is_not_strict_the_answer_is_json_all_the_same(open_process: Open, schema: Any) -> None:
    process = await open_process(says("hi", "[1]"))
    done = await process.ask("hi", response=ResponseFormat("json_schema", schema, strict=False))
    assert done.text == "[1]"


# Tools and stop strings.


@pytest.mark.parametrize("choice", [ToolChoice.AUTO, ToolChoice.REQUIRED])
async def test_only_the_allowed_tools_are_called_and_all_are_seen(open_process: Open, choice: ToolChoice) -> None:
    process = await open_process(asks("count", call("count__add", by=1)), {"tool_contains": "", "text": "Done."})
    tools = ToolSelection(choice=choice, allowed=("count__peek",))
    done = await process.ask("count", tools=tools, max_tool_rounds=1)
    assert {one.name for one in done.server_calls} == {"count__peek"}
    assert "count__add" in await process.tokens()


@pytest.mark.parametrize("allowed", [(), ("nowhere",)])
async def test_allowed_tools_are_among_those_that_there_are(open_process: Open, allowed: tuple[str, ...]) -> None:
    process = await open_process()
    with pytest.raises(InvalidRequest, match="tool_choice allows") as refused:
        await process.start("hi", tools=ToolSelection(allowed=allowed))
    assert refused.value.param == "tool_choice"


@pytest.mark.parametrize("stop", ["\n", "name", '"', "Hm", "tool_call"])
async def test_a_stop_string_cuts_no_reasoning_and_no_call(open_process: Open, stop: str) -> None:
    process = await open_process(COUNT, {"tool": "1", "text": f"One{stop} two"})
    done = await process.ask("count", stop=(stop,))
    assert [one.name for one in done.server_calls] == ["count__add"]
    assert (done.text, done.reasoning, done.stop_reason) == ("Well.One", "Hm.", "stop_string")


async def test_where_there_are_no_tools_all_that_is_no_reasoning_is_text(open_process: Open) -> None:
    process = await open_process(asks("weather", call("weather", city="Oslo")))
    done = await process.ask("weather", stop=("city",), tools=client_tools(choice=ToolChoice.NONE))
    assert done.stop_reason == "stop_string"


# Raw completions.


def raw(text: str, **fields: Any) -> RawRequest:
    given: dict[str, Any] = {"sampling": Sampling(), "max_tokens": 100, **fields}
    return RawRequest(ALICE, None, tuple(codec().tokenize(text)), **given)


async def pieces(run: RawRun) -> list[RawPiece]:
    with anyio.fail_after(PATIENCE_S):
        return [piece async for piece in run]


OPENED = "<|user|>hi<|end|><|assistant|>"


def opened() -> tuple[int, ...]:
    """The prompt of a chat, by its tokens."""
    from tenuto.pipelines.scripted import ScriptedTokenizer

    return tuple(ScriptedTokenizer().template_tokens(OPENED))


async def test_a_raw_completion_goes_on_from_tokens_and_leaves_nothing_behind(open_process: Open) -> None:
    process = await open_process(says("hi", "héllo\nwörld"))
    request = RawRequest(ALICE, None, opened(), Sampling(logprobs=1), 100)
    run = process.runner.complete(request)
    told = await pieces(run)
    assert "".join(piece.text for piece in told) == "héllo\nwörld"
    assert b"".join(one.data for piece in told for one in piece.logprobs).decode() == "héllo\nwörld"
    assert (run.cause, run.usage.prompt) == (StopCause.END, len(opened()))
    assert run.usage.sampled == len("héllo\nwörld".encode()) + 1
    await emptied(process)


async def test_a_raw_completion_stops_at_its_strings_and_its_limit(open_process: Open) -> None:
    process = await open_process(says("hi", "one\ntwo"))
    stopped = process.runner.complete(RawRequest(ALICE, None, opened(), Sampling(), 100, ("\n",)))
    assert ("".join(piece.text for piece in await pieces(stopped)), stopped.cause) == ("one", StopCause.STOP_STRING)
    cut = process.runner.complete(RawRequest(ALICE, None, opened(), Sampling(), 2))
    assert ("".join(piece.text for piece in await pieces(cut)), cut.cause) == ("on", StopCause.LIMIT)


async def test_a_raw_completion_that_is_closed_stops_and_frees_its_cache(open_process: Open) -> None:
    process = await open_process(says("hi", "y" * 5000))
    run = process.runner.complete(RawRequest(ALICE, None, opened(), Sampling(), 5000))
    with anyio.fail_after(PATIENCE_S):
        assert (await anext(run)).text == "y"
    run.close()
    run.close()
    await emptied(process)


async def emptied(process: Any) -> None:
    """Wait until no engine knows a sequence or holds a cache."""
    with anyio.fail_after(PATIENCE_S):
        while any(sum(state.sequences.values()) or sum(state.cache_bytes.values()) for state in states(process)):
            await anyio.lowlevel.checkpoint()


def states(process: Any) -> list[Any]:
    return [engine.status for engine in process.runner.health().engines.values()]


async def test_what_a_raw_completion_cannot_go_on_from_is_refused(open_process: Open) -> None:
    process = await open_process()
    for request, error, why in (
        (raw(""), InvalidRequest, "no tokens"),
        (RawRequest(ALICE, None, (10**6,), Sampling(), 1), InvalidRequest, "beyond the vocabulary"),
        (raw("a", max_tokens=0), InvalidRequest, "max_tokens"),
        (raw("a" * 16384), ContextTooLong, "the model takes at most 16384"),
        (raw("a", sampling=Sampling(logit_bias=((-5, 1.0),))), InvalidRequest, "-5 is not a token"),
    ):
        with pytest.raises(error, match=why):
            process.runner.complete(request)

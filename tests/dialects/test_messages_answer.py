"""Runs as messages: what a whole answer says, what a stream says, and that both say the same."""

import json
from collections.abc import Sequence
from typing import Any

import anthropic
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import to_json

from tenuto.errors import GenerationFailed
from tenuto.runtime.dialects.anthropic.messages.answer import message
from tenuto.runtime.dialects.anthropic.messages.request import Shown, Thought
from tenuto.runtime.dialects.anthropic.messages.stream import PING, EventEncoder
from tenuto.runtime.loop.answer import gather
from tenuto.runtime.loop.events import (
    Answer,
    ClientCallArguments,
    ClientCallStarted,
    ReasoningAdded,
    RunDone,
    RunEvent,
    RunPaused,
    StopReason,
    TextAdded,
    ToolCalling,
    ToolReturned,
    Usage,
)
from tenuto.sessions.items import ToolCall
from tenuto.sessions.records import PauseReason, RunStatus

DONE = RunDone(RunStatus.COMPLETED, StopReason.END)
CALLED = RunPaused(PauseReason.CLIENT_TOOL, 1, (), 0.0)
SERVER_CALL = ToolCall("c9", "clock__now", "{}", server=True)
ASKED = RunPaused(PauseReason.APPROVAL, 1, (SERVER_CALL,), 9.0, pause_id="appr_1")


def told(events: Sequence[RunEvent], **known: Any) -> Answer:
    """The answer of a run that has told these."""
    figures = Usage(prompt=20, completion=5, computed=8, cached=12)
    answer = Answer("run_1", "s", "m", "1-1", usage=figures, run_usage=figures, **known)
    for event in events:
        gather(answer, event)
    done = isinstance(events[-1], RunDone)
    answer.status = RunStatus.COMPLETED if done else RunStatus.PAUSED
    return answer


def whole(events: Sequence[RunEvent], shown: Thought = "whole", **known: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(message(told(events, **known), events, Shown(shown)).encode())
    return body


def frames(events: Sequence[RunEvent], shown: Thought = "whole", *, named: bool = False, **known: Any) -> bytes:
    encoder = EventEncoder("req_1", "s", Shown(shown), named_events=named)
    opening = encoder.opening(Answer("run_1", "s", "m", "1-1"))
    return opening + b"".join(map(encoder.encode, events)) + encoder.closing(told(events, **known))


def streamed(sent: bytes) -> anthropic.types.Message:
    """What the official client makes of a stream."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=sent)

    transport = httpx2.Client(transport=httpx2.MockTransport(answer))
    client = anthropic.Anthropic(api_key="k", base_url="http://localhost", http_client=transport, max_retries=0)
    with client.messages.stream(model="m", max_tokens=1, messages=[{"role": "user", "content": "a"}]) as stream:
        return stream.get_final_message()


def data(sent: bytes) -> list[dict[str, Any]]:
    """The events of a stream, each of which has its type's name."""
    found = []
    for block in sent.decode().split("\n\n")[:-1]:
        name, _, line = block.partition("\n")
        event = json.loads(line.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


# Whole answers


def test_a_whole_answer_has_its_blocks_in_the_order_in_which_they_were_told() -> None:
    events: list[RunEvent] = [
        ReasoningAdded(1, "let me "),
        ReasoningAdded(1, "see"),
        TextAdded(1, "One"),
        ToolCalling(1, SERVER_CALL),
        ToolReturned(1, SERVER_CALL, "completed", "12:00"),
        TextAdded(2, " moment."),
        ClientCallStarted(2, 0, "c1", "weather"),
        ClientCallArguments(2, 0, '{"city": '),
        ClientCallArguments(2, 0, '"Ulm"}'),
        CALLED,
    ]
    body = whole(events)
    thinking, *rest = body["content"]
    assert (thinking["type"], thinking["thinking"]) == ("thinking", "let me see")
    assert len(thinking["signature"]) > 20
    assert rest == [
        {"type": "text", "text": "One moment."},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Ulm"}},
    ]
    assert (body["id"], body["role"], body["stop_reason"], body["stop_sequence"]) == (
        "msg_1-1",
        "assistant",
        "tool_use",
        None,
    )
    assert {name: body["usage"][name] for name in body["usage"] if name != "tenuto"} == {
        "input_tokens": 8,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 12,
        "output_tokens": 5,
    }
    assert body["tenuto"] == {
        "session_id": "s",
        "run_id": "run_1",
        "status": "paused",
        "stop_reason": None,
        "reason": "client_tool",
        "expires_at": 0.0,
        "agentic_tool_calls": [
            {
                "round": 1,
                "name": "clock__now",
                "arguments": "{}",
                "result_content": "12:00",
                "status": "completed",
            }
        ],
    }


@pytest.mark.parametrize(
    ("last", "known", "told_as"),
    [
        (DONE, {}, ("end_turn", None)),
        (RunDone(RunStatus.COMPLETED, StopReason.LENGTH), {}, ("max_tokens", None)),
        (RunDone(RunStatus.COMPLETED, StopReason.STOP_STRING), {"stop_string": "END"}, ("stop_sequence", "END")),
        (RunDone(RunStatus.COMPLETED, StopReason.MAX_TOOL_ROUNDS), {}, ("end_turn", None)),
        (RunDone(RunStatus.CANCELLED, StopReason.CANCELLED), {}, ("end_turn", None)),
        (RunDone(RunStatus.COMPLETED, "of another version"), {}, ("end_turn", None)),
        (CALLED, {}, ("tool_use", None)),
        (ASKED, {}, ("pause_turn", None)),
    ],
)
def test_why_an_answer_ended(last: RunEvent, known: dict[str, Any], told_as: tuple[str, str | None]) -> None:
    events: list[RunEvent] = [TextAdded(1, "a"), last]
    body = whole(events, **known)
    *_, delta, stop = data(frames(events, **known))
    assert (body["stop_reason"], body["stop_sequence"]) == told_as
    assert delta["delta"] == {"stop_reason": told_as[0], "stop_sequence": told_as[1]}
    assert stop == {"type": "message_stop"}


def test_a_call_that_nobody_is_to_make_is_no_block_of_a_whole_answer() -> None:
    events: list[RunEvent] = [
        TextAdded(1, "a"),
        ClientCallStarted(1, 0, "c1", "weather"),
        ClientCallArguments(1, 0, "{"),
        ASKED,
    ]
    body = whole(events)
    assert body["content"] == [{"type": "text", "text": "a"}]
    assert body["tenuto"]["approval_id"] == "appr_1"


@pytest.mark.parametrize(
    ("arguments", "read"), [("", {}), ("null", {}), ("[1]", {}), ('{"a": 1', {"a": 1}), ("{]", {})]
)
def test_the_input_of_a_call_is_an_object_whatever_the_model_wrote(arguments: str, read: dict[str, Any]) -> None:
    events: list[RunEvent] = [
        ClientCallStarted(1, 0, "c1", "weather"),
        ClientCallArguments(1, 0, arguments),
        CALLED,
    ]
    assert whole(events)["content"][0]["input"] == read


def test_an_answer_whose_events_are_gone_is_told_from_what_was_kept() -> None:
    kept: dict[str, Any] = {"text": "b", "reasoning": "a", "calls": [ToolCall("c1", "weather", "{}")]}
    blocks = [block["type"] for block in whole([CALLED], **kept)["content"]]
    started = [event for event in data(frames([CALLED], **kept)) if event["type"] == "content_block_start"]
    assert blocks == [event["content_block"]["type"] for event in started] == ["thinking", "text", "tool_use"]


# Reasoning


@pytest.mark.parametrize(("shown", "thinking"), [("whole", ["let me see"]), ("signed", [""]), ("not", [])])
def test_reasoning_is_shown_as_it_was_asked_for(shown: Thought, thinking: list[str]) -> None:
    events: list[RunEvent] = [ReasoningAdded(1, "let me see"), TextAdded(1, "done"), DONE]
    body = whole(events, shown)
    assert [block["thinking"] for block in body["content"] if block["type"] == "thinking"] == thinking
    assert body["content"][-1] == {"type": "text", "text": "done"}
    final = streamed(frames(events, shown))
    assert [block.to_dict() for block in final.content] == body["content"]


# Streams


def test_a_stream_has_one_life_of_each_block() -> None:
    events: list[RunEvent] = [ReasoningAdded(1, "hm"), TextAdded(1, "a"), TextAdded(2, "b"), DONE]
    kinds = [(event["type"], event.get("index")) for event in data(frames(events))]
    assert kinds == [
        ("message_start", None),
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("message_delta", None),
        ("message_stop", None),
    ]


def test_named_events_are_for_those_who_ask() -> None:
    events: list[RunEvent] = [
        ToolCalling(1, SERVER_CALL),
        ToolReturned(1, SERVER_CALL, "completed", "12:00"),
        ASKED,
    ]
    plain = [event["type"] for event in data(frames(events))]
    named = data(frames(events, named=True))
    assert plain == ["message_start", "message_delta", "message_stop"]
    assert [event["type"] for event in named[1:-2]] == [
        "agentic_tool_call_progress",
        "agentic_tool_call_progress",
        "agentic_tool_approval_required",
    ]
    assert [event.get("phase") for event in named[1:3]] == ["calling", "complete"]
    assert (named[3]["approval_id"], named[3]["session_id"], named[3]["arguments"]) == ("appr_1", "s", {})
    assert streamed(frames(events, named=True)).stop_reason == "pause_turn"


def test_a_failure_in_a_stream_is_an_error_that_the_client_raises() -> None:
    encoder = EventEncoder("req_1", "s", Shown(), named_events=False)
    sent = encoder.opening(Answer("run_1", "s", "m", "1-1")) + PING + encoder.failure(GenerationFailed("it broke"))
    with pytest.raises(anthropic.APIStatusError, match="it broke") as raised:
        streamed(sent)
    assert raised.value.type == "api_error"
    assert raised.value.body == data(sent)[-1]
    assert data(sent)[-1]["request_id"] == "req_1"


def test_a_run_that_failed_ends_its_stream_with_its_error() -> None:
    failed = RunDone(RunStatus.FAILED, StopReason.ERROR, "it broke", "generation_failed")
    encoder = EventEncoder("req_1", "s", Shown(), named_events=False)
    answer = told([failed])
    answer.status = RunStatus.FAILED
    (error,) = data(encoder.closing(answer))
    assert (error["type"], error["error"]["type"], error["error"]["message"]) == ("error", "api_error", "it broke")


# Both

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | WORDS, lambda inner: st.lists(inner, max_size=3)
)


@st.composite
def calls(draw: st.DrawFn, index: int) -> list[RunEvent]:
    arguments = to_json(draw(st.dictionaries(WORDS, VALUES, max_size=3))).decode()
    cuts = sorted(draw(st.lists(st.integers(0, len(arguments)), max_size=4)))
    pieces = [arguments[start:end] for start, end in zip([0, *cuts], [*cuts, len(arguments)], strict=True)]
    started = ClientCallStarted(1, index, f"c{index}", draw(st.sampled_from(["weather", "search"])))
    return [started, *(ClientCallArguments(1, index, piece) for piece in pieces)]


@st.composite
def runs(draw: st.DrawFn) -> list[RunEvent]:
    said = st.builds(TextAdded, st.just(1), WORDS) | st.builds(ReasoningAdded, st.just(1), WORDS)
    events: list[RunEvent] = list(draw(st.lists(said, max_size=6)))
    count = draw(st.integers(0, 3))
    for index in range(count):
        events += draw(calls(index))
    return [*events, CALLED if count else DONE]


@given(events=runs(), shown=st.sampled_from(["whole", "signed", "not"]))
@settings(max_examples=60, deadline=None)
def test_the_official_client_makes_of_a_stream_what_a_whole_answer_says(events: list[RunEvent], shown: Thought) -> None:
    body, final = whole(events, shown), streamed(frames(events, shown))
    assert [block.to_dict() for block in final.content] == body["content"]
    assert (final.id, final.model, final.stop_reason) == (body["id"], body["model"], body["stop_reason"])
    assert {name: body["usage"][name] for name in ("input_tokens", "cache_read_input_tokens", "output_tokens")} == {
        "input_tokens": final.usage.input_tokens,
        "cache_read_input_tokens": final.usage.cache_read_input_tokens,
        "output_tokens": final.usage.output_tokens,
    }

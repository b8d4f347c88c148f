"""Runs as chat completions answers, recorded whole. https://platform.openai.com/docs/api-reference/chat/object"""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import ValidationError

from tenuto.errors import StoreFailed
from tenuto.runtime.dialects.openai.chat.answer import chat_answer
from tenuto.runtime.dialects.openai.chat.chunks import ChunkEncoder
from tenuto.runtime.dialects.openai.chat.shapes import STREAMED, ChatAnswer
from tenuto.runtime.engine.messages import Residency, RoundUsage
from tenuto.runtime.http.sse import one_line
from tenuto.runtime.loop.events import (
    Answer,
    ClientCallArguments,
    ClientCallStarted,
    ReasoningAdded,
    RoundEnded,
    RunDone,
    RunEvent,
    RunPaused,
    ServerCall,
    TextAdded,
    TextLogprob,
    ToolCalling,
    ToolReturned,
    Usage,
)
from tenuto.sessions.items import ToolCall
from tenuto.sessions.records import PauseReason, RunStatus

CREATED = 1_700_000_000.7
ROUNDS = [
    RoundUsage(prompt=50, computed=40, cached=10, new=40, sampled=8, residency=Residency.HOST, first_token_s=0.25),
    RoundUsage(
        prompt=70, computed=13, cached=57, new=12, sampled=4, residency=Residency.DEVICE, miss_reason="diverged"
    ),
]
USAGE = Usage(prompt=63, completion=12, computed=53, cached=10, rounds=ROUNDS)
FIGURES = {"usage": USAGE, "run_usage": Usage(prompt=50, completion=25, computed=120, cached=5)}
USAGE_ON_THE_WIRE = {
    "prompt_tokens": 63,
    "completion_tokens": 12,
    "total_tokens": 75,
    "prompt_tokens_details": {"cached_tokens": 10},
    "tenuto": {
        "computed_tokens": 53,
        "cached_tokens": 10,
        "residency": "host",
        "miss_reason": "diverged",
        "rounds": [
            {
                "prompt_tokens": 50,
                "computed_tokens": 40,
                "cached_tokens": 10,
                "new_tokens": 40,
                "sampled_tokens": 8,
                "residency": "host",
                "miss_reason": None,
                "waited_s": 0.0,
                "first_token_s": 0.25,
                "total_s": 0.0,
            },
            {
                "prompt_tokens": 70,
                "computed_tokens": 13,
                "cached_tokens": 57,
                "new_tokens": 12,
                "sampled_tokens": 4,
                "residency": "device",
                "miss_reason": "diverged",
                "waited_s": 0.0,
                "first_token_s": None,
                "total_s": 0.0,
            },
        ],
        "run": {
            "prompt_tokens": 50,
            "completion_tokens": 25,
            "total_tokens": 75,
            "computed_tokens": 120,
            "cached_tokens": 5,
        },
    },
}
SERVER_CALL = ToolCall("c1", "files__read", '{"path":"a"}', server=True)
CLIENT_CALL = ToolCall("c2", "weather", '{"city":"Ulm"}')


def _answer(**fields: Any) -> Answer:
    return Answer("r1", "s1", "small", "1", **({"status": RunStatus.COMPLETED, "stop_reason": "end"} | fields))


def _as_read(value: ChatAnswer) -> dict[str, Any]:
    """What arrives; the official client's types accept it."""
    arrived: dict[str, Any] = json.loads(value.encode())
    ChatCompletion.model_validate(arrived)
    return arrived


def test_a_plain_answer() -> None:
    assert _as_read(chat_answer(_answer(text="Hello.", **FIGURES), CREATED)) == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "small",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello.", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE_ON_THE_WIRE,
        "session_id": "s1",
        "agentic_tool_calls": [],
        "tenuto": {"run_id": "r1", "status": "completed", "stop_reason": "end"},
    }


def test_server_calls_stand_apart_and_client_calls_end_the_turn() -> None:
    answer = _answer(
        reasoning="hm",
        calls=[SERVER_CALL, CLIENT_CALL],
        server_calls=[ServerCall(0, "files__read", '{"path":"a"}', "text of a", "completed")],
        status=RunStatus.PAUSED,
        stop_reason=None,
        pause=RunPaused(PauseReason.CLIENT_TOOL, 1, (CLIENT_CALL,), expires_at=99.5),
        diagnostics=[{"kind": "broken_call"}],
    )
    read = _as_read(chat_answer(answer, CREATED))
    assert read["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "reasoning_content": "hm",
                "tool_calls": [
                    {
                        "id": "c2",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city":"Ulm"}'},
                    }
                ],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }
    ]
    assert read["agentic_tool_calls"] == [
        {
            "round": 0,
            "name": "files__read",
            "arguments": '{"path":"a"}',
            "result_content": "text of a",
            "status": "completed",
        }
    ]
    assert read["tenuto"] == {
        "run_id": "r1",
        "status": "paused",
        "stop_reason": None,
        "reason": "client_tool",
        "expires_at": 99.5,
        "diagnostics": [{"kind": "broken_call"}],
    }


def test_a_run_that_waits_for_approval_says_what_to_answer() -> None:
    pause = RunPaused(PauseReason.APPROVAL, 0, (SERVER_CALL,), 99.5, pause_id="p1")
    read = _as_read(chat_answer(_answer(status=RunStatus.PAUSED, stop_reason=None, pause=pause), CREATED))
    assert read["choices"][0]["message"] == {"role": "assistant", "content": "", "refusal": None}
    assert read["choices"][0]["finish_reason"] == "stop"
    assert read["tenuto"] == {
        "run_id": "r1",
        "status": "paused",
        "stop_reason": None,
        "reason": "approval",
        "expires_at": 99.5,
        "approval_id": "p1",
    }


@pytest.mark.parametrize(
    ("stop_reason", "calls", "finish"),
    [
        ("end", [], "stop"),
        ("length", [], "length"),
        ("length", [CLIENT_CALL], "length"),
        ("max_tool_rounds", [], "stop"),
        ("repeat", [], "stop"),
        ("cancelled", [], "stop"),
        (None, [CLIENT_CALL], "tool_calls"),
        (None, [SERVER_CALL], "stop"),
    ],
)
def test_finish_reasons(stop_reason: str | None, calls: list[ToolCall], finish: str) -> None:
    read = _as_read(chat_answer(_answer(stop_reason=stop_reason, calls=calls), CREATED))
    assert read["choices"][0]["finish_reason"] == finish


# Streams


def _encoder(*, named_events: bool = False, include_usage: bool = False) -> ChunkEncoder:
    return ChunkEncoder(
        "chatcmpl-1", "r1", "s1", "small", CREATED, named_events=named_events, include_usage=include_usage
    )


def _frames(data: bytes) -> list[tuple[str | None, Any]]:
    """(event, data) of every frame. Data but for [DONE] and errors is a chunk to the official client."""
    found: list[tuple[str | None, Any]] = []
    for block in data.decode().split("\n\n")[:-1]:
        *names, line = block.split("\n")
        text = line.removeprefix("data: ")
        value = text if text == "[DONE]" else json.loads(text)
        if isinstance(value, dict) and "error" not in value:
            ChatCompletionChunk.model_validate(value)
        found.append((names[0].removeprefix("event: ") if names else None, value))
    return found


def _chunk(delta: dict[str, Any], finish: str | None = None, **extra: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "small",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        **extra,
    }


def _stream(encoder: ChunkEncoder, events: list[RunEvent], answer: Answer) -> list[tuple[str | None, Any]]:
    return _frames(b"".join([encoder.opening(), *map(encoder.encode, events), encoder.closing(answer)]))


def test_a_plain_stream() -> None:
    events: list[RunEvent] = [
        ReasoningAdded(0, "hm"),
        TextAdded(0, "Hel"),
        TextAdded(0, "lo."),
        RoundEnded(0, ROUNDS[0]),
    ]
    assert _stream(_encoder(), [*events, RunDone(RunStatus.COMPLETED, "end")], _answer(text="Hello.")) == [
        (None, _chunk({"role": "assistant", "content": ""})),
        (None, _chunk({"reasoning_content": "hm"})),
        (None, _chunk({"content": "Hel"})),
        (None, _chunk({"content": "lo."})),
        (
            None,
            _chunk(
                {},
                "stop",
                session_id="s1",
                agentic_tool_calls=[],
                tenuto={"run_id": "r1", "status": "completed", "stop_reason": "end"},
            ),
        ),
        (None, "[DONE]"),
    ]


def test_usage_comes_last_where_it_is_asked_for() -> None:
    frames = _stream(_encoder(include_usage=True), [TextAdded(0, "a")], _answer(text="a", **FIGURES))
    assert frames[1] == (None, _chunk({"content": "a"}, usage=None))
    assert [data["usage"] for _, data in frames[:-2]] == [None] * 3
    assert frames[-2] == (
        None,
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": "small",
            "choices": [],
            "usage": USAGE_ON_THE_WIRE,
        },
    )


def test_client_calls_stream_their_name_first_and_then_their_arguments() -> None:
    events: list[RunEvent] = [
        ClientCallStarted(0, 0, "c2", "weather"),
        ClientCallArguments(0, 0, '{"city":'),
        ClientCallArguments(0, 0, '"Ulm"}'),
        RunPaused(PauseReason.CLIENT_TOOL, 0, (CLIENT_CALL,), 99.5),
    ]
    frames = _stream(_encoder(), events, _answer(calls=[CLIENT_CALL], stop_reason=None, status=RunStatus.PAUSED))
    started = {"index": 0, "id": "c2", "type": "function", "function": {"name": "weather", "arguments": ""}}
    assert [data["choices"][0]["delta"] for _, data in frames[:-1]] == [
        {"role": "assistant", "content": ""},
        {"tool_calls": [started]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"Ulm"}'}}]},
        {},
    ]
    assert frames[-2][1]["choices"][0]["finish_reason"] == "tool_calls"


SERVER_EVENTS: list[RunEvent] = [
    ToolCalling(0, SERVER_CALL),
    ToolReturned(0, SERVER_CALL, "completed", "text of a"),
    RunPaused(PauseReason.APPROVAL, 1, (SERVER_CALL,), 99.5, pause_id="p1"),
]


def test_server_calls_are_named_events_to_those_who_asked() -> None:
    encoder = _encoder(named_events=True)
    frames = _frames(b"".join(map(encoder.encode, SERVER_EVENTS)))
    envelope = _chunk({}) | {"choices": []}
    data = {"tool_type": "custom", "call_id": "c1", "arguments": '{"path":"a"}'}
    progress = {"type": "agentic_tool_call_progress", "round": 0, "tool_name": "files__read"}
    assert frames == [
        ("agentic_tool_call_progress", envelope | progress | {"phase": "calling", "data": data}),
        (
            "agentic_tool_call_progress",
            envelope | progress | {"phase": "complete", "data": data | {"content": "text of a", "status": "completed"}},
        ),
        (
            "agentic_tool_approval_required",
            envelope
            | {
                "type": "agentic_tool_approval_required",
                "approval_id": "p1",
                "session_id": "s1",
                "round": 1,
                "tool": {"source": "mcp", "kind": "custom", "label": "files__read", "name": "files__read"},
                "arguments": {"path": "a"},
                "expires_at": 99.5,
            },
        ),
    ]


def test_server_calls_show_nothing_to_stock_clients() -> None:
    assert b"".join(map(_encoder().encode, SERVER_EVENTS)) == b""


def test_a_run_that_failed_ends_its_stream_with_an_error() -> None:
    answer = _answer(status=RunStatus.FAILED, error="the step failed", error_code="generation_failed")
    assert _frames(_encoder(include_usage=True).closing(answer)) == [
        (
            None,
            {
                "error": {
                    "message": "the step failed",
                    "type": "server_error",
                    "param": None,
                    "code": "generation_failed",
                    "run_id": "r1",
                }
            },
        ),
        (None, "[DONE]"),
    ]


def test_an_error_beside_the_run_ends_the_stream_too() -> None:
    frames = _frames(_encoder().failure(StoreFailed("the disk is full")))
    assert frames[0][1]["error"]["code"] == "store_failed"
    assert frames[1] == (None, "[DONE]")


def test_a_repeat_whose_pieces_are_gone_gets_the_answer_at_once() -> None:
    answer = _answer(text="Hello.", reasoning="hm", calls=[CLIENT_CALL])
    frames = _stream(_encoder(), [RunDone(RunStatus.COMPLETED, "end")], answer)
    deltas = [data["choices"][0]["delta"] for _, data in frames[:-1]]
    assert deltas[1:3] == [{"reasoning_content": "hm"}, {"content": "Hello."}]
    assert [delta["tool_calls"][0]["function"] for delta in deltas[3:5]] == [
        {"name": "weather", "arguments": ""},
        {"arguments": '{"city":"Ulm"}'},
    ]


def _is_described(data: bytes) -> bool:
    """Whether one of the forms that describe the stream makes the very same bytes of what it reads there."""
    for form in STREAMED:
        try:
            if one_line(form.model_validate_json(data).encode()) == data:
                return True
        except ValidationError:
            continue
    return False


LIKELY = TextLogprob("word", b"word", -0.5, (("word", b"word", -0.5), ("\ufffd", b"\xe2", float("-inf"))))
ALL_EVENTS: list[RunEvent] = [
    ReasoningAdded(0, "h\u2028m"),
    TextAdded(0, "Hel\u0085 \u00e9", (LIKELY,)),
    *SERVER_EVENTS,
    ClientCallStarted(1, 0, "c2", "weather"),
    ClientCallArguments(1, 0, '{"city":"Ulm"}'),
    RunPaused(PauseReason.APPROVAL, 1, (SERVER_CALL,), 1_700_003_600.5, "appr_1"),
    RunPaused(PauseReason.APPROVAL, 1, (replace(SERVER_CALL, arguments="{no JSON"),), 1_700_003_600.5, "appr_1"),
]


@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize("include_usage", [False, True])
def test_every_chunk_is_what_its_form_makes_of_it(include_usage: bool, logprobs: bool) -> None:
    """Most chunks are written from templates: the forms that describe them must lose nothing and add nothing."""
    encoder = ChunkEncoder(
        "chatcmpl-1", "r1", "s1", "100%d", CREATED, named_events=True, include_usage=include_usage, logprobs=logprobs
    )
    answer = _answer(text="Hello.", server_calls=[ServerCall(0, "x", "{}", "y", "completed")], **FIGURES)
    frames = b"".join([encoder.opening(), *map(encoder.encode, ALL_EVENTS), encoder.closing(answer)])
    data = [line.removeprefix(b"data: ") for line in frames.split(b"\n") if line.startswith(b"data: {")]
    assert len(data) == len(ALL_EVENTS) + 2 + include_usage
    assert [one for one in data if not _is_described(one)] == []


@given(st.lists(st.text(min_size=1), min_size=1))
def test_streamed_text_is_the_whole_text(pieces: list[str]) -> None:
    answer = _answer(text="".join(pieces))
    frames = _stream(_encoder(), [TextAdded(0, piece) for piece in pieces], answer)
    streamed = "".join(data["choices"][0]["delta"].get("content", "") for _, data in frames[:-1])
    assert streamed == chat_answer(answer, CREATED).choices[0].message.content

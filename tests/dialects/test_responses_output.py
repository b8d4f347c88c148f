"""Runs as responses: whole, and as the events that tell of them.

https://platform.openai.com/docs/api-reference/responses-streaming
"""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter, ValidationError

from tenuto.errors import StoreFailed, TenutoError
from tenuto.runtime.dialects.openai.responses.answer import Head
from tenuto.runtime.dialects.openai.responses.asked import Asked
from tenuto.runtime.dialects.openai.responses.encoder import ResponseEncoder
from tenuto.runtime.dialects.openai.responses.events import STREAMED
from tenuto.runtime.dialects.openai.responses.request import ResponseRequest, read_responses
from tenuto.runtime.dialects.openai.responses.shapes import ResponseAnswer
from tenuto.runtime.loop import told
from tenuto.runtime.loop.events import (
    Answer,
    ClientCallArguments,
    ClientCallStarted,
    ReasoningAdded,
    RoundEnded,
    RoundUsage,
    RunDone,
    RunEvent,
    RunPaused,
    TextAdded,
    TextLogprob,
    ToolCalling,
    ToolReturned,
)
from tenuto.sessions.items import ToolCall, ToolSpec
from tenuto.sessions.principal import Principal
from tenuto.sessions.records import PauseReason, RunStatus
from tenuto.tools.registry import Exported
from tenuto.tools.spec import Tool

EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
READ = Exported("files__read", "files", Tool(ToolSpec("read", "Reads.", {"type": "object"})), ToolSpec("", "", {}))
LISTED = {"files": [READ]}
FUNCTION = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
CUSTOM = {"type": "custom", "name": "patch"}
SPACE = {"type": "namespace", "name": "git", "description": "", "tools": [{"type": "function", "name": "log"}]}
FILES = {"type": "mcp", "server_label": "files"}
CLIENTS = [FUNCTION, CUSTOM, SPACE]
SERVER = ToolCall("call_s", "files__read", '{"path": "a"}', server=True)
APPROVAL = RunPaused(PauseReason.APPROVAL, 1, (SERVER,), 0.0, pause_id="appr_1")
WAITS = RunPaused(PauseReason.CLIENT_TOOL, 1, (), 0.0)
ENDS = RunDone(RunStatus.COMPLETED, "end")
ENDED_AT = 1_700_000_001.0


def encoder(
    tools: Any = None, *, streamed: Any = True, after: Any = None, again: Any = False, **body: Any
) -> ResponseEncoder:
    """`again`: what was asked has been kept and is read again."""
    wanted = {"input": "hi", "temperature": 0.7, **({} if tools is None else {"tools": tools}), **body}
    read = read_responses(json.dumps(wanted).encode(), {}, principal=Principal("ada"), listed=LISTED)
    assert isinstance(read, ResponseRequest)
    asked = read.asked
    if again:
        asked = Asked.of_json(json.loads(json.dumps(asked.to_json())))
    head = Head("resp_ab1", asked, "small", 1_700_000_000.7, stored=True)
    return ResponseEncoder(head, LISTED, streamed=streamed, after=after)


def answer(events: list[RunEvent], status: RunStatus | None = None, **fields: Any) -> Answer:
    """The answer as the loop gathers it, as far as a response looks at it."""
    last = events[-1] if events else ENDS
    if isinstance(last, RunPaused):
        fields |= {"pause": last, "status": RunStatus.PAUSED}
    elif isinstance(last, RunDone):
        fields |= {"stop_reason": last.stop_reason, "status": last.status}
    made = Answer("run_1", "s", "small", "ab-1", **fields)
    made.status = status or made.status
    return made


def streamed(encoder: ResponseEncoder, events: list[RunEvent], ended: Answer) -> list[Any]:
    return read(b"".join([encoder.opening(), *map(encoder.take, events), encoder.closing(ended, ENDED_AT)]))


def read(frames: bytes) -> list[Any]:
    found = []
    for block in frames.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def whole(encoder: ResponseEncoder, events: list[RunEvent], ended: Answer) -> Any:
    assert b"".join([encoder.opening(), *map(encoder.take, events)]) == b""
    return json.loads(encoder.whole(ended, ENDED_AT).encode())


def outputs(tools: Any, *events: RunEvent, **fields: Any) -> Any:
    return whole(encoder(tools, streamed=False), [*events], answer([*events], **fields))["output"]


def kinds(items: Any) -> list[tuple[str, str | None]]:
    return [(item["type"], item.get("status")) for item in items]


# Whole


def test_the_items_stand_in_the_order_in_which_they_came() -> None:
    found = outputs(
        [FUNCTION],
        ReasoningAdded(1, "hm"),
        TextAdded(1, "Let "),
        TextAdded(1, "me see."),
        ClientCallStarted(1, 0, "call_1", "weather"),
        ClientCallArguments(1, 0, '{"city":'),
        ClientCallArguments(1, 0, ' "Ulm"}'),
        RoundEnded(1, RoundUsage()),
        WAITS,
    )
    assert found == [
        {
            "id": "rs_ab10000",
            "type": "reasoning",
            "status": "completed",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "hm"}],
        },
        {
            "id": "msg_ab10001",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []}],
        },
        {
            "id": "fc_ab10002",
            "type": "function_call",
            "status": "completed",
            "call_id": "call_1",
            "name": "weather",
            "arguments": '{"city": "Ulm"}',
        },
    ]


def test_calls_have_the_names_that_their_client_gave() -> None:
    patch, log = outputs(
        CLIENTS,
        ClientCallStarted(1, 0, "c1", "patch"),
        ClientCallArguments(1, 0, '{"input": "*** Begin\\n"}'),
        ClientCallStarted(1, 1, "c2", "git__log"),
        ClientCallArguments(1, 1, "{}"),
        WAITS,
    )
    assert (patch["type"], patch["name"], patch["input"]) == ("custom_tool_call", "patch", "*** Begin\n")
    assert (log["type"], log["name"], log["namespace"], log["arguments"]) == ("function_call", "log", "git", "{}")


def test_a_servers_call_stands_between_the_texts_of_its_rounds() -> None:
    listed, first, made, second = outputs(
        [FILES],
        TextAdded(1, "Let me see."),
        RoundEnded(1, RoundUsage()),
        ToolCalling(1, SERVER),
        ToolReturned(1, SERVER, "completed", "text"),
        TextAdded(2, "It says text."),
        ENDS,
    )
    assert listed["tools"] == [
        {
            "name": "read",
            "description": "Reads.",
            "input_schema": {"type": "object"},
            "annotations": {"readOnlyHint": False, "idempotentHint": False},
        }
    ]
    assert made == {
        "id": "mcp_ab10002",
        "type": "mcp_call",
        "status": "completed",
        "server_label": "files",
        "name": "read",
        "arguments": '{"path": "a"}',
        "approval_request_id": None,
        "output": "text",
        "error": None,
    }
    assert [one["content"][0]["text"] for one in (first, second)] == ["Let me see.", "It says text."]


def test_servers_tools_are_listed_where_the_client_does_not_have_the_list() -> None:
    has = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "files", "tools": []}
    body = {"input": [{"role": "user", "content": "hi"}, has]}
    assert whole(encoder([FILES], streamed=False, **body), [ENDS], answer([ENDS]))["output"] == []


def test_a_denied_call_has_an_error_and_no_output() -> None:
    _, made = outputs([FILES], ToolReturned(1, SERVER, "denied", "No."), ENDS)
    assert (made["status"], made["output"]) == ("failed", None)
    assert made["error"] == {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "No."}]}


def test_a_pause_for_an_approval_is_an_item_and_the_response_is_completed() -> None:
    ended = answer([APPROVAL])
    found = whole(encoder([FILES], streamed=False), [APPROVAL], ended)
    assert found["status"] == "completed"
    assert found["output"][-1] == {
        "id": "mcpr_1",
        "type": "mcp_approval_request",
        "server_label": "files",
        "name": "read",
        "arguments": '{"path": "a"}',
    }
    assert (found["tenuto"]["reason"], found["tenuto"]["approval_id"]) == ("approval", "appr_1")


def test_the_clients_calls_are_not_told_while_a_person_is_asked() -> None:
    """Their results must not come yet: they are told again when the run waits for them."""
    started = ClientCallStarted(1, 0, "c1", "weather")
    asked = outputs([FUNCTION, FILES], started, APPROVAL)
    assert kinds(asked)[1:] == [("mcp_approval_request", None)]
    waits = outputs([FUNCTION, FILES], started, WAITS)
    assert kinds(waits)[1:] == [("function_call", "completed")]


def test_the_call_that_was_approved_names_its_request() -> None:
    approved = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    made = ToolCalling(1, SERVER), ToolReturned(1, SERVER, "completed", "text")
    found = whole(encoder([FILES], streamed=False, input=[approved]), [*made, *made, ENDS], answer([ENDS]))["output"]
    assert [one["approval_request_id"] for one in found if one["type"] == "mcp_call"] == ["mcpr_1", None]


@pytest.mark.parametrize(
    ("status", "stop_reason", "told", "reason"),
    [
        (RunStatus.COMPLETED, "end", "completed", None),
        (RunStatus.COMPLETED, "max_tool_rounds", "completed", None),
        (RunStatus.INCOMPLETE, "length", "incomplete", "max_output_tokens"),
        (RunStatus.CANCELLED, "cancelled", "cancelled", None),
        (RunStatus.INTERRUPTED, "interrupted", "incomplete", "interrupted"),
        (RunStatus.EXPIRED, "expired", "incomplete", "expired"),
    ],
)
def test_every_end_has_its_word(status: RunStatus, stop_reason: str, told: str, reason: str | None) -> None:
    done = RunDone(status, stop_reason)
    found = whole(encoder(streamed=False), [TextAdded(1, "a"), done], answer([done]))
    assert (found["status"], found["tenuto"]["stop_reason"]) == (told, stop_reason)
    assert (found["incomplete_details"] or {}).get("reason") == reason
    assert found["output"][0]["status"] == ("completed" if told == "completed" else "incomplete")


def test_a_call_that_the_limit_cut_is_not_to_be_made() -> None:
    done = RunDone(RunStatus.INCOMPLETE, "length")
    found = outputs([FUNCTION], ClientCallStarted(1, 0, "c", "weather"), ClientCallArguments(1, 0, '{"ci'), done)
    assert kinds(found) == [("function_call", "incomplete")]


def test_the_request_comes_back_with_the_fields_that_strict_clients_read() -> None:
    body = {"metadata": {"a": "b"}, "text": {"verbosity": "low"}, "reasoning": {"effort": "low"}, "instructions": "x"}
    found = whole(encoder([FUNCTION], streamed=False, **body), [ENDS], answer([ENDS]))
    assert found["tools"] == [{"description": None, "strict": None, **FUNCTION}]
    assert (found["metadata"], found["instructions"], found["temperature"]) == ({"a": "b"}, "x", 0.7)
    assert found["text"] == {"format": {"type": "text"}, "verbosity": "low"}
    assert found["reasoning"] == {"effort": "low", "summary": None}
    assert set(found) >= {"parallel_tool_calls", "tool_choice", "error", "incomplete_details", "usage", "truncation"}


# Streams


def test_logprobs_are_streamed_with_their_text() -> None:
    text = TextAdded(1, "a", (TextLogprob("a", b"a", -0.5),))
    events = streamed(encoder(include=["message.output_text.logprobs"]), [text, ENDS], answer([ENDS]))
    (delta,) = [one for one in events if one["type"] == "response.output_text.delta"]
    assert delta["logprobs"] == [{"token": "a", "bytes": [97], "logprob": -0.5, "top_logprobs": []}]
    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == delta["logprobs"]


def test_a_keep_alive_is_exactly_an_event_of_that_type_and_takes_no_number() -> None:
    one = encoder()
    before = one.opening()
    keep_alive = one.keep_alive()
    assert keep_alive == b'event: keepalive\ndata: {"type":"keepalive","sequence_number":1}\n\n'
    sent = read(before + keep_alive + one.closing(answer([ENDS]), ENDED_AT))
    assert [event["sequence_number"] for event in sent] == [0, 1, 1, 2]


def test_a_keep_alive_before_what_is_new_lets_a_client_go_on_where_it_was() -> None:
    one = encoder(after=7)
    assert one.opening() == b""
    assert b'"sequence_number":7}' in one.keep_alive()


@pytest.mark.parametrize(
    ("ours", "told"),
    [("context_too_long", "context_length_exceeded"), ("overloaded", "rate_limit_exceeded"), ("x", "server_error")],
)
def test_a_failure_ends_the_stream_as_a_failed_response(ours: str, told: str) -> None:
    done = RunDone(RunStatus.FAILED, "error", "it broke", ours)
    ended = answer([done], error="it broke", error_code=ours)
    *_, last = streamed(encoder(), [TextAdded(1, "a"), done], ended)
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"] == {"code": told, "message": "it broke"}


def test_whatever_else_fails_ends_the_stream_too() -> None:
    one = encoder()
    one.opening()
    one.take(TextAdded(1, "a"))
    frames = one.failure(StoreFailed("gone")).decode()
    last = json.loads(frames.split("\n\n")[-2].partition("data: ")[2])
    assert last["type"] == "response.failed"
    assert kinds(last["response"]["output"]) == [("message", "incomplete")]


# Whatever happens

SPOKEN = st.builds(TextAdded, st.just(1), st.text(min_size=1, max_size=5))
THOUGHT = st.builds(ReasoningAdded, st.just(1), st.text(min_size=1, max_size=5))


@st.composite
def runs(draw: st.DrawFn) -> tuple[Any, list[RunEvent]]:
    """The tools of a request, and the events of a leg as the loop may tell them."""
    choices: list[Any] = [None, [], CLIENTS, [FILES], [*CLIENTS, FILES]]
    tools = draw(st.sampled_from(choices))
    events: list[RunEvent] = []
    with_servers = tools is None or FILES in tools
    with_clients = bool(tools) and FUNCTION in tools
    rounds = draw(st.integers(1, 3))
    for number in range(1, rounds + 1):
        said = draw(st.lists(SPOKEN | THOUGHT, max_size=4))
        events += [type(one)(number, one.text) for one in said]
        last = number == rounds
        if last and with_clients and draw(st.booleans()):
            for index in range(draw(st.integers(1, 3))):
                events.append(
                    ClientCallStarted(number, index, f"c{index}", draw(st.sampled_from(["weather", "patch"])))
                )
                events += [ClientCallArguments(number, index, one) for one in draw(st.lists(st.text(max_size=4)))]
            events.append(RoundEnded(number, RoundUsage()))
            ends: list[RunEvent] = [WAITS, RunDone(RunStatus.INCOMPLETE, "length")]
            ends += [APPROVAL] if with_servers else []
            return tools, [*events, draw(st.sampled_from(ends))]
        events.append(RoundEnded(number, RoundUsage()))
        if not last:
            calls = [
                ToolCall(f"s{number}{at}", "files__read", "{}", server=True) for at in range(draw(st.integers(1, 2)))
            ]
            events += [ToolCalling(number, one) for one in calls]
            order = draw(st.permutations(calls))
            status = st.sampled_from(["completed", "failed", "denied"])
            events += [ToolReturned(number, one, draw(status), draw(st.text(max_size=4))) for one in order]
    over: list[RunEvent] = [ENDS, RunDone(RunStatus.CANCELLED, "cancelled"), *([APPROVAL] if with_servers else [])]
    return tools, [*events, draw(st.sampled_from(over))]


@settings(deadline=None)  # the first one makes the validators of the official types
@given(runs())
def test_what_is_streamed_is_what_is_sent_whole(run: tuple[Any, list[RunEvent]]) -> None:
    tools, events = run
    ended = answer(events)
    sent = streamed(encoder(tools), events, ended)
    at_once = whole(encoder(tools, streamed=False), events, ended)
    assert [one["sequence_number"] for one in sent] == [*range(len(sent))]
    assert sent[-1]["response"] == at_once
    Response.model_validate(at_once)
    lifecycles = [one["type"] for one in sent if "response" in one]
    assert lifecycles[:2] == ["response.created", "response.in_progress"]
    assert len(lifecycles) == 3
    done = {one["output_index"]: one["item"] for one in sent if one["type"] == "response.output_item.done"}
    assert [done[index] for index in sorted(done)] == at_once["output"], "each is told once, as it stands at the end"
    added = [one["output_index"] for one in sent if one["type"] == "response.output_item.added"]
    assert added == [*range(len(at_once["output"]))]


@settings(deadline=None)  # the first one makes the validators of the official types
@given(runs(), st.integers(0, 30))
def test_a_response_that_was_kept_tells_the_same_events_from_any_of_them_on(
    run: tuple[Any, list[RunEvent]], after: int
) -> None:
    tools, events = run
    first = streamed(encoder(tools), events, answer(events))
    kept = [event for piece in (events[:5], events[5:]) for event in told.load(told.dump(piece))]
    assert kept == events
    again = streamed(encoder(tools, again=True, after=after), kept, answer(kept))
    assert again == first[after + 1 :]


@settings(deadline=None)  # the first one makes the validators of the official types
@given(runs())
def test_the_pieces_of_a_stream_are_the_whole(run: tuple[Any, list[RunEvent]]) -> None:
    """As the official client gathers them, which checks what it is told."""
    tools, events = run
    sent = streamed(encoder(tools), events, answer(events))
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=[], text_format=omit)
    pieces: dict[tuple[int, str], str] = {}
    for event in sent:
        typed = EVENTS.validate_python(event)
        state.handle_event(typed)
        if event["type"].endswith(".delta"):
            key = event["output_index"], event["type"].removesuffix(".delta")
            pieces[key] = pieces.get(key, "") + event["delta"]
    for event in sent:
        key = event.get("output_index", -1), event["type"].removesuffix(".done")
        if key in pieces:
            assert pieces[key] == next(event[name] for name in ("text", "arguments", "input") if name in event)


def test_the_shapes_describe_what_is_sent() -> None:
    events: list[RunEvent] = [
        TextAdded(1, "a"),
        ToolCalling(1, SERVER),
        ToolReturned(1, SERVER, "completed", "t"),
        ENDS,
    ]
    sent = streamed(encoder([FILES]), events, answer([ENDS]))
    for event in sent:
        assert any(_fits(shape, event) for shape in STREAMED), event["type"]
    ResponseAnswer.model_validate(sent[-1]["response"])


def _fits(shape: Any, event: Any) -> bool:
    try:
        return bool(json.loads(shape.model_validate(event).encode()) == event)
    except ValidationError:
        return False


def test_an_error_of_ours_is_told_in_words() -> None:
    one = encoder()
    one.opening()
    assert b"it broke" in one.failure(TenutoError("it broke"))

"""Runs as lines of JSON: what a whole answer says, what a stream says, and that both say the same."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import GenerationFailed
from tenuto.runtime.dialects.ollama.lines import CHAT, GENERATE, Form, Lines
from tenuto.runtime.loop.answer import gather
from tenuto.runtime.loop.events import (
    Answer,
    ClientCallArguments,
    ClientCallStarted,
    ReasoningAdded,
    RoundUsage,
    RunDone,
    RunEvent,
    RunPaused,
    StopReason,
    TextAdded,
    TextLogprob,
    ToolCalling,
    Usage,
)
from tenuto.sessions.items import ToolCall
from tenuto.sessions.records import PauseReason, RunStatus

DONE = RunDone(RunStatus.COMPLETED, StopReason.END)
CALL = ToolCall("c1", "weather", '{"city": "Ulm"}')
CALLED = RunPaused(PauseReason.CLIENT_TOOL, 1, (CALL,), 0.0)
HEAD = {"model": "m", "created_at": "1970-01-01T00:00:01.500000Z"}


def told(events: Sequence[RunEvent], **known: Any) -> Answer:
    """The answer of a run that has told these."""
    took = RoundUsage(prompt=20, computed=8, cached=12, sampled=5, waited_s=0.25, first_token_s=0.75, total_s=1.75)
    figures = Usage(prompt=20, completion=5, computed=8, cached=12, rounds=[took])
    answer = Answer("run_1", "s", "m", "1-1", usage=figures, run_usage=figures, **known)
    for event in events:
        gather(answer, event)
    return answer


def lines(form: Form = CHAT, *, shows_thinking: bool = True) -> Lines:
    return Lines(form, "m", 1.5, shows_thinking=shows_thinking)


def whole(events: Sequence[RunEvent], form: Form = CHAT, **known: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(lines(form).whole(told(events, **known), 2.0).encode())
    return body


def streamed(events: Sequence[RunEvent], form: Form = CHAT, *, shows_thinking: bool = True) -> list[dict[str, Any]]:
    encoder = lines(form, shows_thinking=shows_thinking)
    data = b"".join(map(encoder.encode, events)) + encoder.closing(told(events), 2.0)
    return [json.loads(line) for line in data.decode().splitlines()]


def test_a_chats_stream_is_a_line_for_each_piece_and_one_for_the_end() -> None:
    thought, said, last = streamed([ReasoningAdded(1, "hm"), TextAdded(1, "a\u2028b"), DONE])
    assert thought == {**HEAD, "message": {"role": "assistant", "content": "", "thinking": "hm"}, "done": False}
    assert said == {**HEAD, "message": {"role": "assistant", "content": "a\u2028b"}, "done": False}
    tenuto = last.pop("tenuto")
    assert last == {
        **HEAD,
        "message": {"role": "assistant", "content": ""},
        "done": True,
        "done_reason": "stop",
        "total_duration": 2_000_000_000,
        "load_duration": 250_000_000,
        "prompt_eval_count": 20,
        "prompt_eval_duration": 500_000_000,
        "eval_count": 5,
        "eval_duration": 1_000_000_000,
    }
    assert (tenuto["session_id"], tenuto["run_id"], tenuto["usage"]["computed_tokens"]) == ("s", "run_1", 8)


def test_a_prompts_stream_has_its_pieces_beside_each_other() -> None:
    thought, said, last = streamed([ReasoningAdded(1, "hm"), TextAdded(1, "ab"), DONE], GENERATE)
    assert thought == {**HEAD, "response": "", "thinking": "hm", "done": False}
    assert said == {**HEAD, "response": "ab", "done": False}
    assert (last["response"], last["done"], "thinking" in last) == ("", True, False)


words = st.text(min_size=1)
events = st.lists(
    st.one_of(st.builds(TextAdded, st.just(1), words), st.builds(ReasoningAdded, st.just(1), words)), max_size=8
)


@given(events, st.booleans())
def test_the_lines_of_a_stream_together_are_the_whole_answer(told: list[RunEvent], is_chat: bool) -> None:
    form = CHAT if is_chat else GENERATE
    found = streamed([*told, DONE], form)
    one = whole([*told, DONE], form)
    places = [line["message"] if is_chat else line for line in [*found, one]]
    text = "content" if is_chat else "response"
    assert "".join(place[text] for place in places[:-1]) == places[-1][text]
    assert "".join(place.get("thinking", "") for place in places[:-1]) == places[-1].get("thinking", "")
    assert [line["done"] for line in found] == [False] * (len(found) - 1) + [True]


def test_a_line_that_comes_by_the_token_is_what_its_shape_makes_of_it() -> None:
    likely = TextLogprob("a", b"a", float("-inf"), (("b", b"b", -1.0),))
    for form in (CHAT, GENERATE):
        made = lines(form).text("a", (likely,))
        read = form.shape.model_validate_json(made)
        assert read.encode() + b"\n" == made
        assert json.loads(made)["logprobs"] == [
            {
                "token": "a",
                "logprob": -9999.0,
                "bytes": [97],
                "top_logprobs": [{"token": "b", "logprob": -1.0, "bytes": [98]}],
            }
        ]


def test_calls_are_told_at_the_end_with_their_arguments_as_objects() -> None:
    started: list[RunEvent] = [ClientCallStarted(1, 0, "c1", "weather"), ClientCallArguments(1, 0, '{"city": "Ulm"}')]
    (last,) = streamed([*started, CALLED])
    function = {"index": 0, "name": "weather", "arguments": {"city": "Ulm"}}
    assert last["message"]["tool_calls"] == [{"id": "c1", "function": function}]
    assert (last["done_reason"], last["tenuto"]["reason"]) == ("stop", "client_tool")
    first, end = streamed([TextAdded(1, "Let me see."), *started, CALLED])
    assert (first["message"]["content"], end["message"]["content"]) == ("Let me see.", "")
    assert end["message"]["tool_calls"] == last["message"]["tool_calls"]


def test_calls_of_the_server_stand_beside_the_answer() -> None:
    call = ToolCall("c9", "clock__now", "{}", server=True)
    assert "tool_calls" not in whole([ToolCalling(1, call), TextAdded(2, "Nine."), DONE])["message"]


def test_reasoning_that_nobody_wants_to_see_is_left_out() -> None:
    pieces: list[RunEvent] = [ReasoningAdded(1, "hm"), TextAdded(1, "ab"), DONE]
    assert len(streamed(pieces, shows_thinking=False)) == 2
    assert "thinking" not in json.loads(lines(shows_thinking=False).whole(told(pieces), 0).encode())["message"]


def test_an_answer_that_was_cut_says_so() -> None:
    assert whole([TextAdded(1, "ab"), RunDone(RunStatus.COMPLETED, StopReason.LENGTH)])["done_reason"] == "length"


def test_an_answer_whose_pieces_are_gone_comes_at_once() -> None:
    answer = told([TextAdded(1, "ab"), DONE])
    body = json.loads(lines().closing(answer, 1.0))
    assert (body["message"]["content"], body["done"]) == ("ab", True)


@pytest.mark.parametrize("form", [CHAT, GENERATE])
def test_what_goes_wrong_is_the_last_line(form: Form) -> None:
    failed = told([TextAdded(1, "ab")], status=RunStatus.FAILED, error="it broke", error_code="generation_failed")
    body = json.loads(lines(form).closing(failed, 1.0))
    assert body == {"error": "it broke", "code": "generation_failed", "param": None, "run_id": "run_1"}
    assert json.loads(lines(form).failure(GenerationFailed("it broke")))["error"] == "it broke"


def test_a_sign_of_life_is_a_line_that_every_client_reads() -> None:
    assert json.loads(lines().text("")) == {**HEAD, "message": {"role": "assistant", "content": ""}, "done": False}

"""A run's events on the wire: what they are called, and that what describes them is what they are."""

import dataclasses
import json
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tenuto.runtime.http.sse import one_line
from tenuto.runtime.loop import events as loop
from tenuto.runtime.schema.conversion import encoded, told_event
from tenuto.runtime.schema.events import EVENTS, VERSION, Message, ToldAgain, read_event

RECORDED = Path(__file__).with_name(f"events_v{VERSION}.json")
NAMES = {
    loop.TextAdded: "text_added",
    loop.ReasoningAdded: "reasoning_added",
    loop.ClientCallStarted: "client_call_started",
    loop.ClientCallArguments: "client_call_arguments",
    loop.ToolCalling: "tool_calling",
    loop.ToolReturned: "tool_returned",
    loop.ToolTold: "tool_told",
    loop.ServerSampled: "server_sampled",
    loop.RoundEnded: "round_ended",
    loop.RunPaused: "run_paused",
    loop.RunDone: "run_done",
}

numbers = st.integers(0, 2**40)
texts = st.text()
times = st.floats(allow_nan=False, allow_infinity=False)
logprob = st.builds(
    loop.TextLogprob,
    texts,
    st.binary(max_size=6),
    st.floats(max_value=0, allow_nan=False),
    st.lists(st.tuples(texts, st.binary(max_size=6), st.floats(max_value=0, allow_nan=False)), max_size=2).map(tuple),
)
events: st.SearchStrategy[loop.RunEvent] = st.one_of(
    st.builds(loop.TextAdded, numbers, texts, st.lists(logprob, max_size=2).map(tuple)),
    st.builds(loop.RoundEnded, usage=st.builds(loop.RoundUsage, waited_s=times, first_token_s=times, total_s=times)),
    st.builds(loop.RunPaused, expires_at=times),
    *(st.from_type(kind) for kind in NAMES if kind not in (loop.TextAdded, loop.RoundEnded, loop.RunPaused)),
)


def schema() -> Any:
    """The form of everything that a stream of events may hold, without the prose that goes with it."""
    return _without_prose(TypeAdapter(Message).json_schema(mode="serialization"))


def _without_prose(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_prose(part) for key, part in value.items() if not _is_prose(key, part)}
    return [_without_prose(part) for part in value] if isinstance(value, list) else value


def _is_prose(key: str, part: Any) -> bool:
    return key == "description" and isinstance(part, str)  # a property of that name would be a schema


def test_the_version_stays_as_it_was_recorded() -> None:
    """Another name or meaning is another version. What joins is recorded: python -m tests.runtime.schema.test_events"""
    assert schema() == json.loads(RECORDED.read_text())


def test_every_event_of_the_loop_has_its_name_whatever_its_class_is_called() -> None:
    assert set(NAMES) == set(get_args(loop.RunEvent))
    assert set(EVENTS) == set(get_args(Message))


@given(st.integers(1, 2**40), events)
def test_an_event_is_told_as_it_is_described_and_read_back(number: int, event: loop.RunEvent) -> None:
    data = encoded(number, event)
    told = told_event(number, event)
    assert data == told.encode()
    assert (told.type, told.number) == (NAMES[type(event)], number)
    assert read_event(json.loads(one_line(data))) == told


@given(events)
def test_nothing_of_an_event_is_left_out(event: loop.RunEvent) -> None:
    fields = {field.name for field in dataclasses.fields(event)}
    assert set(json.loads(encoded(1, event))) == fields | {"type", "number"}


def test_a_token_that_is_a_part_of_a_character_is_told_by_its_bytes() -> None:
    broken = loop.TextAdded(1, "", (loop.TextLogprob("�", b"\xe2\x82", -0.5, (("x", b"\xff", float("-inf")),)),))
    (logprob,) = json.loads(encoded(1, broken))["logprobs"]
    assert (logprob["data"], logprob["top"]) == ([0xE2, 0x82], [["x", [0xFF], None]])


@pytest.mark.parametrize("value", [{"type": "from_the_future", "number": 1}, {"number": 1}, {"error": {}}, []])
def test_what_this_version_does_not_know_is_no_event(value: Any) -> None:
    assert read_event(value) is None


def test_a_field_that_has_joined_since_is_no_trouble() -> None:
    assert read_event({"type": "told_again", "after": 3, "later": 1}) == ToldAgain(after=3)


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(schema(), indent=1) + "\n")

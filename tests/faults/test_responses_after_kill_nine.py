"""Responses in the background after kill -9: they go on where they stood, and what was read of them stays true."""

import json
from itertools import islice
from typing import Any

import httpx
import openai
import pytest

from tests.conftest import Start

pytestmark = pytest.mark.slow

TICKS = " ".join(f"tick{number}" for number in range(40))
RULES = [
    {"user": "slow", "text": TICKS, "delay_ms": 20},
    {"user": "weather", "calls": [{"name": "weather", "arguments": {"city": "Ulm"}}]},
    {"tool": "sun", "text": "Take a hat."},
]
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


def begun(http: httpx.Client, said: Any, **body: Any) -> str:
    id: str = (
        http.post("/v1/responses", json={"input": said, "background": True, **body}).raise_for_status().json()["id"]
    )
    return id


def events(http: httpx.Client, id: str, most: int | None = None) -> list[Any]:
    found: list[Any] = []
    with http.stream("GET", f"/v1/responses/{id}", params={"stream": "true"}) as stream:
        for line in stream.iter_lines():
            found += [json.loads(line[6:])] if line.startswith("data: ") else []
            if len(found) == most:
                break
    return [event for event in found if event["type"] != "keepalive"]


def test_what_was_being_said_goes_on_and_each_event_comes_once(start: Start) -> None:
    """The official client reads the stream on both sides of two kills, from where it stood each time."""
    server = start(rules=RULES)
    said: list[Any] = []
    with server.client() as http:
        id = begun(http, "slow")
    for most in (30, 60, None):
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            after = {"starting_after": said[-1].sequence_number} if said else {}
            with client.responses.retrieve(id, stream=True, **after) as stream:
                said += islice((event for event in stream if event.type != "keepalive"), most)
        if most is not None:
            server.kill()
            server.start()
    assert [event.sequence_number for event in said] == [*range(len(said))]
    last = said[-1]
    assert (last.type, last.response.status) == ("response.completed", "completed")
    assert "".join(event.delta for event in said if event.type == "response.output_text.delta") == TICKS
    with server.client() as http:
        again = http.get(f"/v1/responses/{id}").json()
        assert again["output"][0]["content"][0]["text"] == TICKS == last.response.output_text
        assert [event["sequence_number"] for event in events(http, id)] == [*range(len(said))]
        assert again["usage"]["output_tokens"] == len(TICKS) + 1
        (text,) = [item["text"] for item in session_of(http, again) if item["kind"] == "assistant"]
        assert text == TICKS
        after_it = http.post("/v1/responses", json={"input": "hi", "previous_response_id": id}).json()
        (round,) = after_it["usage"]["tenuto"]["rounds"]
        assert round["computed_tokens"] <= round["new_tokens"] + 1


def test_a_server_that_is_stopped_in_order_goes_on_too(start: Start) -> None:
    server = start("--shutdown-s", "1", rules=RULES)
    with server.client() as http:
        id = begun(http, "slow")
        seen = events(http, id, 30)
        assert server.stop() == 0
    server.start()
    with server.client() as http:
        told = events(http, id)
    assert told[: len(seen)] == seen
    assert told[-1]["response"]["status"] == "completed"
    assert told[-1]["response"]["output"][0]["content"][0]["text"] == TICKS


def test_a_grammar_goes_on_where_it_stood(start: Start, embedded_model: str) -> None:
    server = start(model=embedded_model)
    numbers = {
        "type": "array",
        "items": {"type": "integer", "minimum": 0, "maximum": 9},
        "minItems": 150,
        "maxItems": 150,
    }
    schema = {"type": "object", "properties": {"n": numbers}, "required": ["n"], "additionalProperties": False}
    form = {"format": {"type": "json_schema", "name": "numbers", "schema": schema}}
    with server.client() as http:
        id = begun(http, "Give me numbers.", text=form, temperature=0.9, tools=[])
        seen = events(http, id, 20)
    server.kill()
    server.start()
    with server.client() as http:
        told = events(http, id)
        assert told[: len(seen)] == seen
        response = told[-1]["response"]
        assert response["status"] == "completed"
        assert len(json.loads(response["output"][0]["content"][0]["text"])["n"]) == 150


def test_what_waits_goes_on_waiting(start: Start) -> None:
    server = start(rules=RULES)
    with server.client() as http:
        waits = begun(http, "weather", tools=[WEATHER])
        asked = events(http, waits)[-1]["response"]
    server.kill()
    server.start()
    with server.client() as http:
        assert http.get(f"/v1/responses/{waits}").json() == asked
        result = {"type": "function_call_output", "call_id": asked["output"][0]["call_id"], "output": "sun"}
        after = begun(http, [result], tools=[WEATHER], previous_response_id=waits)
        assert events(http, after)[-1]["response"]["output"][0]["content"][0]["text"] == "Take a hat."


def test_a_response_ends_with_the_reason_where_its_model_is_not_there_any_more(start: Start) -> None:
    server = start(rules=RULES)
    with server.client() as http:
        id = begun(http, "slow")
        seen = events(http, id, 30)
    server.kill()
    other = server.folder / "other.json"
    other.write_text(json.dumps({"rules": RULES}))
    server.model = f"scripted:{other}"
    server.start()
    with server.client() as http:
        told = events(http, id)
        assert told[: len(seen)] == seen
        last = told[-1]["response"]
        assert last == http.get(f"/v1/responses/{id}").json()
        assert (last["status"], last["incomplete_details"]) == ("incomplete", {"reason": "interrupted"})
        (told_why,) = last["tenuto"]["diagnostics"]
        assert told_why["kind"] == "interrupted"
        assert "without the model" in told_why["reason"]


def session_of(http: httpx.Client, answer: Any) -> list[Any]:
    items: list[Any] = http.get(f"/v1/sessions/{answer['tenuto']['session_id']}").json()["items"]
    return items

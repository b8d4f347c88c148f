"""Responses in the background after kill -9: what was read of them stays true, and what waited goes on."""

import json
from typing import Any

import httpx
import pytest

from tests.conftest import Start

pytestmark = pytest.mark.slow

RULES = [
    {"user": "slow", "text": "tick " * 400, "delay_ms": 20},
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


def test_what_was_read_stays_true_and_what_waits_goes_on(start: Start) -> None:
    server = start(rules=RULES)
    with server.client() as http:
        slow, waits = begun(http, "slow"), begun(http, "weather", tools=[WEATHER])
        seen = events(http, slow, 30)
        asked = events(http, waits)[-1]["response"]
        read = http.get(f"/v1/responses/{slow}").json()["output"][0]["content"][0]["text"]
    server.kill()
    server.start()
    with server.client() as http:
        told = events(http, slow)
        assert told[: len(seen)] == seen
        assert [event["sequence_number"] for event in told] == [*range(len(told))]
        last = told[-1]["response"]
        assert last == http.get(f"/v1/responses/{slow}").json()
        assert (last["status"], last["incomplete_details"]) == ("incomplete", {"reason": "interrupted"})
        assert last["output"][0]["content"][0]["text"].startswith(read)
        assert http.get(f"/v1/responses/{waits}").json() == asked
        result = {"type": "function_call_output", "call_id": asked["output"][0]["call_id"], "output": "sun"}
        after = begun(http, [result], tools=[WEATHER], previous_response_id=waits)
        assert events(http, after)[-1]["response"]["output"][0]["content"][0]["text"] == "Take a hat."

"""What a request asks for and the model cannot be held to is told in `tenuto.diagnostics` of its answer."""

import json
from typing import Any

import httpx
import pytest

UNHOLDABLE = {"type": "object", "properties": {"city": {"not": {"type": "integer"}}}}
HOLDABLE = {"type": "object", "properties": {"city": {"type": "string"}}}


def weather(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "weather", "parameters": schema}}


def ask(http: httpx.Client, text: str, **more: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text}], **more}
    answer: dict[str, Any] = http.post("/v1/chat/completions", json=body).raise_for_status().json()
    return answer


def told(answer: dict[str, Any]) -> list[tuple[str, str]]:
    diagnostics = answer["tenuto"].get("diagnostics", [])
    assert all(each["kind"] == "not_enforced" and each["reason"] for each in diagnostics)
    return [(each["what"], each["reason"].split(":")[0]) for each in diagnostics]


LOOSE = ("tools", "the schema of weather is not enforced")


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_tool_whose_schema_no_grammar_holds_is_named_each_time(http: httpx.Client, choice: str) -> None:
    for _ in range(2):  # the second time its grammar is at hand
        answer = ask(http, "weather in Ulm", tools=[weather(UNHOLDABLE)], tool_choice=choice)
        assert told(answer) == [LOOSE]
        assert answer["choices"][0]["finish_reason"] == "tool_calls"


def test_tools_that_are_held_or_need_not_be_are_not_spoken_of(http: httpx.Client) -> None:
    open_tool = weather(UNHOLDABLE)
    open_tool["function"]["strict"] = False
    for tool in (weather(HOLDABLE), open_tool):
        assert "diagnostics" not in ask(http, "weather in Ulm", tools=[tool])["tenuto"]


def test_a_stream_tells_it_too(http: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "weather in Ulm"}], "tools": [weather(UNHOLDABLE)], "stream": True}
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: {")]
    (answer,) = (chunk for chunk in map(json.loads, lines) if chunk.get("tenuto"))
    assert told(answer) == [LOOSE]


def test_the_leg_that_brings_a_tools_result_is_told_again(http: httpx.Client) -> None:
    first = ask(http, "weather in Ulm", tools=[weather(UNHOLDABLE)], session_id="told-again")
    (call,) = first["choices"][0]["message"]["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "sun"}
    body = {"messages": [result], "session_id": "told-again"}
    answer = http.post("/v1/chat/completions", json=body).raise_for_status().json()
    assert answer["choices"][0]["message"]["content"] == "Take a hat: sun"
    assert told(answer) == [LOOSE]


def test_an_answers_schema_that_is_not_insisted_on_and_cannot_be_held_is_told(http: httpx.Client) -> None:
    held = {"type": "json_schema", "json_schema": {"name": "x", "schema": UNHOLDABLE}}
    answer = ask(http, '{"city": "Ulm"}', response_format=held)
    assert told(answer) == [("response_format", "the schema of the answer cannot be enforced")]

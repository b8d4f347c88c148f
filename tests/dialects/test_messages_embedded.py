"""A conversation with a real model, now in one dialect, now in the other: each turn computes only what is new."""

from typing import Any

import httpx
import pytest

from tests.conftest import Start

pytestmark = pytest.mark.slow

SYSTEM = "You are a helpful assistant."
CALCULATOR = {
    "description": "Computes.",
    "parameters": {
        "type": "object",
        "properties": {"expression": {"type": "string"}},
        "required": ["expression"],
    },
}


def chat(http: httpx.Client, messages: list[dict[str, Any]]) -> tuple[str, Any]:
    tool = {"type": "function", "function": {"name": "compute", **CALCULATOR}}
    said = [{"role": "system", "content": SYSTEM}, *messages]
    body = {"messages": said, "tools": [tool], "temperature": 0, "max_tokens": 60}
    answer = http.post("/v1/chat/completions", json=body).raise_for_status().json()
    return answer["choices"][0]["message"]["content"], answer["usage"]["tenuto"]


def message(http: httpx.Client, messages: list[dict[str, Any]]) -> tuple[str, Any]:
    tool = {
        "name": "compute",
        "description": CALCULATOR["description"],
        "input_schema": CALCULATOR["parameters"],
        "cache_control": {"type": "ephemeral"},
    }
    system = [
        {"type": "text", "text": f"x-anthropic-billing-header: cch={len(messages)};"},
        {"type": "text", "text": SYSTEM},
    ]
    body = {"messages": messages, "system": system, "tools": [tool], "temperature": 0, "max_tokens": 60}
    answer = http.post("/v1/messages?beta=true", json=body).raise_for_status().json()
    (block,) = answer["content"]
    return block["text"], answer["usage"]["tenuto"]


def test_a_conversation_goes_to_and_fro_between_dialects(start: Start, embedded_model: str) -> None:
    server = start(model=embedded_model)
    messages: list[dict[str, Any]] = []
    with server.client() as http:
        for number, ask in enumerate((chat, message, chat, message)):
            messages.append({"role": "user", "content": f"My name is Ada {number}. Say hello."})
            text, used = ask(http, messages)
            messages.append({"role": "assistant", "content": text})
            (round,) = used["rounds"]
            assert round["computed_tokens"] <= round["new_tokens"] + 1, (number, used)
            assert number == 0 or round["cached_tokens"] > 50
            assert used["miss_reason"] is None
        (session,) = http.get("/v1/sessions", params={"implicit": 1}).json()["data"]
        assert session["num_items"] == 1 + len(messages)

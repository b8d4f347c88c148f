"""Codex's requests as they were seen on the wire: what it sends, sends back, and reads."""

import json
from typing import Any

import httpx
import pytest

from tests.dialects.test_responses_e2e import computed_is_new

pytestmark = pytest.mark.slow

SHELL: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "description": "Runs a command.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False},
}
TOOLS: list[dict[str, Any]] = [
    SHELL,
    {
        "type": "namespace",
        "name": "mcp__git__",
        "description": "Tools of a server.",
        "tools": [SHELL | {"name": "log"}, SHELL | {"name": "status"}],
    },
    {"type": "custom", "name": "apply_patch", "description": "Edits.", "format": {"type": "text"}},
    {"type": "web_search", "external_web_access": False},
]
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def message(role: str, *texts: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text} for text in texts]}


def body(*items: Any, tools: Any = TOOLS) -> dict[str, Any]:
    return {
        "model": "gpt-5.2-codex",
        "input": [message("developer", "<permissions>", "Be brief."), message("user", "<environment>"), *items],
        "tools": tools,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199-codex",
        "client_metadata": {"originator": "codex_exec"},
        "text": {"verbosity": "medium"},
    }


def events(http: httpx.Client, request: dict[str, Any]) -> list[Any]:
    response = http.post("/v1/responses", json=request, headers={"session_id": "0199-codex", "originator": "codex"})
    assert response.status_code == 200, response.text
    lines = [line for line in response.text.split("\n") if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def done(sent: list[Any]) -> list[Any]:
    return [event["item"] for event in sent if event["type"] == "response.output_item.done"]


def echoed(item: dict[str, Any]) -> dict[str, Any]:
    """An item as Codex sends it back: without ids and status, its reasoning without content."""
    kept = {name: value for name, value in item.items() if name not in ("id", "status")}
    if item["type"] == "reasoning":
        return kept | {"content": None, "encrypted_content": None}
    return kept


def test_an_unstored_loop_computes_only_what_is_new(http: httpx.Client) -> None:
    asked = message("user", "the weather in Ulm")
    first = events(http, body(asked))
    (call,) = done(first)
    assert (call["type"], call["name"]) == ("function_call", "weather")
    ended = first[-1]["response"]
    assert (first[-1]["type"], ended["store"]) == ("response.completed", False)
    assert {note["what"] for note in ended["tenuto"]["diagnostics"]} == {"tools[3]"}

    image = [{"type": "input_text", "text": "sun"}, {"type": "input_image", "image_url": PIXEL, "detail": "high"}]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": image}
    second = events(http, body(asked, echoed(call), result))
    assert second[-1]["type"] == "response.completed"
    computed_is_new(second[-1]["response"])
    said = done(second)
    assert said[-1]["content"][0]["text"].startswith("Take a hat: sun")

    third = events(http, body(asked, echoed(call), result, *map(echoed, said), message("user", "think")))
    computed_is_new(third[-1]["response"])
    thought, _ = done(third)
    assert thought["type"] == "reasoning"
    more = [asked, echoed(call), result, *map(echoed, said), message("user", "think"), *map(echoed, done(third))]
    fourth = events(http, body(*more, message("user", "abc")))
    computed_is_new(fourth[-1]["response"])
    names = {one[-1]["response"]["tenuto"]["session_id"] for one in (first, second, third, fourth)}
    assert len(names) == 1
    listed = http.get("/v1/sessions", params={"implicit": 1, "limit": 100}).json()
    assert not names & {session["id"] for session in listed["data"]}, "it is not in the store"


def test_compaction_is_a_request_without_tools(http: httpx.Client) -> None:
    ended = events(http, body(message("user", "Summarise."), tools=[]))[-1]
    assert ended["type"] == "response.completed"


def test_functions_of_a_namespace_are_called_by_both_their_names(http: httpx.Client) -> None:
    space = {**TOOLS[1], "tools": [SHELL]}
    asked = message("user", "the sky over Bonn")
    request = body(asked, tools=[space]) | {"tool_choice": "required"}
    (call,) = done(events(http, request))
    assert (call["namespace"], call["name"]) == ("mcp__git__", "weather")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}
    ended = events(http, body(asked, echoed(call), result, tools=[space]))[-1]
    computed_is_new(ended["response"])

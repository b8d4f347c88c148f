"""One conversation in every dialect: what a client of each sends when it tells all of it again, and what it reads."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx

SYSTEM = "Be brief, in whatever dialect."
MOST = 200
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
_TOOL = {"name": "weather", "description": "Tells it."}
_FUNCTION = {"type": "function", "function": {**_TOOL, "parameters": WEATHER}}


@dataclass(frozen=True)
class Said:
    """What somebody said."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True)
class Called:
    """A call of the client's tool."""

    id: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Result:
    """What came of it."""

    id: str
    text: str


Turn = Said | Called | Result


@dataclass(frozen=True)
class Answer:
    """An answer, as a client of its dialect reads it."""

    turn: Turn
    session: str
    usage: dict[str, Any]

    @property
    def computes_only_what_is_new(self) -> bool:
        """By the ledger, in every round, with all that came before in a cache."""
        rounds = self.usage["rounds"]
        return rounds[0]["cached_tokens"] > 0 and all(one["computed_tokens"] == one["new_tokens"] for one in rounds)


@dataclass(frozen=True)
class Dialect:
    """How a conversation is told in one dialect, and how its answers are read."""

    path: str
    body: Callable[[Sequence[Turn]], dict[str, Any]]
    read: Callable[[dict[str, Any]], Answer]


def ask(http: httpx.Client, dialect: str, told: Sequence[Turn], **more: Any) -> Answer:
    """Tell all of a conversation again, up to what is new, and read the answer."""
    spoken = DIALECTS[dialect]
    response = http.post(spoken.path, json={**spoken.body(told), **more})
    assert response.status_code == 200, response.text
    return spoken.read(response.json())


def _chat_message(turn: Turn) -> dict[str, Any]:
    match turn:
        case Said(role, text):
            return {"role": role, "content": text}
        case Called(id, arguments):
            function = {"name": "weather", "arguments": json.dumps(arguments)}
            return {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": id, "type": "function", "function": function}],
            }
        case Result(id, text):
            return {"role": "tool", "tool_call_id": id, "content": text}


def _chat(told: Sequence[Turn]) -> dict[str, Any]:
    messages = [{"role": "system", "content": SYSTEM}, *map(_chat_message, told)]
    return {"messages": messages, "tools": [_FUNCTION], "max_tokens": MOST, "temperature": 0}


def _of_chat(answer: dict[str, Any]) -> Answer:
    message = answer["choices"][0]["message"]
    turn: Turn = Said("assistant", message["content"] or "")
    for call in message.get("tool_calls", ()):
        turn = Called(call["id"], json.loads(call["function"]["arguments"]))
    return Answer(turn, answer["session_id"], answer["usage"]["tenuto"])


def _responses_item(turn: Turn) -> dict[str, Any]:
    match turn:
        case Said(role, text):
            return {"role": role, "content": text}
        case Called(id, arguments):
            return {"type": "function_call", "call_id": id, "name": "weather", "arguments": json.dumps(arguments)}
        case Result(id, text):
            return {"type": "function_call_output", "call_id": id, "output": text}


def _responses(told: Sequence[Turn]) -> dict[str, Any]:
    items = [{"role": "system", "content": SYSTEM}, *map(_responses_item, told)]
    tool = {"type": "function", **_TOOL, "parameters": WEATHER}
    return {"input": items, "tools": [tool], "max_output_tokens": MOST, "temperature": 0}


def _of_responses(answer: dict[str, Any]) -> Answer:
    (item,) = answer["output"]
    turn: Turn
    if item["type"] == "function_call":
        turn = Called(item["call_id"], json.loads(item["arguments"]))
    else:
        turn = Said("assistant", item["content"][0]["text"])
    return Answer(turn, answer["tenuto"]["session_id"], answer["usage"]["tenuto"])


def _message(turn: Turn) -> dict[str, Any]:
    match turn:
        case Said(role, text):
            return {"role": role, "content": [{"type": "text", "text": text}]}
        case Called(id, arguments):
            return {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": id, "name": "weather", "input": arguments}],
            }
        case Result(id, text):
            return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text}]}


def _messages(told: Sequence[Turn]) -> dict[str, Any]:
    """As Claude Code does: a first line that differs from turn to turn, and a marker for caches."""
    volatile = {"type": "text", "text": f"x-anthropic-billing-header: cch={len(told)};"}
    tool = {**_TOOL, "input_schema": WEATHER, "cache_control": {"type": "ephemeral"}}
    return {
        "messages": [*map(_message, told)],
        "system": [volatile, {"type": "text", "text": SYSTEM}],
        "tools": [tool],
        "max_tokens": MOST,
        "temperature": 0,
    }


def _of_messages(answer: dict[str, Any]) -> Answer:
    (block,) = answer["content"]
    turn: Turn
    turn = Called(block["id"], block["input"]) if block["type"] == "tool_use" else Said("assistant", block["text"])
    return Answer(turn, answer["tenuto"]["session_id"], answer["usage"]["tenuto"])


def _ollama_message(turn: Turn) -> dict[str, Any]:
    """Its clients keep no ids of calls."""
    match turn:
        case Said(role, text):
            return {"role": role, "content": text}
        case Called(_, arguments):
            call = {"function": {"name": "weather", "arguments": arguments}}
            return {"role": "assistant", "content": "", "tool_calls": [call]}
        case Result(_, text):
            return {"role": "tool", "tool_name": "weather", "content": text}


def _ollama(told: Sequence[Turn]) -> dict[str, Any]:
    messages = [{"role": "system", "content": SYSTEM}, *map(_ollama_message, told)]
    options = {"num_predict": MOST, "temperature": 0}
    return {"model": "default", "messages": messages, "tools": [_FUNCTION], "stream": False, "options": options}


def _of_ollama(answer: dict[str, Any]) -> Answer:
    message = answer["message"]
    turn: Turn = Said("assistant", message["content"])
    for call in message.get("tool_calls", ()):
        turn = Called(call["id"], call["function"]["arguments"])
    return Answer(turn, answer["tenuto"]["session_id"], answer["tenuto"]["usage"])


DIALECTS = {
    "chat": Dialect("/v1/chat/completions", _chat, _of_chat),
    "responses": Dialect("/v1/responses", _responses, _of_responses),
    "messages": Dialect("/v1/messages", _messages, _of_messages),
    "ollama": Dialect("/api/chat", _ollama, _of_ollama),
}

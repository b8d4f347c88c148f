"""The `chat` tool: its arguments to a turn, a run's events to progress, and its answer to a tool result. No transport."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from tenuto.pipelines.base import Sampling
from tenuto.runtime.loop.events import Answer, RunEvent, RunPaused, TextAdded, ToolCalling, ToolReturned
from tenuto.runtime.loop.requests import Limits, Permission, SessionMode, ToolSelection, Turn
from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolCall, ToolResultItem, ToolSpec, UserItem

Report = Callable[[float, float | None, str | None], Awaitable[None]]

PROGRESS_EVERY_S = 0.1
"""Pieces of text that come faster than this are joined into one notification."""

CHAT = "chat"
DESCRIPTION = (
    "Say something to the local model and get its answer. It keeps the conversation: pass the session_id of an earlier"
    " answer to go on with it. The model may call this server's tools on the way; progress notifications carry the"
    " text while it is written."
)

_CALL = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "name": {"type": "string"}, "arguments": {"type": "string"}},
    "required": ["id", "name", "arguments"],
}
_MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"enum": ["system", "user", "assistant", "tool"]},
        "content": {"type": "string"},
        "tool_calls": {"type": "array", "items": _CALL},
        "tool_call_id": {"type": "string"},
        "is_error": {"type": "boolean"},
    },
    "required": ["role", "content"],
    "allOf": [
        {
            "if": {"properties": {"role": {"const": "tool"}}},
            "then": {"required": ["tool_call_id"]},
            "else": {"not": {"required": ["tool_call_id"]}},
        }
    ],
    "additionalProperties": False,
}
_CLIENT_TOOL = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
        "description": {"type": "string"},
        "parameters": {"type": "object"},
    },
    "required": ["name", "parameters"],
    "additionalProperties": False,
}

INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What the user says next."},
        "messages": {
            "type": "array",
            "minItems": 1,
            "items": _MESSAGE,
            "description": "Instead of message: several messages, or a whole history to replace the session's.",
        },
        "session_id": {
            "type": "string",
            "pattern": "^[A-Za-z0-9._-]{1,128}$",
            "description": "The conversation to go on with; a new one by default.",
        },
        "model": {"type": "string", "description": "One of the loaded models; the first by default."},
        "tools": {
            "type": "array",
            "items": {"anyOf": [{"type": "string"}, _CLIENT_TOOL]},
            "description": "Which tools the model sees: names of this server's tools, and tools that you run yourself."
            " All of the server's by default.",
        },
        "max_tokens": {"type": "integer", "minimum": 1},
        "temperature": {"type": "number", "minimum": 0, "maximum": 5},
        "max_tool_rounds": {"type": "integer", "minimum": 0},
        "agent_permission": {"enum": ["auto", "ask", "deny"], "description": "Tightens what the server allows."},
    },
    "oneOf": [{"required": ["message"]}, {"required": ["messages"]}],
    "additionalProperties": False,
}

OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "session_id": {"type": "string"},
        "run_id": {"type": "string"},
        "model": {"type": "string"},
        "text": {"type": "string"},
        "status": {"type": "string", "description": "completed, paused, incomplete, ..."},
        "stop_reason": {"type": ["string", "null"]},
        "usage": {
            "type": "object",
            "properties": {
                name: {"type": "integer"}
                for name in ("prompt_tokens", "completion_tokens", "computed_tokens", "cached_tokens")
            },
        },
        "tool_calls": {"type": "array", "items": {"type": "object"}, "description": "Calls that the server made."},
        "pause": {
            "type": "object",
            "description": "What the run waits for: results of client tools (send them as messages with role tool),"
            " or an approval.",
        },
    },
    "required": ["session_id", "run_id", "text", "status", "usage", "tool_calls"],
}


def turn(principal: str, arguments: dict[str, Any], *, server_of: Callable[[str], str], can_ask: bool) -> Turn:
    """The turn that validated arguments ask for.

    `server_of` gives the label of the server whose exported tool a name is, and raises InvalidRequest where there is
    none. `can_ask`: this client can put an approval to a person.
    """
    said = arguments.get("message")
    items = (UserItem(said),) if said is not None else _items(arguments["messages"])
    permission = arguments.get("agent_permission")
    temperature = arguments.get("temperature")
    return Turn(
        principal=principal,
        model=arguments.get("model"),
        items=items,
        session_id=arguments.get("session_id"),
        mode=SessionMode.AUTO if said is None else SessionMode.APPEND,
        tools=_selection(arguments.get("tools"), server_of),
        sampling=Sampling() if temperature is None else Sampling(temperature=float(temperature)),
        limits=Limits(arguments.get("max_tokens"), arguments.get("max_tool_rounds")),
        permission=None if permission is None else Permission(permission),
        match=False,
        wants_events=can_ask,
    )

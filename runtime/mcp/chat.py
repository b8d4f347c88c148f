"""The `chat` tool: arguments to a turn, a run's events to progress, an answer to a tool result. No transport."""

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tenuto.errors import InvalidRequest
from tenuto.pipelines.sampling_defaults import AskedSampling
from tenuto.runtime.http.body import validate
from tenuto.runtime.loop.events import Answer, RunPaused
from tenuto.runtime.loop.requests import Limits, SessionMode, ToolSelection, Turn
from tenuto.runtime.schema.events import Event, TextAdded, ToolCalling, ToolReturned, ToolTold
from tenuto.runtime.schema.mcp_parts import McpPart, named_items
from tenuto.sessions import ids
from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolCall, ToolResultItem, ToolSpec, UserItem
from tenuto.sessions.principal import Principal
from tenuto.sessions.records import PauseReason
from tenuto.sessions.tool_limits import expect_within
from tenuto.tools.approvals import Permission

Report = Callable[[float, float | None, str | None], Awaitable[None]]

PROGRESS_EVERY_S = 0.1
"""Pieces of text that come faster than this are joined into one notification."""

CHAT = "chat"
RUN_RESUME = "run_resume"
DESCRIPTION = (
    "Send a message to the local model and get its answer. The conversation is kept: pass the session_id of an earlier"
    " answer to continue it. The model may call this server's tools along the way; progress notifications carry the"
    " text as it is written."
)

_CALL = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "name": {"type": "string"}, "arguments": {"type": "string"}},
    "required": ["id", "name", "arguments"],
}
_ATTACH = {
    "type": "array",
    "maxItems": 64,
    "items": {
        "type": "object",
        "properties": {
            "type": {"enum": ["mcp_resource", "mcp_prompt"]},
            "server": {"type": "string"},
            "uri": {"type": "string"},
            "name": {"type": "string"},
            "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["type"],
        "additionalProperties": False,
    },
    "description": "What comes before the message: resources of the servers behind, as {type: mcp_resource, uri:"
    " mcp://SERVER/URI}, and prompts of theirs, as {type: mcp_prompt, server, name, arguments}.",
}
_MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"enum": ["system", "user", "assistant", "tool"]},
        "content": {"type": "string"},
        "tool_calls": {"type": "array", "items": _CALL},
        "tool_call_id": {"type": "string"},
        "is_error": {"type": "boolean"},
        "attach": _ATTACH,
    },
    "required": ["role", "content"],
    "allOf": [
        {
            "if": {"properties": {"role": {"const": "tool"}}},
            "then": {"required": ["tool_call_id"]},
            "else": {"not": {"required": ["tool_call_id"]}},
        },
        {"if": {"required": ["attach"]}, "then": {"properties": {"role": {"const": "user"}}}},
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
        "attach": {**_ATTACH, "description": f"With message. {_ATTACH['description']}"},
        "session_id": {
            "type": "string",
            "pattern": ids.PATTERN,
            "description": "The conversation to continue; by default, a new one.",
        },
        "model": {"type": "string", "description": "One of the loaded models; by default, the first."},
        "tools": {
            "type": "array",
            "items": {"anyOf": [{"type": "string"}, _CLIENT_TOOL]},
            "description": "Which tools the model sees: names of this server's tools, and tools that you run yourself."
            " By default, all of the server's.",
        },
        "max_tokens": {"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
        "temperature": {"type": "number", "minimum": 0, "maximum": 2},
        "max_tool_rounds": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
        "agent_permission": {
            "enum": ["auto", "ask", "deny"],
            "description": "Can only tighten what the server allows.",
        },
    },
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
        "stop_reason": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "usage": {
            "type": "object",
            "properties": {
                name: {"type": "integer"}
                for name in ("prompt_tokens", "completion_tokens", "computed_tokens", "cached_tokens")
            },
        },
        "tool_calls": {"type": "array", "items": {"type": "object"}, "description": "Calls the server made."},
        "pause": {
            "type": "object",
            "description": "What the run waits for: results of client tools, or an approval. Its `resume` is the tool"
            " to call then, and with what.",
        },
    },
    "required": ["session_id", "run_id", "text", "status", "usage", "tool_calls"],
}


def turn(
    principal: Principal,
    arguments: dict[str, Any],
    *,
    server_of: Callable[[str], str],
) -> Turn:
    """The turn that validated arguments ask for. Its client reads of an approval that a call needs, if not in a form
    then in the answer.

    `server_of` gives the label of an exported tool's server, and raises NotFound where there is no such tool.

    Raises:
        InvalidRequest: there is neither message nor messages, or both.
    """
    said = arguments.get("message")
    if (said is None) is (arguments.get("messages") is None):
        raise InvalidRequest("give either message or messages")
    if said is None and "attach" in arguments:
        raise InvalidRequest("attach goes with message; of messages each has its own")
    items = _said(arguments, said, "attach") if said is not None else _items(arguments["messages"])
    permission = arguments.get("agent_permission")
    return Turn(
        principal=principal,
        model=arguments.get("model"),
        items=items,
        session_id=arguments.get("session_id"),
        mode=SessionMode.AUTO if said is None else SessionMode.APPEND,
        tools=_selection(arguments.get("tools"), server_of),
        sampling=AskedSampling(arguments.get("temperature")),
        limits=Limits(arguments.get("max_tokens"), arguments.get("max_tool_rounds")),
        permission=None if permission is None else Permission(permission),
        match=False,
        wants_events=True,
    )


def _said(message: dict[str, Any], text: str, path: str) -> tuple[Item, ...]:
    """What a user says, after what it names of MCP servers."""
    parts = [validate(McpPart, part) for part in message.get("attach") or ()]
    return *named_items(parts, path), UserItem(text)


def _items(messages: list[dict[str, Any]]) -> tuple[Item, ...]:
    """Messages to items. A result's tool is known where the call stands before it, else the session knows it."""
    items: list[Item] = []
    names: dict[str, str] = {}
    for index, message in enumerate(messages):
        match message["role"]:
            case "system":
                items.append(SystemItem(message["content"]))
            case "user":
                items += _said(message, message["content"], f"messages[{index}].attach")
            case "assistant":
                calls = tuple(ToolCall(c["id"], c["name"], c["arguments"]) for c in message.get("tool_calls", ()))
                names |= {call.id: call.name for call in calls}
                items.append(AssistantItem(message["content"], calls=calls))
            case _:
                call_id = message["tool_call_id"]
                is_error = message.get("is_error", False)
                items.append(ToolResultItem(call_id, names.get(call_id, ""), message["content"], is_error=is_error))
    return tuple(items)


def _selection(tools: list[str | dict[str, Any]] | None, server_of: Callable[[str], str]) -> ToolSelection:
    if tools is None:
        return ToolSelection()
    client: dict[str, ToolSpec] = {}
    servers: dict[str, tuple[str, ...] | None] = {}
    for index, tool in enumerate(tools):
        if isinstance(tool, str):
            label = server_of(tool)
            servers[label] = (*(servers.get(label) or ()), tool)
        else:
            client[f"tools[{index}]"] = ToolSpec(tool["name"], tool.get("description", ""), tool["parameters"])
    expect_within(client)
    return ToolSelection(given=True, client=tuple(client.values()), servers=servers)


class RunProgress:
    """What an MCP call tells of a run: its events as progress at a bounded rate, and all of them gathered.

    A run that asks for approvals goes on after each, and a client may have to make its call again for that: `first`
    and `told` number the events that the earlier calls told of. The later one gathers them without progress them again.
    """

    def __init__(
        self, report: Report, *, first: int | None = None, told: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report, self._clock = report, clock
        self.told = told
        self._unsent = ""
        self._sent_at = 0.0
        self.first = first
        self.last = None if first is None else first - 1
        self.text = ""
        self.calls: list[dict[str, Any]] = []

    async def see(self, event: Event) -> None:
        """Take an event, and tell the client now or with a later one."""
        number = self.last = event.number
        self.first = number if self.first is None else self.first
        match event:
            case TextAdded(text=text):
                self.text += text
                self._unsent += text if number > self.told else ""
                if self._clock() - self._sent_at >= PROGRESS_EVERY_S:
                    await self.flush()
            case ToolCalling(call=call):
                await self.flush()
                await self._notify(f"[calling {call.name}]")
            case ToolTold(name=name, done=done) if done is not None:
                of = "" if event.total is None else f" of {event.total:g}"
                await self.flush()
                await self._notify(f"[{name}: {done:g}{of}{f', {event.text}' if event.text else ''}]")
            case ToolReturned(call=call, status=status):
                self.calls.append(
                    {
                        "round": event.round,
                        "name": call.name,
                        "arguments": call.arguments,
                        "result": event.result,
                        "status": status,
                    }
                )
                await self.flush()
                await self._notify(f"[{call.name}: {status}]")
            case _:
                pass

    async def flush(self) -> None:
        """Tell what has not been told."""
        if self._unsent:
            text, self._unsent = self._unsent, ""
            await self._notify(text)

    async def _notify(self, message: str) -> None:
        if self.last is not None and self.last > self.told:
            self._sent_at = self._clock()
            await self._report(self.last, None, message)


def result(answer: Answer, text: str, calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """An answer by OUTPUT_SCHEMA, with the text and the server's calls that were told since the call began."""
    usage = answer.usage
    told = {
        "session_id": answer.session_id,
        "run_id": answer.run_id,
        "model": answer.model,
        "text": text,
        "status": str(answer.status),
        "stop_reason": answer.stop_reason,
        "usage": {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "computed_tokens": usage.computed,
            "cached_tokens": usage.cached,
        },
        "tool_calls": list(calls),
    }
    return told if answer.pause is None else {**told, "pause": _pause(answer.run_id, answer.pause)}


def _pause(run_id: str, pause: RunPaused) -> dict[str, Any]:
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in pause.calls]
    told = {"reason": str(pause.reason), "expires_at": pause.expires_at, "calls": calls}
    if pause.question is not None:
        told["question"] = pause.question.told()
    told["resume"] = {"tool": RUN_RESUME, "arguments": _resuming(run_id, pause)}
    return told if pause.pause_id is None else {**told, "id": pause.pause_id}


def _resuming(run_id: str, pause: RunPaused) -> dict[str, Any]:
    """The arguments with which the run goes on; what a client or a person has to say is left open."""
    if pause.reason is PauseReason.CLIENT_TOOL:
        return {"run_id": run_id, "results": [{"tool_call_id": call.id, "content": "..."} for call in pause.calls]}
    if pause.question is not None:
        content = {} if pause.question.schema is None else {"content": {"...": "..."}}
        return {"run_id": run_id, "answer": {"action": "accept, decline or cancel", **content}}
    return {"run_id": run_id, "decision": "approve or deny"}


def waiting(answer: Answer) -> str | None:
    """What a run waits for and how it goes on, in words; None where it waits for nothing."""
    if answer.pause is None:
        return None
    what = "a decision" if answer.pause.pause_id is None else f"a decision (approval {answer.pause.pause_id})"
    if answer.pause.reason is PauseReason.CLIENT_TOOL:
        what = "results"
    if answer.pause.question is not None:
        what = f"an answer to {json.dumps(answer.pause.question.told(), ensure_ascii=False)}, asked in the call"
    calls = "; ".join(f"{call.name} with {call.arguments}" for call in answer.pause.calls)
    arguments = json.dumps(_resuming(answer.run_id, answer.pause), ensure_ascii=False)
    return f"[The run is paused: it waits for {what} of {calls}. To go on, call {RUN_RESUME} with {arguments}.]"

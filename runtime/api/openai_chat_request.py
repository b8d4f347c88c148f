"""A chat completions request to a turn: what its fields mean, and which of them are refused."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.errors import InvalidRequest, UnsupportedParameter
from tenuto.pipelines.base import Sampling, ToolChoice
from tenuto.runtime.api.body import parse_object, validate
from tenuto.runtime.api.openai_chat_wire import (
    REFUSED,
    REFUSED_OF_MCP_TOOLS,
    ChatBody,
    Choice,
    Content,
    Function,
    Message,
    Tool,
)
from tenuto.runtime.loop.requests import Limits, SessionMode, ToolSelection, Turn
from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolCall, ToolResultItem, ToolSpec, UserItem

SESSION_HEADER = "x-session-id"
EVENTS_HEADER = "x-tenuto-events"
IDEMPOTENCY_HEADER = "idempotency-key"

_SESSION_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_MAX_IDEMPOTENCY_KEY = 255


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request, understood."""

    turn: Turn
    stream: bool
    include_usage: bool


def read_chat(body: bytes, headers: Mapping[str, str], *, principal: str) -> ChatRequest:
    """Read a request's body and headers (lower-case names).

    Raises:
        InvalidRequest: it cannot be understood; UnsupportedParameter for what is known and not served.
    """
    value = parse_object(body)
    _refuse(value)
    wire = validate(ChatBody, value)
    session_id = _session_id(wire.session_id, headers.get(SESSION_HEADER))
    key = _idempotency_key(headers.get(IDEMPOTENCY_HEADER))
    extended = any(field is not None for field in (session_id, wire.max_tool_rounds, wire.agent_permission))
    turn = Turn(
        principal=principal,
        model=wire.model or None,
        items=_items(wire.messages),
        session_id=session_id,
        mode=wire.session_mode or SessionMode.AUTO,
        tools=_tools(wire),
        sampling=_sampling(wire),
        temperature=wire.temperature,
        stop=tuple(wire.stop or ()),
        limits=Limits(max_tokens=_max_tokens(wire), max_tool_rounds=wire.max_tool_rounds),
        permission=wire.agent_permission,
        user=_user(wire),
        stored=wire.store is not False,
        match=wire.match != "off",
        wants_events=extended or headers.get(EVENTS_HEADER) == "1",
        idempotency_key=key,
        body_digest=None if key is None else _digest(session_id, body),
    )
    include_usage = wire.stream_options is not None and wire.stream_options.include_usage is True
    return ChatRequest(turn, wire.stream is True, include_usage)


def _refuse(value: dict[str, Any]) -> None:
    for name, is_used in REFUSED.items():
        if name in value and is_used(value[name]):
            raise UnsupportedParameter(f"{name} is not served; leave it out", name)
    for index, tool in enumerate(_objects(value.get("tools"))):
        if tool.get("type") == "mcp":
            _refuse_mcp(tool, f"tools[{index}]")


def _refuse_mcp(tool: dict[str, Any], path: str) -> None:
    for name in REFUSED_OF_MCP_TOOLS:
        if tool.get(name) is not None:
            raise UnsupportedParameter(
                f"{path}.{name}: MCP servers come from the runtime's configuration", f"{path}.{name}"
            )
    if tool.get("require_approval") not in (None, "never"):
        param = f"{path}.require_approval"
        raise UnsupportedParameter(f"{param} is not served; agent_permission says whether tools need approval", param)
    allowed = tool.get("allowed_tools")
    if isinstance(allowed, dict) and allowed.get("read_only") is not None:
        raise UnsupportedParameter(f"{path}.allowed_tools.read_only is not served", f"{path}.allowed_tools.read_only")


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item if isinstance(item, dict) else {} for item in value] if isinstance(value, list) else []


# Messages


def _items(messages: list[Message]) -> tuple[Item, ...]:
    called: dict[str, str] = {}
    items: list[Item] = []
    for index, message in enumerate(messages):
        item = _item(message, called, f"messages[{index}]")
        if isinstance(item, AssistantItem):
            called.update((call.id, call.name) for call in item.calls)
        items.append(item)
    return tuple(items)


def _item(message: Message, called: Mapping[str, str], path: str) -> Item:
    for name in ("function_call", "audio"):
        if getattr(message, name) is not None:
            raise UnsupportedParameter(f"{path}.{name} is not served", f"{path}.{name}")
    text = _text(message.content, f"{path}.content")
    match message.role:
        case "system" | "developer":
            return SystemItem(text)
        case "user":
            return UserItem(text)
        case "assistant":
            return _assistant(message, text)
        case "tool":
            if not message.tool_call_id:
                raise InvalidRequest(
                    f"{path}.tool_call_id: a tool message names the call it answers", f"{path}.tool_call_id"
                )
            # Where the call is not in this body, the session knows its name.
            name = called.get(message.tool_call_id) or message.name or ""
            return ToolResultItem(message.tool_call_id, name, text)


def _assistant(message: Message, text: str) -> AssistantItem:
    calls = tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ())
    return AssistantItem(text or message.refusal or "", message.reasoning_content or message.reasoning or "", calls)


def _text(parts: Content, path: str) -> str:
    """Parts are paragraphs: they are joined by a line break."""
    texts = []
    for index, part in enumerate(parts):
        match part.type:
            case "text" if part.text is not None:
                texts.append(part.text)
            case "refusal" if part.refusal is not None:
                texts.append(part.refusal)
            case "text" | "refusal":
                raise InvalidRequest(f"{path}[{index}].{part.type}: field required", f"{path}[{index}].{part.type}")
            case other:
                where = f"{path}[{index}].type"
                raise InvalidRequest(f"{where}: parts of type {other!r} are not read, only text", where)
    return "\n".join(texts)


# Tools


def _tools(wire: ChatBody) -> ToolSelection:
    client: list[ToolSpec] = []
    servers: dict[str, tuple[str, ...] | None] = {}
    for index, tool in enumerate(wire.tools or ()):
        path = f"tools[{index}]"
        match tool.type:
            case "function":
                client.append(_function(tool.function, [spec.name for spec in client], f"{path}.function"))
            case "mcp":
                label, allowed = _server(tool, servers, path)
                servers[label] = allowed
            case other:
                raise UnsupportedParameter(f"{path}.type: tools of type {other!r} are not served", f"{path}.type")
    choice, only = _choice(wire.tool_choice)
    selection = ToolSelection(
        given=wire.tools is not None,
        client=tuple(client),
        servers=servers,
        choice=choice,
        only=only,
        parallel=wire.parallel_tool_calls is not False,
    )
    _check_choice(selection)
    return selection


def _function(function: Function | None, taken: list[str], path: str) -> ToolSpec:
    if function is None:
        raise InvalidRequest(f"{path}: field required", path)
    if function.name in taken:
        raise InvalidRequest(f"{path}.name: there are two tools named {function.name!r}", f"{path}.name")
    parameters = function.parameters or {"type": "object", "properties": {}}
    if parameters.setdefault("type", "object") != "object":
        raise InvalidRequest(f"{path}.parameters.type: must be 'object'", f"{path}.parameters.type")
    return ToolSpec(function.name, function.description or "", parameters, function.strict is not False)


def _server(tool: Tool, taken: Mapping[str, Any], path: str) -> tuple[str, tuple[str, ...] | None]:
    if tool.server_label is None:
        raise InvalidRequest(f"{path}.server_label: field required", f"{path}.server_label")
    if tool.server_label in taken:
        raise InvalidRequest(f"{path}.server_label: {tool.server_label!r} is given twice", f"{path}.server_label")
    return tool.server_label, None if tool.allowed_tools is None else tuple(tool.allowed_tools.tool_names)


def _choice(wire: Choice | None) -> tuple[ToolChoice, str | None]:
    if wire is None:
        return ToolChoice.AUTO, None
    if wire.type != "function":
        return ToolChoice(wire.type), None
    if wire.function is None:
        raise InvalidRequest("tool_choice.function: field required", "tool_choice.function")
    return ToolChoice.REQUIRED, wire.function.name


def _check_choice(tools: ToolSelection) -> None:
    """What can be told without knowing the servers' tools; the loop checks the rest."""
    if tools.choice is not ToolChoice.REQUIRED or not tools.given or tools.servers:
        return
    if not tools.client:
        raise InvalidRequest("tool_choice: a call is required and there are no tools", "tool_choice")
    if tools.only is not None and tools.only not in {spec.name for spec in tools.client}:
        raise InvalidRequest(
            f"tool_choice.function.name: there is no tool {tools.only!r} in tools", "tool_choice.function.name"
        )


# The rest


def _sampling(wire: ChatBody) -> Sampling:
    return Sampling(
        top_k=max(0, wire.top_k or 0),
        top_p=1.0 if wire.top_p is None else wire.top_p,
        min_p=wire.min_p or 0.0,
        seed=wire.seed,
    )


def _max_tokens(wire: ChatBody) -> int | None:
    """Some clients of local servers say -1 for no limit."""
    given = {name: getattr(wire, name) for name in ("max_completion_tokens", "max_tokens")}
    limits = {value for value in given.values() if value is not None}
    if len(limits) > 1:
        raise InvalidRequest("max_tokens and max_completion_tokens differ; give one", "max_tokens")
    limit = limits.pop() if limits else -1
    if limit == 0:
        param = next(name for name, value in given.items() if value == 0)
        raise InvalidRequest(f"{param}: must be at least 1", param)
    return None if limit == -1 else limit


def _user(wire: ChatBody) -> str | None:
    """Both fields name who a session is for: where both are given, both must fit."""
    return "\n".join(name for name in (wire.safety_identifier, wire.user) if name) or None


def checked_session_id(session_id: str, param: str) -> str:
    """The id, if it may name a session.

    Raises:
        InvalidRequest: it may not.
    """
    if _SESSION_ID.fullmatch(session_id) is None:
        raise InvalidRequest(f"{param}: 1 to 128 of letters, digits, '.', '_' and '-'", param)
    return session_id


def _session_id(of_body: str | None, of_header: str | None) -> str | None:
    if of_body is not None and of_header is not None and of_body != of_header:
        raise InvalidRequest("session_id and the header X-Session-Id name different sessions", "session_id")
    if of_body is not None:
        return checked_session_id(of_body, "session_id")
    return None if of_header is None else checked_session_id(of_header, "X-Session-Id")


def _idempotency_key(key: str | None) -> str | None:
    if key is not None and not 0 < len(key) <= _MAX_IDEMPOTENCY_KEY:
        raise InvalidRequest(f"Idempotency-Key: 1 to {_MAX_IDEMPOTENCY_KEY} characters", "Idempotency-Key")
    return key


def _digest(session_id: str | None, body: bytes) -> str:
    return hashlib.sha256(b"%s\0%s" % ((session_id or "").encode(), body)).hexdigest()

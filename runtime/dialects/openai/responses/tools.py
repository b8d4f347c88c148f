"""The tools of a request for a response: the client's, the server's by their servers, and those that are left out."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenuto.errors import InvalidRequest, UnsupportedParameter
from tenuto.runtime.dialects.mcp_servers import Fields, requested_server
from tenuto.runtime.dialects.openai.functions import expect_fit, function_spec
from tenuto.runtime.dialects.openai.responses.callables import ClientTool, model_name, wrapper
from tenuto.runtime.dialects.openai.responses.fields import REFUSED_OF_MCP_TOOLS
from tenuto.runtime.dialects.openai.responses.wire import AllowedTools, Approvals, FunctionWire, Tool
from tenuto.runtime.loop.requests import LeftOut
from tenuto.sessions.items import ToolSpec
from tenuto.tools.host.requested import RequestedServer
from tenuto.tools.registry import Exported

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")

Listed = Mapping[str, Sequence[Exported]]
"""The server's tools, by the label of their server."""


@dataclass(slots=True)
class Tools:
    """What a request's tools are: those of the client by their places, and the servers' by label. `callables` has the
    client's by the names that the model knows, `asks` what a person must approve, and `requested` the servers that are
    given by their URLs."""

    client: dict[str, ToolSpec] = field(default_factory=dict)
    callables: dict[str, ClientTool] = field(default_factory=dict)
    servers: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    asks: list[str] = field(default_factory=list)
    requested: list[RequestedServer] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


def refuse_of_tools(tools: Any) -> None:
    """Refuse what an MCP tool's entry asks for and is not served.

    Raises:
        UnsupportedParameter: `param` is the field.
    """
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        for name in REFUSED_OF_MCP_TOOLS if isinstance(tool, dict) and tool.get("type") == "mcp" else ():
            if tool.get(name) is not None:
                path = f"tools[{index}].{name}"
                raise UnsupportedParameter(f"{path} is not served; give the server's own address as server_url", path)


def read_tools(wire: Iterable[tuple[str, Tool]], listed: Listed) -> Tools:
    """The tools of a request, each with its place.

    Raises:
        InvalidRequest: a tool is wrong.
    """
    tools = Tools()
    for path, tool in wire:
        match tool.type:
            case "function" | "custom":
                _add(tools, tool, None, path)
            case "namespace":
                _add_namespace(tools, tool, path)
            case "mcp":
                _add_server(tools, tool, listed, path)
            case other:
                tools.left_out.append(LeftOut(path, f"there are no tools of type {other!r} here"))
    expect_fit(tools.client)
    return tools


def _add_namespace(tools: Tools, tool: Tool, path: str) -> None:
    if tool.name is None:
        raise InvalidRequest(f"{path}.name: field required", f"{path}.name")
    for index, member in enumerate(tool.tools or ()):
        place = f"{path}.tools[{index}]"
        if member.type in ("function", "custom"):
            _add(tools, member, tool.name, place)
        else:
            tools.left_out.append(LeftOut(place, f"a namespace has no tools of type {member.type!r} here"))


def _add(tools: Tools, wire: FunctionWire, namespace: str | None, path: str) -> None:
    if wire.name is None:
        raise InvalidRequest(f"{path}.name: field required", f"{path}.name")
    name = model_name(wire.name, namespace)
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest(f"{path}.name: must have 1 to 128 letters, digits, '.', '_' or '-'", f"{path}.name")
    is_custom = wire.type == "custom"
    if is_custom:
        tools.client[path] = _custom(tools, wire, name, path)
    else:
        tools.client[path] = function_spec(name, wire.description, wire.parameters, path, strict=wire.strict)
    tools.callables[name] = ClientTool(wire.name, namespace, is_custom)


def _custom(tools: Tools, wire: FunctionWire, name: str, path: str) -> ToolSpec:
    """A function that takes a text. A regular expression becomes its schema's; a grammar is told to the model."""
    form = wire.format or {}
    syntax, definition = form.get("syntax"), form.get("definition")
    description = wire.description or ""
    if form.get("type") != "grammar" or not isinstance(definition, str):
        return ToolSpec(name, description, wrapper())
    if syntax == "regex":
        return ToolSpec(name, description, wrapper(definition))
    tools.left_out.append(
        LeftOut(f"{path}.format", f"the model is told of a grammar in {syntax!r}, and not held to it")
    )
    told = f"The input follows this grammar ({syntax}):\n{definition}"
    return ToolSpec(name, f"{description}\n\n{told}".strip(), wrapper())


def _add_server(tools: Tools, tool: Tool, listed: Listed, path: str) -> None:
    label = tool.server_label
    if label is None:
        raise InvalidRequest(f"{path}.server_label: field required", f"{path}.server_label")
    if label in tools.servers:
        raise InvalidRequest(f"{path}.server_label: {label!r} is given twice", f"{path}.server_label")
    own = listed.get(label, ())
    tools.servers[label] = None if tool.allowed_tools is None else _named(tool.allowed_tools, own)
    if tool.server_url is not None:
        tools.requested.append(_requested(tool, label, tool.server_url, path))
        tools.asks += _asked_of_requested(tool.require_approval, own)
        return
    for name, value in (("headers", tool.headers), ("authorization", tool.authorization)):
        if value is not None:
            raise InvalidRequest(f"{path}.{name}: is for a server with a server_url", f"{path}.{name}")
    if tool.require_approval is not None:
        tools.asks += _asked(tool.require_approval, own)


def _requested(tool: Tool, label: str, url: str, path: str) -> RequestedServer:
    fields = Fields(f"{path}.server_label", f"{path}.server_url", f"{path}.headers", f"{path}.authorization")
    return requested_server(label, url, fields, headers=tool.headers, token=tool.authorization)


def _asked_of_requested(rules: Approvals | None, own: Sequence[Exported]) -> list[str]:
    """All tools of a server with a URL need approval, but for those of which the request says that they do not."""
    if rules is None or (rules.is_for_all and rules.always is not None):
        return [one.name for one in own]
    if rules.is_for_all:
        return []
    free = set(_exported(_named(rules.never, own), own) if rules.never is not None else ())
    asked = set(_exported(_named(rules.always, own), own) if rules.always is not None else ())
    return [one.name for one in own if one.name in asked or one.name not in free]


def _asked(rules: Approvals, own: Sequence[Exported]) -> list[str]:
    """The tools of a server that need approval: those that the rules name, or all but those that need none."""
    if rules.is_for_all:
        return [] if rules.always is None else [one.name for one in own]
    if rules.always is not None:
        return _exported(_named(rules.always, own), own)
    free = _exported(_named(rules.never, own), own) if rules.never is not None else []
    return [one.name for one in own if one.name not in free]


def _named(rule: AllowedTools, own: Sequence[Exported]) -> tuple[str, ...]:
    """The names that a filter lists, or those of the tools of which the server says that they only read."""
    if rule.read_only is None:
        return tuple(rule.tool_names or ())
    chosen = (one for one in own if one.tool.annotations.read_only is rule.read_only)
    names = [one.tool.spec.name for one in chosen]
    return tuple(name for name in names if rule.tool_names is None or name in rule.tool_names)


def _exported(names: Iterable[str], own: Sequence[Exported]) -> list[str]:
    wanted = set(names)
    return [one.name for one in own if one.name in wanted or one.tool.spec.name in wanted]

"""The tools of a chat completions request, how they may be used, and the form that the answer is held to."""

from collections.abc import Mapping
from typing import Any

from tenuto.errors import InvalidRequest, UnsupportedParameter
from tenuto.pipelines.base import ToolChoice
from tenuto.runtime.dialects.openai.chat.fields import REFUSED_OF_MCP_TOOLS
from tenuto.runtime.dialects.openai.chat.wire import ChatBody, Format, Function, Tool, ToolChoiceBody
from tenuto.runtime.dialects.openai.functions import check_choice, expect_fit, function_spec, response_format
from tenuto.runtime.loop.requests import LeftOut, ResponseFormat, ToolSelection
from tenuto.sessions.items import ToolSpec


def refuse_of_tools(tools: Any) -> None:
    """Refuse what an MCP tool's entry asks for and is not served.

    Raises:
        UnsupportedParameter: `param` is the field.
    """
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and tool.get("type") == "mcp":
            _refuse_mcp(tool, f"tools[{index}]")


def read_tools(wire: ChatBody) -> tuple[ToolSelection, list[LeftOut]]:
    """Which tools the model sees and how it may use them, and those of types that nobody here can run.

    Raises:
        InvalidRequest: a tool or the choice is wrong.
    """
    client: dict[str, ToolSpec] = {}
    left_out: list[LeftOut] = []
    servers: dict[str, tuple[str, ...] | None] = {}
    for index, tool in enumerate(wire.tools or ()):
        path = f"tools[{index}]"
        match tool.type:
            case "function":
                client[f"{path}.function"] = _function(tool.function, f"{path}.function")
            case "mcp":
                label, allowed = _server(tool, servers, path)
                servers[label] = allowed
            case other:
                left_out.append(LeftOut(path, f"there are no tools of type {other!r} here"))
    expect_fit(client)
    choice, only, allowed_names = _choice(wire.tool_choice)
    selection = ToolSelection(
        given=wire.tools is not None,
        client=tuple(client.values()),
        servers=servers,
        choice=choice,
        only=only,
        allowed=allowed_names,
        parallel=wire.parallel_tool_calls is not False,
    )
    check_choice(selection)
    return selection, left_out


def read_format(wire: ChatBody) -> ResponseFormat | None:
    """The form of the answer; None where it is free.

    Raises:
        InvalidRequest: there is no schema, or it is none.
    """
    form, schema = wire.response_format, wire.json_schema
    if form is not None and schema is not None:
        raise InvalidRequest("json_schema and response_format are both given; give only one", "json_schema")
    if form is None:
        return None if schema is None else response_format("json_schema", schema, "json_schema", strict=True)
    if form.type == "json_object" and form.schema_ is not None:
        return response_format("json_schema", form.schema_, "response_format.schema", strict=True)
    return _format(form)


def _format(wire: Format) -> ResponseFormat | None:
    held = wire.json_schema
    if wire.type == "json_schema" and held is None:
        raise InvalidRequest("response_format.json_schema: field required", "response_format.json_schema")
    schema, strict = (None, None) if held is None else (held.schema_, held.strict)
    return response_format(wire.type, schema, "response_format.json_schema.schema", strict=strict)


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


def _function(function: Function | None, path: str) -> ToolSpec:
    if function is None:
        raise InvalidRequest(f"{path}: field required", path)
    return function_spec(function.name, function.description, function.parameters, path, strict=function.strict)


def _server(tool: Tool, taken: Mapping[str, Any], path: str) -> tuple[str, tuple[str, ...] | None]:
    if tool.server_label is None:
        raise InvalidRequest(f"{path}.server_label: field required", f"{path}.server_label")
    if tool.server_label in taken:
        raise InvalidRequest(f"{path}.server_label: {tool.server_label!r} is given twice", f"{path}.server_label")
    return tool.server_label, None if tool.allowed_tools is None else tuple(tool.allowed_tools.tool_names)


def _choice(wire: ToolChoiceBody | None) -> tuple[ToolChoice, str | None, tuple[str, ...] | None]:
    """Whether to call, the one name that it must be, and the names that it may be."""
    if wire is None:
        return ToolChoice.AUTO, None, None
    if wire.type == "function":
        if wire.function is None:
            raise InvalidRequest("tool_choice.function: field required", "tool_choice.function")
        return ToolChoice.REQUIRED, wire.function.name, None
    if wire.type == "allowed_tools":
        if wire.allowed_tools is None:
            raise InvalidRequest("tool_choice.allowed_tools: field required", "tool_choice.allowed_tools")
        names = tuple(dict.fromkeys(tool.function.name for tool in wire.allowed_tools.tools))
        return ToolChoice(wire.allowed_tools.mode), None, names
    return ToolChoice(wire.type), None, None

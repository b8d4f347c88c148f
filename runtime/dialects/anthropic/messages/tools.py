"""The tools of a request, how they may be used, and the form that the answer is held to."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tenuto.errors import InvalidRequest
from tenuto.pipelines.base import ToolChoice
from tenuto.runtime.dialects.anthropic.messages.wire import InputChoice, InputTool, McpServer, PromptBody
from tenuto.runtime.dialects.mcp_servers import Fields, requested_server
from tenuto.runtime.loop.requests import ResponseFormat, ToolSelection
from tenuto.sessions.items import ToolSpec
from tenuto.sessions.schemas import expect_bounded, expect_valid
from tenuto.sessions.tool_limits import expect_within
from tenuto.tools.host.requested import RequestedServer
from tenuto.tools.registry import Exported

Listed = Mapping[str, Sequence[Exported]]
"""All tools that there are, by the names of their servers."""


@dataclass(frozen=True, slots=True)
class AskedServer:
    """A server whose tools are asked for: all, or those of certain names, but for some. `path` is where it stands.

    One with a `url` need not be known here."""

    name: str
    path: str
    allowed: tuple[str, ...] | None = None
    but: frozenset[str] = frozenset()
    url: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Tools:
    """What is asked for: `selection` is without the servers, whose tools only the server knows."""

    selection: ToolSelection
    servers: tuple[AskedServer, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    """What was left out, and its place."""


def read_tools(wire: PromptBody) -> Tools:
    """Which tools the model sees and how it may use them.

    Raises:
        InvalidRequest: a tool, a server or the choice is wrong.
    """
    client: dict[str, ToolSpec] = {}
    toolsets: dict[str, tuple[InputTool, str]] = {}
    left_out: list[tuple[str, str]] = []
    gone: set[str] = set()
    for index, tool in enumerate(wire.tools or ()):
        path = f"tools[{index}]"
        match tool.type:
            case None | "custom":
                client[path] = _custom(tool, path)
            case "mcp_toolset":
                toolsets[_server_of(tool, toolsets, path)] = (tool, path)
            case other:
                left_out.append((other, path))
                gone.add(tool.name or other)
    expect_within(client, "input_schema")
    for path, spec in client.items():
        expect_valid(spec.parameters, f"{path}.input_schema")
    servers = tuple(_servers(wire.mcp_servers or (), toolsets))
    given = wire.tools is not None or wire.mcp_servers is not None
    selection = ToolSelection(given=given, client=tuple(client.values()))
    selection = _chosen(selection, wire.tool_choice, gone, has_others=bool(servers) or not given)
    return Tools(selection, servers, tuple(left_out))


def brought(tools: Tools, known: Collection[str]) -> list[RequestedServer]:
    """The servers that the request brings by their URLs: those that are not `known` by their names.

    Raises:
        InvalidRequest: one of them cannot be what it says.
    """
    return [
        requested_server(server.name, server.url, _fields(server.path.removesuffix(".name")), token=server.token)
        for server in tools.servers
        if server.url is not None and server.name not in known
    ]


def _fields(path: str) -> Fields:
    return Fields(f"{path}.name", f"{path}.url", path, f"{path}.authorization_token")


def with_servers(tools: Tools, listed: Listed) -> ToolSelection:
    """The selection with the tools of the servers that are asked for; `listed` are all tools that there are.

    Raises:
        InvalidRequest: there is no such server here.
    """
    servers: dict[str, tuple[str, ...] | None] = {}
    for server in tools.servers:
        if server.name not in listed:
            raise InvalidRequest(
                f"{server.path}: there is no MCP server {server.name!r} here; there are {', '.join(listed) or 'none'}."
                " To add one, name it in the file of --mcp-config, or give its url",
                server.path,
            )
        allowed = server.allowed
        if server.but and allowed is None:
            own = (one.tool.spec.name for one in listed[server.name])
            allowed = tuple(name for name in own if name not in server.but)
        servers[server.name] = allowed
    return replace(tools.selection, servers=servers)


def read_format(wire: PromptBody) -> ResponseFormat | None:
    """The form of the answer; None where it is free.

    Raises:
        InvalidRequest: there are two, or it is no schema.
    """
    new = wire.output_config.format if wire.output_config else None
    if new is not None and wire.output_format is not None:
        raise InvalidRequest("output_format: output_config.format is given too; give only one", "output_format")
    found = new or wire.output_format
    if found is None:
        return None
    path = "output_format.schema" if new is None else "output_config.format.schema"
    expect_bounded(found.schema_, path)
    expect_valid(found.schema_, path)
    return ResponseFormat("json_schema", found.schema_, strict=True)


def _custom(tool: InputTool, path: str) -> ToolSpec:
    if tool.name is None:
        raise InvalidRequest(f"{path}.name: field required", f"{path}.name")
    if tool.input_schema is None:
        raise InvalidRequest(f"{path}.input_schema: field required", f"{path}.input_schema")
    schema = {"type": "object", **tool.input_schema}
    if schema["type"] != "object":
        raise InvalidRequest(f"{path}.input_schema.type: must be 'object'", f"{path}.input_schema.type")
    return ToolSpec(tool.name, tool.description or "", schema, True if tool.strict else None)


def _server_of(tool: InputTool, taken: Mapping[str, object], path: str) -> str:
    path = f"{path}.mcp_server_name"
    if not tool.mcp_server_name:
        raise InvalidRequest(f"{path}: field required", path)
    if tool.mcp_server_name in taken:
        raise InvalidRequest(f"{path}: {tool.mcp_server_name!r} is given twice", path)
    return tool.mcp_server_name


def _servers(wire: Sequence[McpServer], toolsets: Mapping[str, tuple[InputTool, str]]) -> Iterable[AskedServer]:
    """The newer form says in `tools` what is used of each server; the older one says it with the server."""
    names: set[str] = set()
    for index, server in enumerate(wire):
        path = f"mcp_servers[{index}].name"
        if server.name in names:
            raise InvalidRequest(f"{path}: {server.name!r} is given twice", path)
        names.add(server.name)
        toolset = toolsets.get(server.name)
        if toolset is not None:
            asked = _of_toolset(server.name, toolset[0], path)
            yield replace(asked, url=server.url, token=server.authorization_token)
            continue
        told = server.tool_configuration
        if told is None or told.enabled is not False:
            allowed = None if told is None or told.allowed_tools is None else tuple(told.allowed_tools)
            yield AskedServer(server.name, path, allowed, url=server.url, token=server.authorization_token)
    # A server of ours needs no address, so it need not be told of twice.
    for name, (tool, path) in toolsets.items():
        if name not in names:
            yield _of_toolset(name, tool, f"{path}.mcp_server_name")


def _of_toolset(name: str, tool: InputTool, path: str) -> AskedServer:
    configs = {each: settings.enabled for each, settings in (tool.configs or {}).items()}
    if tool.default_config is not None and tool.default_config.enabled is False:
        return AskedServer(name, path, tuple(each for each, enabled in configs.items() if enabled))
    return AskedServer(name, path, but=frozenset(each for each, enabled in configs.items() if enabled is False))


def _chosen(
    selection: ToolSelection, wire: InputChoice | None, gone: Collection[str], *, has_others: bool
) -> ToolSelection:
    """The choice, as far as it can be told without the tools of servers; the loop checks the rest.

    What requires a call of nothing but tools that are `gone`, since they were left out, requires none.
    """
    if wire is None:
        return selection
    selection = replace(selection, parallel=wire.disable_parallel_tool_use is not True)
    names = {spec.name for spec in selection.client}
    match wire.type:
        case "none":
            return replace(selection, choice=ToolChoice.NONE)
        case "any":
            if not names and not has_others and not gone:
                raise InvalidRequest("tool_choice: a call is required and there are no tools", "tool_choice")
            required = bool(names) or has_others
            return replace(selection, choice=ToolChoice.REQUIRED if required else ToolChoice.AUTO)
        case "tool":
            if wire.name is None:
                raise InvalidRequest("tool_choice.name: field required", "tool_choice.name")
            if wire.name in gone and wire.name not in names:
                return selection
            if wire.name not in names and not has_others:
                raise InvalidRequest(f"tool_choice.name: there is no tool {wire.name!r} in tools", "tool_choice.name")
            return replace(selection, choice=ToolChoice.REQUIRED, only=wire.name)
        case "auto":
            return selection

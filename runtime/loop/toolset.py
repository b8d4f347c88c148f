"""Which tools a run's model sees: the server's, as the session froze them, and the client's. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tenuto.errors import InvalidRequest
from tenuto.pipelines.base import ToolChoice
from tenuto.runtime.loop.requests import ToolSelection
from tenuto.runtime.loop.tool_search import search_tool, server_of
from tenuto.sessions.items import ToolSpec
from tenuto.sessions.tool_limits import expect_within
from tenuto.tools.host.requested import Requested
from tenuto.tools.names import TOOL_SEARCH

DefaultTools = Literal["all", "none"] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Toolset:
    """All tools of a run, in the order in which they are rendered, and which of them the client runs."""

    tools: tuple[ToolSpec, ...]
    client: frozenset[str]


def select(
    selection: ToolSelection,
    server_tools: Sequence[ToolSpec],
    default: Sequence[ToolSpec],
    deferred: Sequence[str] = (),
) -> Toolset:
    """Choose by what the request says; where it says nothing, the server's `default` ones. In the place of the tools of
    `deferred` servers there is one that searches them.

    Raises:
        InvalidRequest: two tools have one name, a label or name is not known, or the choice cannot be met.
    """
    servers = _servers(selection, server_tools) if selection.given else default
    names = {tool.name for tool in (*server_tools, *servers)}
    client: set[str] = set()
    for tool in selection.client:
        if tool.name in names:
            raise InvalidRequest(f"the tool {tool.name!r} has the name of a tool of this server; rename it", "tools")
        if tool.name in client:
            raise InvalidRequest(f"the tool {tool.name!r} is given twice", "tools")
        client.add(tool.name)
    away = frozenset(deferred)
    shown: list[ToolSpec] = []
    searched: list[ToolSpec] = []
    for tool in servers:
        is_searched = server_of(tool.name) in away and tool.name != selection.only
        (searched if is_searched else shown).append(tool)
    tools = (*shown, *([search_tool(searched)] if searched else []), *selection.client)
    if selection.choice is ToolChoice.REQUIRED:
        _check_required(selection.only, tools)
    if selection.allowed is not None:
        _check_allowed(selection.allowed, tools)
    return Toolset(tools, frozenset(client))


def default_tools(server_tools: Sequence[ToolSpec], default: DefaultTools) -> Sequence[ToolSpec]:
    """The server's default set by its setting."""
    if default == "all":
        return server_tools
    wanted = () if default == "none" else default
    return [tool for tool in server_tools if tool.name in wanted]


def can_search(selection: ToolSelection) -> bool:
    """Whether tools can be searched for: the model is free in what it calls, and no client's tool has that name."""
    taken = any(tool.name == TOOL_SEARCH for tool in selection.client)
    return selection.choice is not ToolChoice.NONE and selection.allowed is None and not selection.asks and not taken


def whole_servers(
    selection: ToolSelection, server_tools: Sequence[ToolSpec], default: DefaultTools
) -> Sequence[ToolSpec]:
    """The tools that nobody has chosen one by one: of servers that are taken as they are."""
    if not selection.given:
        return server_tools if default == "all" else ()
    brought = _brought(selection.requested)
    labels = {name for name, allowed in selection.servers.items() if allowed is None and name not in brought}
    return [tool for tool in server_tools if server_of(tool.name) in labels]


def _servers(selection: ToolSelection, server_tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    brought = _brought(selection.requested)
    offered = {tool.name: tool for tool in server_tools} | {each.name: each for own in brought.values() for each in own}
    chosen: set[str] = set()
    for label, allowed in selection.servers.items():
        own = [tool.name for tool in brought.get(label, ())]
        if label not in brought:
            own = [tool.name for tool in server_tools if tool.name.startswith(f"{label}__")]
        if not own and label not in brought:
            labels = sorted({tool.name.partition("__")[0] for tool in server_tools})
            raise InvalidRequest(f"no MCP server {label!r}; there are {', '.join(labels) or 'none'}", "tools")
        if allowed is None:
            chosen.update(own)
            continue
        for name in allowed:
            exported = name if name in own else f"{label}__{name}"
            if exported not in own:
                raise InvalidRequest(f"the server {label!r} has no tool {name!r}; it has {', '.join(own)}", "tools")
            chosen.add(exported)
    expect_within({name: offered[name] for own in brought.values() for tool in own if (name := tool.name) in chosen})
    return [tool for name, tool in offered.items() if name in chosen]


def _brought(requested: Requested | None) -> dict[str, list[ToolSpec]]:
    """The tools of the servers that a request brings, by the servers' labels."""
    if requested is None:
        return {}
    brought: dict[str, list[ToolSpec]] = {server.label: [] for server in requested.servers}
    for tool in requested.tools:
        brought[tool.server].append(tool.spec)
    return brought


def _check_required(only: str | None, tools: Sequence[ToolSpec]) -> None:
    if not tools:
        raise InvalidRequest("tool_choice requires a call, but there are no tools", "tool_choice")
    if only is not None and only not in {tool.name for tool in tools}:
        raise InvalidRequest(f"tool_choice names {only!r}, which is not among the tools", "tool_choice")


def _check_allowed(allowed: Sequence[str], tools: Sequence[ToolSpec]) -> None:
    names = {tool.name for tool in tools}
    unknown = next((name for name in allowed if name not in names), None)
    if unknown is not None:
        raise InvalidRequest(f"tool_choice allows {unknown!r}, which is not among the tools", "tool_choice")
    if not allowed:
        raise InvalidRequest("tool_choice allows no tool; to allow none, use 'none'", "tool_choice")

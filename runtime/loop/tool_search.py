"""Tools that are searched for: what the model sees in the place of more tools than its context should hold.

The tool block has `tool_search` instead of them, and stays as it is for the whole session. What a search finds is told
in its result, which is appended, and can be called from then on: what has been found is read from the session's items.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import anyio.to_thread

from tenuto.sessions.items import Item, JsonObject, ToolResultItem, ToolSpec, UserItem
from tenuto.tools.names import TOOL_SEARCH
from tenuto.tools.search import search
from tenuto.tools.spec import ToolResult

MOST_FOUND = 5
MOST_CHARACTERS = 3_000
"""So much is told of what was found; the best one is told whatever it takes."""
_MOST_SERVERS = 12
_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What the tool should do, or its name"}},
    "required": ["query"],
}


def server_of(tool: str) -> str:
    """The server of a tool, by the name that models see."""
    return tool.partition("__")[0]


def search_tool(deferred: Sequence[ToolSpec]) -> ToolSpec:
    """The tool that finds these."""
    counts = Counter(server_of(tool.name) for tool in deferred)
    named = [f"{server} ({count})" for server, count in counts.most_common(_MOST_SERVERS)]
    more = f" and {len(counts) - _MOST_SERVERS} more" if len(counts) > _MOST_SERVERS else ""
    about = f"Find tools by what they do. Those found can be called afterwards. Servers: {', '.join(named)}{more}"
    return ToolSpec(TOOL_SEARCH, about, _PARAMETERS)


def deferred_of(servers: Sequence[str], shown: Iterable[ToolSpec], offered: Iterable[ToolSpec]) -> list[ToolSpec]:
    """The tools of these servers that the model is not shown."""
    names, away = {tool.name for tool in shown}, frozenset(servers)
    return [tool for tool in offered if server_of(tool.name) in away and tool.name not in names]


def asked_in(items: Sequence[Item]) -> str:
    """What the user has said last."""
    return next((item.text for item in reversed(items) if isinstance(item, UserItem)), "")


def names_found(items: Iterable[Item]) -> Sequence[str]:
    """What searches have found, as they lie in a session, in the order in which it was found."""
    names: dict[str, None] = {}
    for item in items:
        if isinstance(item, ToolResultItem) and item.name == TOOL_SEARCH and item.server:
            names |= dict.fromkeys(_names(item.structured))
    return tuple(names)


async def find(deferred: Sequence[ToolSpec], arguments: dict[str, Any], asked: str) -> ToolResult:
    """Search, and tell what was found so that the model can call it. Where nothing fits its query, what the user has
    `asked` is searched for: small models say what to call a tool with, and not what it should do."""
    query = arguments.get("query")
    if not isinstance(query, str) or not query.strip():
        return ToolResult("Error: query: say in a few words what the tool should do", is_error=True)
    found = await anyio.to_thread.run_sync(search, deferred, query, MOST_FOUND)
    if not found and asked:
        found = await anyio.to_thread.run_sync(search, deferred, asked, MOST_FOUND)
    told = [_told(tool) for tool in found]
    while len(told) > 1 and sum(map(len, told)) > MOST_CHARACTERS:
        told.pop()
    if not told:
        servers = ", ".join(sorted({server_of(tool.name) for tool in deferred})[:_MOST_SERVERS])
        return ToolResult(f"No tool fits {query[:200]!r}. Try other words; the servers are {servers}.")
    names = [tool.name for tool in found[: len(told)]]
    one = "This tool" if len(told) == 1 else f"These {len(told)} tools"
    return ToolResult("\n".join([f"{one} can be called now:", *told]), structured={"tools": names})


def _told(tool: ToolSpec) -> str:
    return json.dumps(
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}, ensure_ascii=False
    )


def _names(structured: Any) -> list[str]:
    names = structured.get("tools") if isinstance(structured, dict) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []

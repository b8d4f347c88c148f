"""How many of the server's tools fit a model's context: which are searched for, and which are left out.

The tools of a request fit or are refused with it. Of servers' tools that nobody has chosen one by one, those are shown
that take no more than a share of the context, server by server, the smallest first; the others are searched for. Where
that cannot be, those that do not fit half of the context are left out. It is always the same ones of the same list, so
that a session's prefix stays as it is.
"""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import anyio.to_thread
from cachetools import LRUCache

from tenuto.errors import TemplateFailed
from tenuto.pipelines.base import Codec
from tenuto.runtime.loop.tool_search import server_of
from tenuto.sessions.items import ToolSpec, UserItem

_KNOWN = 64
_SAID = (UserItem("x"),)
_Counts = LRUCache[tuple[Hashable, ...], tuple[Sequence[ToolSpec], Any]]


class ToolRoom:
    """Finds out once for each list of tools, model and context. Event-loop thread only."""

    def __init__(self) -> None:
        # A codec holds its model's weights, which go when the model is unloaded. The tools are held with what is known
        # of them, so that no other ones get their ids.
        self._known: WeakKeyDictionary[Codec, _Counts] = WeakKeyDictionary()

    async def fitting(self, codec: Codec, tools: Sequence[ToolSpec], context: int) -> Sequence[ToolSpec]:
        """The first of the tools, as many as fit."""
        if not tools:
            return tools
        found: int = await self._find(_count, codec, tools, context // 2)
        return tools[:found]

    async def crowding(self, codec: Codec, tools: Sequence[ToolSpec], most: int) -> tuple[str, ...]:
        """The servers whose tools are too many to be shown, where all may take so many tokens."""
        if not tools:
            return ()
        found: tuple[str, ...] = await self._find(_crowding, codec, tools, most)
        return found

    async def _find(self, find: Callable[..., Any], codec: Codec, tools: Sequence[ToolSpec], most: int) -> Any:
        known = self._known.setdefault(codec, LRUCache(_KNOWN))
        key = (find, most, *map(id, tools))
        if key not in known:
            known[key] = (tools, await anyio.to_thread.run_sync(find, codec, tools, most))
        return known[key][1]


def _count(codec: Codec, tools: Sequence[ToolSpec], most: int) -> int:
    try:
        bare = _tokens(codec, ())
        if _tokens(codec, tools) - bare <= most:
            return len(tools)
        return bisect_right(range(1, len(tools)), most, key=lambda count: _tokens(codec, tools[:count]) - bare)
    except TemplateFailed:  # it says so of the conversation too
        return len(tools)


def _crowding(codec: Codec, tools: Sequence[ToolSpec], most: int) -> tuple[str, ...]:
    try:
        bare = _tokens(codec, ())
        if _tokens(codec, tools) - bare <= most:
            return ()
        servers: dict[str, list[ToolSpec]] = {}
        for tool in tools:
            servers.setdefault(server_of(tool.name), []).append(tool)
        sizes = {server: _tokens(codec, own) - bare for server, own in servers.items()}
    except TemplateFailed:  # it says so of the conversation too
        return ()
    left, deferred = most, []
    for server in sorted(sizes, key=sizes.__getitem__):
        left -= sizes[server]
        if left < 0:
            deferred.append(server)
    return tuple(server for server in servers if server in deferred)


def _tokens(codec: Codec, tools: Sequence[ToolSpec]) -> int:
    """What a shortest conversation takes with these tools."""
    rendered = codec.suffix((), _SAID, tools, ended=False)
    return sum(map(len, rendered.items)) + len(rendered.opening)

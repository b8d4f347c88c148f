"""How many of the server's default tools fit a model's context: the first so many that leave half of it to the talk.

The tools of a request fit or are refused with it. Nobody has asked for the default ones, so those that do not fit are
left out: always the same ones of the same list, so that a session's prefix stays as it is.
"""

from bisect import bisect_right
from collections.abc import Sequence

import anyio.to_thread
from cachetools import LRUCache

from tenuto.errors import TemplateFailed
from tenuto.pipelines.base import Codec
from tenuto.sessions.items import ToolSpec, UserItem

_KNOWN = 64
_SAID = (UserItem("x"),)


class ToolRoom:
    """Finds out once for each list of tools, model and context. Event-loop thread only."""

    def __init__(self) -> None:
        # The tools are held with it, so that no other ones get their ids.
        self._known: LRUCache[tuple[int, ...], tuple[Sequence[ToolSpec], Codec, int]] = LRUCache(_KNOWN)

    async def fitting(self, codec: Codec, tools: Sequence[ToolSpec], context: int) -> Sequence[ToolSpec]:
        """The first of the tools, as many as fit."""
        if not tools:
            return tools
        key = (id(codec), context, *map(id, tools))
        if key not in self._known:
            self._known[key] = (tools, codec, await anyio.to_thread.run_sync(_count, codec, tools, context // 2))
        return tools[: self._known[key][2]]


def _count(codec: Codec, tools: Sequence[ToolSpec], most: int) -> int:
    try:
        bare = _tokens(codec, ())
        if _tokens(codec, tools) - bare <= most:
            return len(tools)
        return bisect_right(range(1, len(tools)), most, key=lambda count: _tokens(codec, tools[:count]) - bare)
    except TemplateFailed:  # it says so of the conversation too
        return len(tools)


def _tokens(codec: Codec, tools: Sequence[ToolSpec]) -> int:
    """What a shortest conversation takes with these tools."""
    rendered = codec.suffix((), _SAID, tools, ended=False)
    return sum(map(len, rendered.items)) + len(rendered.opening)

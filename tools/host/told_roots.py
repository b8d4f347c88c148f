"""The roots of one server as it has been told them: those of its entry, and of the session that calls it.

One connection serves all sessions. A server of the newer protocol asks in the middle of a call; one of the older
protocol asks when it likes, and hears before a call where they are others than it was told last.
"""

from collections.abc import Sequence

import anyio
from mcp_types import ListRootsResult
from mcp_types import Root as WireRoot
from pydantic import FileUrl

from tenuto.tools.host.connection import Connection
from tenuto.tools.roots import Root, joined
from tenuto.tools.spec import CallContext

TOLD_S = 1.0
"""A call waits so long for a server that hears of other roots to list them."""


class ToldRoots:
    """Event-loop thread only."""

    def __init__(self, configured: Sequence[Root]) -> None:
        self._configured = tuple(configured)
        self._told: tuple[Root, ...] = self._configured
        self._was_listed = anyio.Event()
        self._lists = False

    def listed(self, contexts: Sequence[CallContext]) -> ListRootsResult:
        """What the server reads, where these calls are under way. One session is not told of another's folders."""
        self._told, self._lists = self._of(contexts), True
        self._was_listed.set()
        return ListRootsResult(roots=[WireRoot(uri=FileUrl(each.uri), name=each.name) for each in self._told])

    async def tell(self, connection: Connection, contexts: Sequence[CallContext]) -> None:
        """A call is about to be made: let a server that lists roots know where they have changed."""
        now = self._of(contexts)
        if connection.modern or now == self._told:
            return
        self._told, self._was_listed = now, anyio.Event()
        await connection.tell_roots_changed()
        if self._lists:
            with anyio.move_on_after(TOLD_S):
                await self._was_listed.wait()

    def _of(self, contexts: Sequence[CallContext]) -> tuple[Root, ...]:
        sessions = {context.session for context in contexts}
        own = contexts[0].roots if len(sessions) == 1 else ()
        return joined(self._configured, own)

"""A WebSocket's TCP connection, held to the bounds of the server's others.

What the WebSocket protocol of uvicorn leaves open. No message is understood here.
"""

import time
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from tenuto.runtime.http.connection_table import Table
from tenuto.runtime.http.unread import Unread
from tenuto.sessions.principal import Principal


class Socket(WebSocketsSansIOProtocol):
    """One WebSocket from its handshake on, with a place in the table of connections. Event-loop thread only.

    It never gives way to another connection: how many there are is the limit of the endpoint that has accepted it.
    """

    is_busy = True

    def __init__(self, table: Table, patience_s: float, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._table = table
        self._unread = Unread(patience_s)
        self.since = time.monotonic()

    @property
    def holder(self) -> str | None:
        """The principal whose key the handshake showed."""
        scope: Any = getattr(self, "scope", None)
        principal: Principal | None = None if scope is None else scope.get("state", {}).get("principal")
        return None if principal is None else principal.id

    def give_way(self) -> None:
        """Close it, for another one that needs its place."""
        self.transport.abort()

    def connection_made(self, transport: Any) -> None:
        """Take over the connection that has asked for it."""
        super().connection_made(transport)
        if not self._table.enter(self):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Its place is free."""
        self._table.leave(self)
        super().connection_lost(exc)

    def check(self, now: float) -> None:
        """Close it if its client does not read. `now` is on the monotonic clock."""
        if self._unread.is_stuck(self.transport, now):
            self.transport.abort()

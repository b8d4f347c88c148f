"""The server's TCP connections: how many there may be, and how long a client may take to send and to read.

What the HTTP protocol of uvicorn leaves open. No request is understood here.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tenuto.errors import Overloaded
from tenuto.runtime.api.errors import openai_response

_REFUSED_AT_ONCE = 256
"""So many connections beyond the limit are told that they are too many; those after them are just closed."""
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """`arrival_s`: from a request's first byte, or the connection's begin, to the end of the request's head.

    `patience_s`: how long a client may leave an answer unread. `most`: connections at a time.
    """

    arrival_s: float = 60.0
    patience_s: float = 120.0
    most: int = 1024


class Connection(HttpToolsProtocol):
    """One connection, held to the bounds. Event-loop thread only."""

    def __init__(self, bounds: Bounds, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._bounds = bounds
        self._head_since: float | None = time.monotonic()
        """Since when the head of a request is awaited; None while there is one, or nothing has come of the next."""
        self._unread = 0
        self._unread_since = 0.0

    def connection_made(self, transport: Any) -> None:
        """Take the connection, or one too many as one that will be refused."""
        super().connection_made(transport)
        excess = len(self.connections) - self._bounds.most
        if excess > _REFUSED_AT_ONCE:
            transport.abort()
        elif excess > 0:
            self.app = _refuse

    def data_received(self, data: bytes) -> None:
        """A request begins or goes on."""
        if self._head_since is None and self.cycle is not None and self.cycle.response_complete:
            self._head_since = time.monotonic()
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """The head of a request is there."""
        self._head_since = None
        super().on_headers_complete()

    def check(self, now: float) -> None:
        """Close it if its client keeps it waiting for too long. `now` is on the monotonic clock."""
        if self.transport.is_closing() and not self.transport.get_write_buffer_size():
            return
        late = self._head_since is not None and now - self._head_since > self._bounds.arrival_s
        if late or self._reads_nothing(now):
            self.transport.abort()

    def _reads_nothing(self, now: float) -> bool:
        """Whether what is to be sent has not become less for longer than the client's patience allows."""
        size = self.transport.get_write_buffer_size()
        if size == 0 or size < self._unread or not self._unread:
            self._unread_since = now
        self._unread = size
        return size > 0 and now - self._unread_since > self._bounds.patience_s


def check(connections: Iterable[object]) -> None:
    """Close those whose clients are too slow. To be called about once a second."""
    now = time.monotonic()
    for connection in list(connections):
        if isinstance(connection, Connection):
            connection.check(now)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    response = openai_response(Overloaded("the table of connections", _RETRY_S))
    response.headers["connection"] = "close"
    await response(scope, receive, send)

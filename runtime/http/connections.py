"""The server's TCP connections: how many there may be, how large a request's head, and how long a client may take to
send and to read.

What the HTTP protocol of uvicorn leaves open. No request is understood here.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tenuto.errors import HeadTooLarge, InvalidRequest, Overloaded, TenutoError
from tenuto.runtime.http.connection_table import Table
from tenuto.runtime.http.errors import ErrorForm
from tenuto.runtime.http.sockets import Socket
from tenuto.runtime.http.unread import Unread
from tenuto.sessions.principal import Principal

_REFUSED_AT_ONCE = 256
"""So many connections beyond the limit are told that they are too many; those after them are just closed."""
_RETRY_S = 1.0
_FRAMING = 8
"""Bytes that may frame each byte of a chunked body; a client that sends chunks of one byte needs five."""
_PIECE = 16 << 10
"""What the parser gets at a time: so much may go uncounted where a request begins in the middle of it."""
_FAREWELL_S = 2.0
"""For how long a refused client may read why, before the connection is closed under what it still sends."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """`arrival_s`: from a request's first byte, or the connection's begin, to the end of the request's head.

    `patience_s`: how long a client may leave an answer unread. `most`: connections at a time. `head_bytes`: what a
    request may have besides its body, trailers and the framing of chunks included.
    """

    arrival_s: float = 60.0
    patience_s: float = 120.0
    most: int = 1024
    head_bytes: int = 64 << 10


FormOf = Callable[[Scope], ErrorForm]
"""The form in which the client of a request reads errors."""


class Connection(HttpToolsProtocol):
    """One connection, held to the bounds. Event-loop thread only."""

    def __init__(self, bounds: Bounds, table: Table, form_of: FormOf, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._bounds, self._table, self._form_of = bounds, table, form_of
        self.since = time.monotonic()
        self._last_holder: str | None = None
        """Of the request before this one."""
        self._head_since: float | None = self.since
        """Since when the head of a request is awaited; None while there is one, or nothing has come of the next."""
        self._head = self._around = self._body = 0
        """Bytes of the present request: of its head's fields, of all that is no body, and of its body."""
        self._in_head = False
        self._refused_at: float | None = None
        self._is_handed_over = False
        self._unread = Unread(bounds.patience_s)

    @property
    def holder(self) -> str | None:
        """The principal whose key the last request showed; a request that has not been looked at changes nothing."""
        principal: Principal | None = None if self.scope is None else self.scope.get("state", {}).get("principal")
        return self._last_holder if principal is None else principal.id

    @property
    def is_busy(self) -> bool:
        """Whether a request has arrived and is under way. While one arrives, its connection may still give way."""
        return self._is_answering and not self.cycle.more_body

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def give_way(self) -> None:
        """Close it, for another one that needs its place."""
        if self._is_answering:
            self.transport.abort()
        else:
            self.transport.close()

    def connection_made(self, transport: Any) -> None:
        """Take the connection, or one too many as one that will be refused."""
        super().connection_made(transport)
        if self._table.enter(self):
            return
        if len(self._table) > self._bounds.most + _REFUSED_AT_ONCE:
            transport.abort()
        else:
            self.app = self._too_many

    def connection_lost(self, exc: Exception | None) -> None:
        """Its place is free."""
        self._table.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A request begins or goes on. What its parser keeps of it is bounded before it comes there."""
        if self._refused_at is not None:
            return
        if self._head_since is None and self.cycle is not None and self.cycle.response_complete:
            self._head_since = time.monotonic()
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            self._around += len(piece)
            super().data_received(piece)
            if self._refused_at is None and self._around > self._bounds.head_bytes + _FRAMING * self._body:
                self._refuse(HeadTooLarge(self._bounds.head_bytes))
            if self._refused_at is not None or self._is_handed_over:
                return

    def handle_websocket_upgrade(self) -> None:
        """What comes from now on is the WebSocket's, which takes a place of its own."""
        self._is_handed_over = True
        self._table.leave(self)
        super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._last_holder = self.holder
        self._in_head = True
        self._head = self._around = self._body = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the request's target."""
        self._head += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head. The fields of trailers are counted, but nobody needs them."""
        self._head += len(name) + len(value) + len(b": \r\n")
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head of a request is there."""
        if self._head > self._bounds.head_bytes:
            raise _HeadTooLarge  # what the parser's errors become is `send_400_response`
        if self.parser.should_upgrade() and self._should_upgrade() and _has_body(self.headers):
            raise _BodyOfUpgrade
        self._in_head, self._head_since = False, None
        self.since = time.monotonic()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._body += len(body)
        self._around -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The last byte of a request."""
        self._head = self._around = self._body = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The connection is idle, or has another request, of which a part may have come already."""
        self.since = time.monotonic()
        super().on_response_complete()
        if self._in_head:
            self._unset_keepalive_if_required()
            self._head_since = self.since

    def send_400_response(self, msg: str) -> None:
        """The parser has given up."""
        too_large = self._head > self._bounds.head_bytes
        self._refuse(HeadTooLarge(self._bounds.head_bytes) if too_large else InvalidRequest(msg))

    def check(self, now: float) -> None:
        """Close it if its client keeps it waiting for too long. `now` is on the monotonic clock."""
        if self.transport.is_closing() and not self.transport.get_write_buffer_size():
            return
        late = self._head_since is not None and now - self._head_since > self._bounds.arrival_s
        refused = self._refused_at is not None and now - self._refused_at > _FAREWELL_S
        if late or refused or self._unread.is_stuck(self.transport, now):
            self.transport.abort()

    def _refuse(self, error: TenutoError) -> None:
        """Answer what cannot be read any further, and read no more. An answer that has begun is broken off."""
        self._refused_at = time.monotonic()
        if self._is_answering:
            reads_body = self.cycle.more_body and not self._in_head and not self.pipeline
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if not reads_body or self.cycle.response_started:
                self.transport.abort()
                return
        response = self._form_of(self._so_far()).response(error)
        response.headers["connection"] = "close"
        self.transport.write(_wire(response))
        # Closed at once, while the client still sends, it would be reset before it has read this.
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _so_far(self) -> Scope:
        """What there is of the request's scope. It has no path before its head is whole, and none at all before its
        first byte."""
        url = (self.url if self.scope else b"").partition(b"?")[0]
        return {"type": "http", "path": url.decode("latin-1"), "headers": list(self.headers or ())}

    async def _too_many(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = self._form_of(scope).response(Overloaded("the table of connections", _RETRY_S))
        response.headers["connection"] = "close"
        await response(scope, receive, send)


class _HeadTooLarge(Exception):
    pass


class _BodyOfUpgrade(Exception):
    """A request for a WebSocket has a body, which nobody would read."""


def check(connections: Iterable[object]) -> None:
    """Close those whose clients are too slow. To be called about once a second."""
    now = time.monotonic()
    for connection in list(connections):
        if isinstance(connection, (Connection, Socket)):
            connection.check(now)


def _has_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    fields = dict(headers)
    return b"transfer-encoding" in fields or fields.get(b"content-length", b"0").strip(b"0") != b""


def _wire(response: Response) -> bytes:
    status = HTTPStatus(response.status_code)
    head = b"".join(b"%s: %s\r\n" % field for field in response.raw_headers)
    return b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (status, status.phrase.encode(), head, bytes(response.body))

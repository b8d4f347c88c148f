"""A WebSocket's TCP connection, held to the bounds of the server's others.

What the WebSocket protocol of uvicorn leaves open. No message is understood here.
"""

import asyncio
import time
from typing import Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from tenuto.runtime.http.connection_table import Table
from tenuto.runtime.http.unread import Unread
from tenuto.sessions.principal import Principal

MOST_FRAMES = 8192
"""Fragments, pings and pongs that may come between two messages; each costs many times its bytes. A socket that is open
for an hour without a message gets two pings a second with that, and a large message comes in pieces of 2 KiB."""
_PIECE = 4 << 10
"""What is read at a time; others have their turn between two pieces, each of which may hold hundreds of frames."""


class Socket(WebSocketsSansIOProtocol):
    """One WebSocket from its handshake on, with a place in the table of connections. Event-loop thread only.

    It never gives way to another connection: how many there are is the limit of the endpoint that has accepted it.
    """

    is_busy = True

    def __init__(self, table: Table, arrival_s: float, patience_s: float, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._table, self._arrival_s = table, arrival_s
        self._unread = Unread(patience_s)
        self.since = time.monotonic()
        self._to_read = bytearray()
        self._turn: asyncio.Handle | None = None
        self._frames_since = 0
        """Frames since the last message that was no message."""
        self._begun: float | None = None
        """Since when a part of a message is there."""

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

    def data_received(self, data: bytes) -> None:
        """The head of the handshake, which comes whole, or frames."""
        if self.handshake_initiated:
            self._to_read += data
            if self._turn is None:
                self._read_on()
            return
        super().data_received(data)
        if not self.handshake_initiated:
            # It cannot be read. There may be an answer, which nobody has sent.
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    async def receive(self) -> Any:
        """The next message for the application."""
        await asyncio.sleep(0)  # it may be there already, as thousands after it, and others must have their turn
        message = await super().receive()
        if self._to_read and self._turn is None:
            self.transport.pause_reading()
            self._turn = self.loop.call_soon(self._read_on)
        return message

    async def send(self, message: Any) -> None:
        """What the application says. Once it has refused the handshake, that is complete."""
        await self.writable.wait()
        if self.close_sent and self.initial_response is None:
            raise ClientDisconnected  # what its client sent has closed it, and there is more to write before it is gone
        await super().send(message)
        kind = message["type"]
        if kind == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True
        if kind in ("websocket.accept", "websocket.close") and self._to_read and self._turn is None:
            self._read_on()  # what came too early, or its client's close

    def handle_cont(self, event: Frame) -> None:
        """A fragment that goes on."""
        if self._may_come():
            super().handle_cont(event)

    def handle_ping(self) -> None:
        """A ping."""
        if self._may_come():
            super().handle_ping()

    def handle_pong(self, event: Frame) -> None:
        """A pong, asked for or not."""
        if self._may_come():
            super().handle_pong(event)

    def send_receive_event_to_app(self) -> None:
        """A message is whole."""
        self._frames_since, self._begun = 0, None
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_utf8(b"".join(self.frames)):
            self.conn.fail(CloseCode.INVALID_DATA, "text must be UTF-8")
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()

    def check(self, now: float) -> None:
        """Close it if its client does not read, or does not end a message. `now` is on the monotonic clock."""
        late = self._begun is not None and now - self._begun > self._arrival_s
        if late or self._unread.is_stuck(self.transport, now):
            self.transport.abort()

    def _read_on(self) -> None:
        """Read a piece of what has come, unless the application has a message to take first, or has not accepted yet:
        no frame can be answered before that."""
        self._turn = None
        if self.transport.is_closing():
            self._to_read.clear()
            return
        if self._may_read:
            piece = bytes(self._to_read[:_PIECE])
            del self._to_read[:_PIECE]
            super().data_received(piece)
            self._note_begin()
        if self.transport.is_closing():
            return
        if self._to_read:
            self.transport.pause_reading()
        elif not self.read_paused:
            self.transport.resume_reading()
        if self._to_read and self._may_read:
            self._turn = self.loop.call_soon(self._read_on)

    @property
    def _may_read(self) -> bool:
        return self.handshake_complete and not self.read_paused

    def _note_begin(self) -> None:
        if not (self.frames or self.conn.reader.buffer):
            self._begun = None
        elif self._begun is None:
            self._begun = time.monotonic()

    def _may_come(self) -> bool:
        """Count a frame; one too many closes the socket."""
        self._frames_since += 1
        if self._frames_since > MOST_FRAMES and not self.close_sent:
            self.conn.fail(CloseCode.POLICY_VIOLATION, "too many fragments, pings and pongs")
            self.handle_parser_exception()
        return not self.close_sent


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True

"""What a connection runs over: it yields the streams that the SDK's client takes, and tells when and why it ended."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse

from tenuto.tools.host.mending import mend_listing
from tenuto.tools.mcp_config import HttpTarget

Incoming = SessionMessage | Exception
Streams = tuple[anyio.streams.memory.MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]

_CONNECT_TIMEOUT_S = 30.0
_LOST_SESSION = ("session not found", "session terminated")


class Transport(Protocol):
    """Single use. `ended` is set once nothing will come any more, and `ending` says why."""

    ended: anyio.Event
    ending: str

    def open(self) -> AbstractAsyncContextManager[Streams]:
        """The two streams, for as long as the block lasts. Entered and left in one task."""


class HttpTransport:
    """Streamable HTTP. `read_timeout_s` bounds the silence of the server while a call is under way."""

    def __init__(self, target: HttpTarget, read_timeout_s: float) -> None:
        self.ended = anyio.Event()
        self.ending = "the server closed the connection"
        self._target, self._read_timeout_s = target, read_timeout_s

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Streams, None]:
        """Relay the SDK's stream, mending listings and watching for a session that is gone."""
        timeout = httpx2.Timeout(_CONNECT_TIMEOUT_S, read=self._read_timeout_s)
        sender, receiver = anyio.create_memory_object_stream[Incoming](0)
        async with (
            httpx2.AsyncClient(headers=dict(self._target.headers), timeout=timeout) as http,
            streamable_http_client(self._target.url, http_client=http) as (read, write),
            anyio.create_task_group() as tasks,
        ):

            async def relay() -> None:
                async with sender:
                    async for message in read:
                        self._look_at(message)
                        await sender.send(message)
                self.ended.set()

            tasks.start_soon(relay)
            try:
                yield receiver, write  # type: ignore[misc]  # the SDK types its memory streams by protocols
            finally:
                tasks.cancel_scope.cancel()

    def _look_at(self, message: Incoming) -> None:
        if isinstance(message, Exception):
            return
        if isinstance(message.message, JSONRPCResponse):
            mend_listing(message.message.result)
        elif isinstance(message.message, JSONRPCError):
            text = message.message.error.message.lower()
            if any(lost in text for lost in _LOST_SESSION):
                self.ending = "the server has forgotten the session"
                self.ended.set()

"""What a connection runs over: it yields the streams that the SDK's client takes, and tells when and why it ended."""

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCError

Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]
RequestId = str | int

MAX_MESSAGE_BYTES = 32 * 2**20
"""A server that sends a longer message loses its connection, or at least the answer."""

_UNSENT: dict[str, Any] = {"tenuto": "unsent"}


class Transport(Protocol):
    """Single use. `ended` is set once nothing will come any more, and `ending` says why."""

    ended: anyio.Event
    ending: str

    @property
    def refused(self) -> bool:
        """Whether the server answers, but does not know this way of speaking to it."""

    def open(self) -> AbstractAsyncContextManager[Streams]:
        """The two streams, for as long as the block lasts. Entered and left in one task."""


def lost(request: RequestId, reason: str) -> JSONRPCError:
    """The answer to a request that may have reached the server and will have no other answer."""
    return JSONRPCError(jsonrpc="2.0", id=request, error=ErrorData(code=CONNECTION_CLOSED, message=reason))


def unsent(request: RequestId, reason: str) -> JSONRPCError:
    """The answer to a request that has certainly not reached the server, or that it refused without looking at it."""
    error = ErrorData(code=CONNECTION_CLOSED, message=reason, data=_UNSENT)
    return JSONRPCError(jsonrpc="2.0", id=request, error=error)


def unsent_reason(message: Incoming) -> str | None:
    """Why a request was not sent, where that is what the message tells."""
    if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCError):
        error = message.message.error
        return error.message if error.data == _UNSENT else None
    return None


def is_unsent(exc: MCPError) -> bool:
    """Whether a request failed by `unsent`: then it may be made again without harm."""
    return exc.code == CONNECTION_CLOSED and exc.error.data == _UNSENT

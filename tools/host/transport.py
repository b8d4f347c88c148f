"""What a connection runs over: it yields the streams that the SDK's client takes, and tells when and why it ended."""

from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from secrets import token_hex
from typing import Protocol

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT, ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCResponse

from tenuto.tools.host.mending import mend_listing, mend_task
from tenuto.tools.host.state import Failure

Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]
RequestId = str | int

MAX_MESSAGE_BYTES = 32 * 2**20
"""A server that sends a longer message loses its connection, or at least the answer."""

_MARK = f"tenuto-{token_hex(8)}"
"""What a transport has found out stands under this name in an error's data: no server knows it."""
_TAKEN = (CONNECTION_CLOSED, REQUEST_TIMEOUT)
"""Codes by which the SDK tells what it has found out by itself, and which servers use for whatever they like."""


class Fate(StrEnum):
    """What is known of a request whose answer is an error with one of the SDK's own codes."""

    UNSENT = "unsent"
    """It has certainly not reached the server, or was refused unseen: it may be made again without harm."""
    REFUSED = "refused"
    """It was refused unseen for want of a login. What needs none is taken still, on the same connection."""
    LOST = "lost"
    """It may have reached the server."""
    ANSWERED = "answered"
    """The server itself has answered so."""


class Transport(Protocol):
    """Single use. `ended` is set once nothing will come any more, and `ending` says why."""

    ended: anyio.Event
    ending: str

    @property
    def refused(self) -> bool:
        """Whether the server answers, but does not know this way of speaking to it."""

    @property
    def login_needed(self) -> str:
        """Why and how a person must log in, where that was the last that the server let us know; else empty."""

    def open(self) -> AbstractAsyncContextManager[Streams]:
        """The two streams, for as long as the block lasts. Entered and left in one task."""


def lost(request: RequestId, reason: str, failure: Failure = Failure.OTHER) -> JSONRPCError:
    """The answer to a request that may have reached the server and will have no other answer."""
    return _closed(request, reason, Fate.LOST, failure)


def unsent(request: RequestId, reason: str, failure: Failure = Failure.OTHER) -> JSONRPCError:
    """The answer to a request that has certainly not reached the server, or that it refused without looking at it."""
    return _closed(request, reason, Fate.UNSENT, failure)


def refused(request: RequestId, reason: str) -> JSONRPCError:
    """The answer to a request for which somebody must log in first."""
    return _closed(request, reason, Fate.REFUSED, Failure.LOGIN_REQUIRED)


def received(message: JSONRPCMessage) -> SessionMessage:
    """A message as it came from a server, as the SDK shall see it."""
    match message:
        case JSONRPCResponse():
            mend_listing(message.result)
            mend_task(message.result)
            # Since 2026-07-28 a result without it is a complete one, which the SDK would refuse; before, it is unknown.
            message.result.setdefault("resultType", "complete")
        case JSONRPCError():
            message = marked(message, Fate.ANSWERED)
    return SessionMessage(message)


def marked(answer: JSONRPCError, fate: Fate) -> JSONRPCError:
    """A server's answer, told from what the SDK says with the same code. One that we have made stays as it is."""
    if answer.error.code not in _TAKEN or _mark(answer.error) is not None:
        return answer
    data = {_MARK: {"fate": fate}}
    return answer.model_copy(update={"error": answer.error.model_copy(update={"data": data})})


def unsent_reason(message: Incoming) -> str | None:
    """Why a request was not sent, where that is what the message tells."""
    if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCError):
        error = message.message.error
        return error.message if fate_of(error) is Fate.UNSENT else None
    return None


def fate_of(error: ErrorData) -> Fate | None:
    """What is known of a request that failed so; None where only the code tells."""
    mark = _mark(error)
    return None if mark is None else Fate(mark["fate"])


def failure_told(error: ErrorData) -> Failure:
    """What kind of failure a transport has found."""
    mark = _mark(error)
    return Failure.OTHER if mark is None else Failure(mark.get("failure", Failure.OTHER))


def is_closed(error: ErrorData) -> bool:
    """Whether the SDK says that it has no connection any more."""
    return error.code == CONNECTION_CLOSED and _mark(error) is None


def _closed(request: RequestId, reason: str, fate: Fate, failure: Failure) -> JSONRPCError:
    data = {_MARK: {"fate": fate, "failure": failure}}
    error = ErrorData(code=CONNECTION_CLOSED, message=reason, data=data)
    return JSONRPCError(jsonrpc="2.0", id=request, error=error)


def _mark(error: ErrorData) -> dict[str, str] | None:
    return error.data.get(_MARK) if isinstance(error.data, dict) else None

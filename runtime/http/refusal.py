"""A request that is refused before anybody reads it: answered in its dialect's form, its body left unread."""

from starlette.types import Receive, Scope, Send

from tenuto.errors import TenutoError
from tenuto.runtime.http.dialect import dialect_of

POLICY_VIOLATION = 1008
"""RFC 6455, section 7.4.1: what a WebSocket is closed with where nothing more specific fits."""


class UnknownScope(Exception):
    """A kind of connection that nothing here knows how to check, so nothing may let it pass."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(f"connections of type {scope['type']!r} are not supported")


async def refuse(exc: TenutoError, scope: Scope, receive: Receive, send: Send, *, close: bool = False) -> None:
    """Answer a request, or a WebSocket that asks to be opened. With `close`, the connection cannot be used again.

    A server that can only close a WebSocket answers its handshake with 403 by itself.
    """
    response = dialect_of(scope).errors.response(exc)
    if close:
        response.headers["connection"] = "close"
    if scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {}):
        await response(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": exc.code})

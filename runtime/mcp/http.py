"""The runtime's MCP server over streamable HTTP: one endpoint for both eras of the protocol.

It checks no key, Host or Origin: the application's middleware has done so before a request comes here.
"""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from http.client import BAD_REQUEST, NOT_FOUND, TOO_MANY_REQUESTS
from typing import Any
from weakref import WeakValueDictionary

import anyio
from anyio.abc import TaskStatus
from mcp.server import Server
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http import EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from tenuto.errors import Overloaded
from tenuto.runtime.mcp.missed import Missed, Share
from tenuto.runtime.mcp.standing import IDLE_S, MOST, OnEnd, Standing
from tenuto.sessions.principal import Principal

SESSION_ID = "mcp-session-id"

LOOK_S = 60.0
"""After so long connections are let go that have ended by themselves."""
RETRY_MS = 1000
"""After so long a client whose stream broke comes again."""

_opening: ContextVar[str] = ContextVar("_opening", default="")
"""Whose connection is being opened in this task."""
_VERSION = "mcp-protocol-version"
_SERVER_ERROR = -32000


class Endpoint:
    """An ASGI application for one route. Works while `run` is entered; an instance can be run once."""

    def __init__(
        self,
        server: Server[Any],
        *,
        principal_of: Callable[[Request], Principal],
        max_body_bytes: int,
        most: int = MOST,
        on_end: OnEnd = lambda *_: None,
    ) -> None:
        self._principal_of = principal_of
        # Which connections there may be is decided here, by whose they are; the SDK would refuse everybody.
        self._manager = _Manager(
            server,
            max_request_body_size=max_body_bytes,
            max_sessions=None,
            session_idle_timeout=IDLE_S,
            retry_interval=RETRY_MS,
        )
        self._standing = Standing(anyio.current_time, most, on_end)
        self._stopping = anyio.Event()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Hold the clients' connections. Leaving ends them."""
        failed: Exception | None = None
        async with anyio.create_task_group() as group:
            await group.start(self._hold)
            group.start_soon(self._look)
            try:
                yield
            except Exception as exc:  # goes on as it is, not in a group: no connection can have caused it
                failed = exc
            self.stop()
            group.cancel_scope.cancel()
        if failed is not None:
            raise failed

    def stop(self) -> None:
        """End all connections now: a client's standing stream would keep the server from stopping."""
        self._stopping.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that has been let in."""
        if self._stopping.is_set():
            await PlainTextResponse("the server is stopping", 503)(scope, receive, send)
            return
        principal = self._principal_of(Request(scope)).id
        scope["user"] = _user(principal)
        headers = Headers(scope=scope)
        id = headers.get(SESSION_ID)
        if headers.get(_VERSION, HANDSHAKE_PROTOCOL_VERSIONS[0]) not in HANDSHAKE_PROTOCOL_VERSIONS:
            await self._manager.handle_request(scope, receive, send)
        elif id is None:
            await self._open(principal, scope, receive, send)
        else:
            with self._standing.in_use(id):
                answer = await self._answer(scope, receive, send)
            has_ended = answer.status == NOT_FOUND or (scope["method"] == "DELETE" and answer.status < BAD_REQUEST)
            if has_ended and self._standing.is_of(id, principal):
                self._standing.end(id)

    async def _open(self, principal: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that comes without a connection, and may begin one."""
        try:
            self._standing.expect_room(principal)
        except Overloaded as exc:
            await _refusal(exc)(scope, receive, send)
            return
        _opening.set(principal)
        answer = await self._answer(scope, receive, send)
        if answer.id is None or answer.status >= BAD_REQUEST:
            return
        for id, owner in self._standing.begin(answer.id, principal):
            await self._end(id, owner, scope)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> "_Answer":
        answer = _Answer()

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.id = Headers(raw=message["headers"]).get(SESSION_ID)
            await send(message)

        await self._manager.handle_request(scope, receive, watch)
        return answer

    async def _end(self, id: str, owner: str, like: Scope) -> None:
        """End a connection as its client would, whose next request is then told to begin anew."""
        headers = [(SESSION_ID.encode(), id.encode())]
        scope = {**like, "method": "DELETE", "headers": headers, "user": _user(owner)}

        async def nothing() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def unheard(message: Message) -> None:
            del message

        await self._manager.handle_request(scope, nothing, unheard)

    async def _look(self) -> None:
        """Find those that the SDK has ended."""
        while True:
            await anyio.sleep(LOOK_S)
            self._standing.forget_ended()

    async def _hold(self, *, task_status: TaskStatus[None]) -> None:
        async with self._manager.run():
            task_status.started()
            await self._stopping.wait()


class _Manager(StreamableHTTPSessionManager):
    """The SDK's, with a store of events for each connection: it has one for all, and does not tell it whose one is."""

    def __init__(self, server: Server[Any], **options: Any) -> None:
        self._shares: WeakValueDictionary[str, Share] = WeakValueDictionary()
        super().__init__(server, **options)

    @property
    def event_store(self) -> EventStore | None:
        """A new one; asked for once by each connection, in the task of the request that opens it."""
        principal = _opening.get()
        share = self._shares.get(principal)
        if share is None:
            share = self._shares[principal] = Share()
        return Missed(share)

    @event_store.setter
    def event_store(self, store: EventStore | None) -> None:
        """The SDK's constructor has none."""


@dataclass(slots=True)
class _Answer:
    """What became of a request: its status, and the connection that it belongs to."""

    status: int = 500
    id: str | None = None


def _user(principal: str) -> AuthenticatedUser:
    """The SDK binds a connection to the user who opened it, so that no other can use its id."""
    return AuthenticatedUser(AccessToken(token="", client_id=principal, scopes=[]))


def _refusal(exc: Overloaded) -> Response:
    error = {"code": _SERVER_ERROR, "message": f"{exc.code}: {exc}"}
    headers = {"retry-after": str(max(1, math.ceil(exc.retry_after_s)))}
    body = {"jsonrpc": "2.0", "id": None, "error": error}
    return Response(to_json(body), TOO_MANY_REQUESTS, headers, "application/json")

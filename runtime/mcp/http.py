"""The runtime's MCP server over streamable HTTP: one endpoint for both eras of the protocol.

It checks no key, Host or Origin: the application's middleware has done so before a request comes here.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskStatus
from mcp.server import Server
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tenuto.sessions.principal import Principal

MAX_CONNECTIONS = 1000
"""Handshake-era clients that may be connected at a time; each holds a task and its buffers."""


class Endpoint:
    """An ASGI application for one route. Works while `run` is entered; an instance can be run once."""

    def __init__(
        self, server: Server[Any], *, principal_of: Callable[[Request], Principal], max_body_bytes: int
    ) -> None:
        self._principal_of = principal_of
        self._manager = StreamableHTTPSessionManager(
            server, max_request_body_size=max_body_bytes, max_sessions=MAX_CONNECTIONS
        )
        self._stopping = anyio.Event()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Hold the clients' connections. Leaving ends them."""
        failed: Exception | None = None
        async with anyio.create_task_group() as group:
            await group.start(self._hold)
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
        # The SDK binds a connection to the user who opened it, so that no other can use its id.
        principal = self._principal_of(Request(scope))
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=principal.id, scopes=[]))
        await self._manager.handle_request(scope, receive, send)

    async def _hold(self, *, task_status: TaskStatus[None]) -> None:
        async with self._manager.run():
            task_status.started()
            await self._stopping.wait()

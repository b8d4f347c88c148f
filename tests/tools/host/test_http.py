"""A server over streamable HTTP: headers, a server that goes away and comes back."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import uvicorn
from mcp.server.mcpserver import Context, MCPServer

from tenuto.errors import ServerUnreachable
from tenuto.tools.host import Host, Status
from tenuto.tools.mcp_config import HttpTarget, ServerConfig
from tenuto.tools.spec import CallContext, ToolResult

pytestmark = [pytest.mark.slow]
CONTEXT = CallContext(principal="ann", session=None, run=None, call="call_1")


@asynccontextmanager
async def web(port: int = 0) -> AsyncIterator[int]:
    """Serve one tool that tells the caller's header; yields the port."""
    server = MCPServer("web")

    @server.tool(structured_output=False)
    def token(ctx: Context) -> str:
        return str(ctx.headers["x-token"] if ctx.headers else None)

    listener = socket.create_server(("127.0.0.1", port))
    port = listener.getsockname()[1]
    app = server.streamable_http_app(host="127.0.0.1")
    runner = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    task = asyncio.create_task(runner.serve(sockets=[listener]))
    try:
        yield port
    finally:
        runner.should_exit = True
        await asyncio.wait_for(task, 10)


def config(port: int) -> ServerConfig:
    return ServerConfig("web", HttpTarget(f"http://127.0.0.1:{port}/mcp", {"X-Token": "s3cret"}), timeout_s=10)


async def test_a_tool_is_called_over_http_with_the_configured_headers() -> None:
    async with web() as port, Host([config(port)]) as host:
        (server,) = host.servers
        await server.settled()
        assert [tool.spec.name for tool in await server.list()] == ["token"]
        assert await server.call("token", {}, CONTEXT) == ToolResult("s3cret")


async def test_a_server_that_cannot_be_reached_says_so_and_a_call_has_not_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    async with Host([config(port)]) as host:
        (server,) = host.servers
        assert await host.settled(10)
        assert server.state.status is not Status.READY
        assert server.state.reason
        assert await server.list() == []


async def test_a_server_that_was_away_is_used_again() -> None:
    ready = asyncio.Event()
    host = Host([], None)

    def look() -> None:
        if host.states[0].status is Status.READY:
            ready.set()

    async with AsyncExitStack() as first:
        port = await first.enter_async_context(web())
        host = Host([config(port)], on_change=look)
        async with host:
            (server,) = host.servers
            await server.settled()
            await first.aclose()
            with pytest.raises(ServerUnreachable):
                await server.call("token", {}, CONTEXT)
            ready.clear()
            async with web(port):
                await asyncio.wait_for(ready.wait(), 15)
                assert await server.call("token", {}, CONTEXT) == ToolResult("s3cret")

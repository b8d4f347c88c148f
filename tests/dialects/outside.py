"""A real MCP server on loopback, as a request may bring by its URL: it wants a token, and knows what it was asked."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from tests.patience import HANGS_S

TOKEN = "s3cret-of-the-client"
PATH = "/key-4f9a1c77e0b2/mcp"
"""Secret too, as of servers whose address is all that one needs to know."""


@dataclass
class Outside:
    """The server, and what has come to it."""

    url: str = ""
    made: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    instead: Any = None
    """An application that answers instead of it, where there is one."""

    @property
    def address(self) -> str:
        """What of its URL may be shown."""
        return self.url.removesuffix(PATH)

    def app(self) -> Any:
        """It, behind its lock."""
        server = MCPServer("outside")

        @server.tool(structured_output=False)
        def weather(city: str) -> str:
            """Tells the weather."""
            self.made.append(city)
            return f"sun in {city}"

        @server.tool(structured_output=False)
        def fail() -> str:
            """Fails."""
            raise ValueError("no")

        inner = server.streamable_http_app(host="127.0.0.1", streamable_http_path=PATH)

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await inner(scope, receive, send)
                return
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            self.headers.append(headers)
            if self.instead is not None:
                await self.instead(scope, receive, send)
            elif headers.get("authorization") == f"Bearer {TOKEN}":
                await inner(scope, receive, send)
            else:
                refused: Response = PlainTextResponse(f"no: {headers.get('authorization')}", 401)
                await refused(scope, receive, send)

        return guarded


@contextmanager
def outside() -> Iterator[Outside]:
    """One that runs, in a thread of its own."""
    one = Outside()
    listener = socket.create_server(("127.0.0.1", 0))
    one.url = f"http://127.0.0.1:{listener.getsockname()[1]}{PATH}"
    runner = uvicorn.Server(uvicorn.Config(one.app(), log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=runner.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield one
    finally:
        runner.should_exit = True
        thread.join(HANGS_S)


def lying(tools: list[dict[str, Any]]) -> Any:
    """A server that lists what it likes."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        asked = json.loads(body) if body else {}
        number, method = asked.get("id"), asked.get("method")
        match method:
            case "initialize":
                result: Any = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "lying", "version": "1"},
                }
            case "tools/list":
                result = {"tools": tools}
            case _:
                error = {"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no such method"}}
                await JSONResponse(error if number is not None else None, 200 if number is not None else 202)(
                    scope, receive, send
                )
                return
        await JSONResponse({"jsonrpc": "2.0", "id": number, "result": result})(scope, receive, send)

    return app

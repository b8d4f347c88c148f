"""A small server over streamable HTTP by the older protocol, with sessions, that gets into trouble on demand."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

TOOLS = ("echo", "cut", "cut_once", "wrong", "refused", "large", "raw")
FORGOTTEN = {
    404: JSONResponse({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Who are you?"}}, 404),
    400: JSONResponse(
        {
            "jsonrpc": "2.0",
            "id": None,
            "error": {"code": -32000, "message": "Bad Request: begin again"},
        },
        400,
    ),
}


@dataclass
class Web:
    """`sessions` can be cleared, as a restart does; `made` lists the calls that have come to a tool."""

    forgotten_status: int = 404
    refusal: Response | None = None
    sessions: set[str] = field(default_factory=set)
    made: list[str] = field(default_factory=list)
    started: int = 0

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/mcp", self.post, methods=["POST"])])

    async def post(self, request: Request) -> Response:
        message = await request.json()
        number, method = message.get("id"), message["method"]
        if self.refusal is not None:
            return self.refusal
        if method == "initialize":
            self.started += 1
            session = f"session-{self.started}"
            self.sessions.add(session)
            offer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            info = {"serverInfo": {"name": "web", "version": "1"}}
            return _result(number, {**offer, **info}, {"mcp-session-id": session})
        if method == "ping" and request.headers.get("mcp-session-id") in self.sessions:
            return _result(number, {})
        if method == "server/discover":
            return JSONResponse(_error(number, -32601, "no such method"))
        if request.headers.get("mcp-session-id") not in self.sessions:
            return FORGOTTEN[self.forgotten_status]
        if number is None:
            return Response(status_code=202)
        return await self._answer(number, method, message.get("params") or {})

    async def _answer(self, number: int, method: str, params: dict[str, Any]) -> Response:
        if method == "tools/list":
            return _result(
                number,
                {"tools": [_tool(name) for name in TOOLS]},
            )
        name = params["name"]
        self.made.append(name)
        match name:
            case "cut":
                return _Cut()
            case "cut_once" if self.made.count(name) == 1:
                return _Cut()
            case "wrong":
                return JSONResponse(_error(number, -32600, "Session not found"))
            case "refused":
                return JSONResponse(_error(None, -32600, "the session may not do this"), 400)
            case "large":
                return _text(number, "x" * 200_000)
            case "raw":
                return _raw(number, **params["arguments"])
        return _text(number, name)


class _Cut(Response):
    """Ends the connection where an answer is awaited."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"application/json"), (b"content-length", b"1000")],
            }
        )
        raise ConnectionResetError("cut")


@asynccontextmanager
async def serving(app: Any, port: int = 0) -> AsyncIterator[int]:
    """Serve an application; yields the port."""
    listener = socket.create_server(("127.0.0.1", port))
    port = listener.getsockname()[1]
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
    runner = uvicorn.Server(config)
    task = asyncio.create_task(runner.serve(sockets=[listener]))
    try:
        yield port
    finally:
        runner.should_exit = True
        await asyncio.wait_for(task, 10)


def refusing(status: int) -> Response:
    return PlainTextResponse("no", status)


def _tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": name == "cut_once"}}


def _text(number: int, text: str) -> Response:
    return _result(number, {"content": [{"type": "text", "text": text}]})


def _result(number: int, result: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    body = json.dumps({"jsonrpc": "2.0", "id": number, "result": result})
    return Response(body, media_type="application/json", headers=headers)


def _raw(number: int, result: str, streamed: bool) -> Response:
    """A result that is JSON's text already, whole or as an event between others."""
    body = f'{{"jsonrpc": "2.0", "id": {number}, "result": {result}}}'
    if not streamed:
        return Response(body, media_type="application/json")
    news = '{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}'
    return Response(f": hello\n\ndata: {news}\n\nid: 7\ndata: {body}\n\n", media_type="text/event-stream")


def _error(number: int | None, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}

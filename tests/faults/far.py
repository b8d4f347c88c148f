"""A small MCP server over streamable HTTP, by the older protocol, whose sessions and process can be lost.

Usage: far.py FD FILE. It serves the listening socket FD; a line is written into FILE for each call that has come to it.
"""

import os
import socket
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

TOOLS = ("well", "die", "die_once")
REPEATABLE = ("die_once",)
OFFER = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "far", "version": "1"}}
FORGOTTEN = {"code": -32600, "message": "Session not found"}
book = Path(sys.argv[2])
sessions: set[str] = set()


def call(name: str) -> str:
    """Write the call down, and get into trouble; how often it has come by now, in all processes."""
    with book.open("a+") as file:
        file.write(f"{name}\n")
        file.flush()
        file.seek(0)
        times = file.read().split().count(name)
    if name == "die" or (name == "die_once" and times == 1):
        os.kill(os.getpid(), 9)
    return f"{name} {times}"


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "tools/list":
            tools = [
                {
                    "name": name,
                    "inputSchema": {"type": "object"},
                    "annotations": {"idempotentHint": name in REPEATABLE},
                }
                for name in TOOLS
            ]
            return {"result": {"tools": tools}}
        case "tools/call":
            return {"result": {"content": [{"type": "text", "text": call(params["name"])}]}}
        case _:
            return {"error": {"code": -32601, "message": f"no method {method}"}}


async def post(request: Request) -> Response:
    message = await request.json()
    number, method = message.get("id"), message["method"]
    reply = {"jsonrpc": "2.0", "id": number}
    if method == "initialize":
        session = uuid4().hex
        sessions.add(session)
        return JSONResponse({**reply, "result": OFFER}, headers={"mcp-session-id": session})
    if method != "server/discover" and request.headers.get("mcp-session-id") not in sessions:
        return JSONResponse({**reply, "error": FORGOTTEN}, 404)
    if number is None:
        return Response(status_code=202)
    return JSONResponse({**reply, **answer(method, message.get("params") or {})})


app = Starlette(routes=[Route("/mcp", post, methods=["POST"])])
uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[socket.socket(fileno=int(sys.argv[1]))])

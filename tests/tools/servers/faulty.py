"""A server over the SDK, in either era, on stdio or over HTTP, that is a burden in the ways in which servers are.

Usage: `faulty.py`, which speaks on stdio, or `faulty.py FD`, which serves HTTP on the listening socket FD.
"""

import os
import socket
import subprocess
import sys
from typing import Any

import anyio
import anyio.to_thread
import mcp.types as t
import uvicorn
from mcp.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from starlette.applications import Starlette
from starlette.routing import Mount

ANY: dict[str, Any] = {"type": "object"}
TOOLS = ("echo", "late", "release", "change", "new", "orphan", "die")
bus = InMemorySubscriptionBus()
released = anyio.Event()
changed = False


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


ODD: dict[str, dict[str, Any]] = {
    "odd_type": {"type": "object", "properties": {"a": {"type": "nonsense"}}},
    "odd_pattern": {"type": "object", "properties": {"a": {"type": "string", "pattern": "(["}}},
    "odd_cycle": {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}},
    "odd_missing": {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}},
    "odd_remote": {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}},
    "odd_deep": nested(40),
    "odd_wide": {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(5000)}},
    "odd_draft": {"$schema": "https://example.org/none", "type": "object"},
}


def sleeper() -> int:
    return subprocess.Popen(["sleep", "3600"], stdin=subprocess.DEVNULL).pid


async def list_tools(ctx: Any, params: Any) -> t.ListToolsResult:
    names = [name for name in TOOLS if name != ("late" if changed else "new")]
    said = "Say it differently" if changed else "Say it"
    tools = [t.Tool(name=name, description=said, input_schema=ANY) for name in names]
    odd = [t.Tool(name=name, description="odd", input_schema=schema) for name, schema in ODD.items()]
    hostile = [
        t.Tool(name="odd name/with \u202e everything" * 20, description="odd", input_schema=ANY),
        t.Tool(name="echo", description="twice", input_schema=ANY),
        t.Tool(name="odd_words", description="word " * 400_000, input_schema=ANY),
    ]
    return t.ListToolsResult(tools=[*odd, *tools, *hostile])


async def call_tool(ctx: Any, params: t.CallToolRequestParams) -> t.CallToolResult:
    global changed
    said = params.name
    match params.name:
        case "late":
            with anyio.CancelScope(shield=True):  # it is deaf to cancels, and answers when nobody waits any more
                await released.wait()
        case "release":
            released.set()
        case "change":
            changed = True
            await bus.publish(ToolsListChanged())
            if ctx.session.can_send_request:
                await ctx.session.send_tool_list_changed()
        case "orphan":
            said = str(await anyio.to_thread.run_sync(sleeper))
        case "die":
            os._exit(3)
    return t.CallToolResult(content=[t.TextContent(type="text", text=said)])


class Announcing(Server[Any]):
    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        options = notification_options or NotificationOptions(True, True, True)
        return super().create_initialization_options(options, *args, **kwargs)


server = Announcing(
    "faulty", on_list_tools=list_tools, on_call_tool=call_tool, on_subscriptions_listen=ListenHandler(bus)
)


async def over_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def over_http(number: int) -> None:
    manager = StreamableHTTPSessionManager(server)
    app = Starlette(routes=[Mount("/mcp", app=manager.handle_request)])
    config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=0)
    async with manager.run():
        await uvicorn.Server(config).serve(sockets=[socket.socket(fileno=number)])


if len(sys.argv) > 1:
    anyio.run(over_http, int(sys.argv[1]))
else:
    anyio.run(over_stdio)

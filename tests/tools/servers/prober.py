"""A server that tells what its process can reach: files, the network, other processes, its limits."""

import os
import resource
import socket
from pathlib import Path
from typing import Any

import anyio
import mcp.types as t
from mcp.server import Server
from mcp.server.stdio import stdio_server


def probe(do: str, what: str) -> str:
    match do:
        case "read":
            return Path(what).read_text()
        case "write":
            Path(what).write_text("written")
        case "connect":
            socket.create_connection(("127.0.0.1", int(what)), 2).close()
        case "processes":
            return str(len([each for each in Path("/proc").iterdir() if each.name.isdigit()]))
        case "home":
            return os.environ["HOME"]
        case "where":
            return str(Path.cwd())
        case "limits":
            return f"{resource.getrlimit(resource.RLIMIT_CORE)[0]} {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}"
    return "done"


async def listed(_context: Any, _params: Any) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[t.Tool(name="probe", input_schema={"type": "object"})])


async def called(_context: Any, params: t.CallToolRequestParams) -> t.CallToolResult:
    given = params.arguments or {}
    try:
        text = probe(given["do"], given.get("what", ""))
    except OSError as error:
        text = type(error).__name__
    return t.CallToolResult(content=[t.TextContent(type="text", text=text)])


async def main() -> None:
    server = Server("prober", on_list_tools=listed, on_call_tool=called)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)

"""A server that remembers: how often `count` was called in this process, or in this session over HTTP.

`counting.py FILE` speaks on stdio and writes the id of each of its processes into FILE.
"""

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp.types as t
from mcp.server import Server
from mcp.server.stdio import stdio_server

counted = 0
ANY: dict[str, Any] = {"type": "object"}


async def list_tools(ctx: Any, params: Any) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[t.Tool(name=name, input_schema=ANY) for name in ("count", "wait", "end")])


async def call_tool(ctx: Any, params: t.CallToolRequestParams) -> t.CallToolResult:
    global counted
    if params.name == "end":
        os._exit(1)
    if params.name == "wait":
        await anyio.sleep_forever()
    counted += 1
    return t.CallToolResult(content=[t.TextContent(type="text", text=f"{counted} {os.getpid()}")])


async def main() -> None:
    server: Server[Any] = Server("counting", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


with Path(sys.argv[1]).open("a") as file:
    file.write(f"{os.getpid()}\n")
anyio.run(main)

"""An MCP server on stdio whose tool `shoot` answers with the picture that its command line gives, in base64."""

import sys
from typing import Any

import anyio
import mcp.types as t
from mcp.server import Server
from mcp.server.stdio import stdio_server


async def list_tools(context: Any, params: Any) -> t.ListToolsResult:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    return t.ListToolsResult(tools=[t.Tool(name="shoot", description="take a picture", input_schema=schema)])


async def call_tool(context: Any, params: t.CallToolRequestParams) -> t.CallToolResult:
    return t.CallToolResult(content=[t.ImageContent(type="image", data=sys.argv[1], mime_type="image/png")])


async def main() -> None:
    server: Server[Any] = Server("camera", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)

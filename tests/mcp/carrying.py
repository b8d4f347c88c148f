"""An MCP server on stdio whose tool `carry` answers with a picture, a sound, a file and a link."""

from typing import Any

import anyio
import mcp.types as t
from mcp.server import Server
from mcp.server.stdio import stdio_server

SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


async def list_tools(context: Any, params: Any) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[t.Tool(name="carry", description="carry", input_schema=SCHEMA)])


async def call_tool(context: Any, params: t.CallToolRequestParams) -> t.CallToolResult:
    file = t.BlobResourceContents(uri="file:///a.bin", mime_type="application/zip", blob="UEs=")
    return t.CallToolResult(
        content=[
            t.TextContent(type="text", text="look"),
            t.ImageContent(type="image", data="AAAA", mime_type="image/png"),
            t.AudioContent(type="audio", data="BBBB", mime_type="audio/wav"),
            t.EmbeddedResource(type="resource", resource=file),
            t.ResourceLink(type="resource_link", name="b", uri="https://example.org/b", mime_type="text/plain"),
        ]
    )


async def main() -> None:
    server: Server[Any] = Server("carrying", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)

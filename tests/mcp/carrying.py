"""An MCP server on stdio whose tool `carry` answers with all kinds of content, and says of itself what a tool can."""

from typing import Any

import anyio
import mcp.types as t
from mcp.server import Server
from mcp.server.stdio import stdio_server

NOTES = t.Annotations(audience=["user"], priority=0.5)
FILE = t.BlobResourceContents(uri="file:///a.bin", mime_type="application/zip", blob="UEs=")
PAGE = t.TextResourceContents(uri="file:///a.txt", mime_type="text/plain", text="a page")
CONTENT: list[t.ContentBlock] = [
    t.TextContent(type="text", text="look", annotations=NOTES, meta={"example.org/n": 1}),
    t.ImageContent(type="image", data="AAAA", mime_type="image/png", annotations=NOTES),
    t.AudioContent(type="audio", data="BBBB", mime_type="audio/wav"),
    t.EmbeddedResource(type="resource", resource=FILE),
    t.EmbeddedResource(type="resource", resource=PAGE),
    t.ResourceLink(
        type="resource_link",
        name="b",
        title="The other one",
        description="It lies elsewhere.",
        uri="https://example.org/b",
        mime_type="text/plain",
        size=7,
    ),
]
CARRY = t.Tool(
    name="carry",
    title="Carry things",
    description="carry",
    input_schema={"type": "object", "properties": {"how": {"type": "string"}}},
    annotations=t.ToolAnnotations(title="Carrying", read_only_hint=True, destructive_hint=False),
    icons=[t.Icon(src="https://example.org/carry.png", mime_type="image/png", sizes=["48x48"])],
    meta={"example.org/kind": {"of": "tool"}},
)
META = {"example.org/took_ms": 5}


async def list_tools(context: Any, params: Any) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[CARRY])


async def call_tool(context: Any, params: t.CallToolRequestParams) -> t.CallToolResult:
    return t.CallToolResult(content=CONTENT, structured_content={"arguments": params.arguments}, meta={**META})


async def main() -> None:
    server: Server[Any] = Server("carrying", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)

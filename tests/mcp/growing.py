"""An MCP server on stdio whose tool `grow` brings the tool `grown`, and says so."""

from typing import Any

import anyio
import mcp.types as t
from mcp.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


async def main() -> None:
    bus = InMemorySubscriptionBus()
    names = ["grow"]

    async def list_tools(context: Any, params: Any) -> t.ListToolsResult:
        return t.ListToolsResult(tools=[t.Tool(name=name, description=name, input_schema=SCHEMA) for name in names])

    async def call_tool(context: Any, params: t.CallToolRequestParams) -> t.CallToolResult:
        if "grown" not in names:
            names.append("grown")
            await bus.publish(ToolsListChanged())
            await context.session.send_tool_list_changed()
        return t.CallToolResult(content=[t.TextContent(type="text", text="done")])

    server: Server[Any] = Server(
        "growing",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=ListenHandler(bus),
    )
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (read, write):
        await server.run(read, write, options)


anyio.run(main)

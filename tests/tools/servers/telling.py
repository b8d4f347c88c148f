"""A server that tells how far it is and logs in the middle of a call, in whichever era its client speaks."""

import os
import sys
from typing import Any

import anyio
import mcp.types as t
from mcp.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

ANY: dict[str, Any] = {"type": "object"}
TOOLS = ("work", "chatter", "garbage", "leak", "undeclared", "exit")


async def list_tools(ctx: Any, params: t.PaginatedRequestParams | None) -> t.ListToolsResult:
    declared = {"undeclared": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}
    return t.ListToolsResult(
        tools=[t.Tool(name=name, input_schema=ANY, output_schema=declared.get(name)) for name in TOOLS]
    )


async def log(ctx: Any, level: Any, data: Any) -> None:
    params = t.LoggingMessageNotificationParams(level=level, data=data, logger="worker")
    await ctx.session.send_notification(t.LoggingMessageNotification(params=params), related_request_id=ctx.request_id)


async def call_tool(ctx: Any, params: t.CallToolRequestParams) -> t.CallToolResult:
    match params.name:
        case "work":
            await log(ctx, "warning", {"key": os.environ.get("KEY", "")})
            await ctx.session.report_progress(1, 3, "begun")
            await ctx.session.report_progress(3, 3, "done")
        case "chatter":
            for number in range(2000):
                await log(ctx, "info", "x" * 5000)
                await ctx.session.report_progress(number, None, "y" * 5000)
        case "leak":
            key = os.environ.get("KEY", "")
            print("the key is", key, file=sys.stderr, flush=True)
            await ctx.session.report_progress(1, None, f"with {key}")
            await log(ctx, "error", f"with {key}")
            raise MCPError(code=-32000, message=f"{key} was refused", data={"key": key})
        case "undeclared":
            key = os.environ.get("KEY", "")
            return t.CallToolResult(content=[], structured_content={"n": key})
        case "exit":
            print("the key was", os.environ.get("KEY", ""), file=sys.stderr, flush=True)
            os._exit(1)
        case "garbage":
            await ctx.session.report_progress(float("1e308") * 10, None, "odd")
            await log(ctx, "emergency", {"deep": [[[[1]]]]})
    return t.CallToolResult(content=[t.TextContent(type="text", text=params.name)])


async def set_level(ctx: Any, params: t.SetLevelRequestParams) -> t.EmptyResult:
    return t.EmptyResult()


server: Server[Any] = Server("telling", on_list_tools=list_tools, on_call_tool=call_tool)
server.add_request_handler("logging/setLevel", t.SetLevelRequestParams, set_level)


async def over_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options(NotificationOptions()))


anyio.run(over_stdio)

"""A well-behaved server over the SDK, with tools that misbehave on demand."""

import os
import sys
from typing import Any

import anyio
import mcp.types as t
from mcp.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

ANY: dict[str, Any] = {"type": "object"}
TEXT: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NUMBER: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
NAME: t.ElicitRequestedSchema = {"type": "object", "properties": {"name": {"type": "string"}}}
started = anyio.Event()
cancelled = anyio.Event()
bus = InMemorySubscriptionBus()
grown = False


async def list_tools(ctx: Any, params: t.PaginatedRequestParams | None) -> t.ListToolsResult:
    names = [
        "slow",
        "was_cancelled",
        "die",
        "progress",
        "mixed",
        "fails",
        "large",
        "ask",
        "grow",
        *(["new"] if grown else []),
    ]
    echo = t.Tool(
        name="echo", description="Say it again", input_schema=TEXT, annotations=t.ToolAnnotations(read_only_hint=True)
    )
    declared = t.Tool(name="declared", input_schema=ANY, output_schema=NUMBER)
    lying = t.Tool(name="lying", input_schema=ANY, output_schema=NUMBER)
    tools = [echo, declared, lying, *(t.Tool(name=name, input_schema=ANY) for name in names)]
    if params is not None and params.cursor == "rest":
        return t.ListToolsResult(tools=tools[3:])
    return t.ListToolsResult(tools=tools[:3], next_cursor="rest")


def text(value: str) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(type="text", text=value)])


async def call_tool(ctx: Any, params: t.CallToolRequestParams) -> t.CallToolResult | t.InputRequiredResult:
    global grown
    match params.name:
        case "echo":
            return text((params.arguments or {})["text"])
        case "declared":
            return t.CallToolResult(content=[], structured_content={"n": 3})
        case "lying":
            return t.CallToolResult(content=[], structured_content={"n": "three"})
        case "slow":
            started.set()
            await ctx.session.report_progress(0, None, "started")
            try:
                await anyio.sleep(60)
            except anyio.get_cancelled_exc_class():
                cancelled.set()
                raise
        case "was_cancelled":
            with anyio.move_on_after(5):
                await started.wait()
                await cancelled.wait()
            return text(str(cancelled.is_set()))
        case "die":
            sys.stderr.write("last words\n")
            sys.stderr.flush()
            os._exit(3)
        case "progress":
            await ctx.session.report_progress(1, 2, "half")
            await ctx.session.report_progress(2, 2, "done")
            return text("finished")
        case "mixed":
            image = t.ImageContent(type="image", data="AAAA", mime_type="image/png")
            file = t.TextResourceContents(uri="file:///a", text="inside")
            return t.CallToolResult(
                content=[
                    t.TextContent(type="text", text="a"),
                    image,
                    t.EmbeddedResource(type="resource", resource=file),
                ]
            )
        case "fails":
            return t.CallToolResult(content=[t.TextContent(type="text", text="no luck")], is_error=True)
        case "large":
            return text("x" * 3000)
        case "ask":
            answer = (params.input_responses or {}).get("name")
            if answer is None:
                form = t.ElicitRequestFormParams(message="Your name?", requested_schema=NAME)
                return t.InputRequiredResult(input_requests={"name": t.ElicitRequest(params=form)})
            assert isinstance(answer, t.ElicitResult)
            return text(f"{answer.action} {(answer.content or {}).get('name')}")
        case "grow":
            grown = True
            await bus.publish(ToolsListChanged())
            if ctx.session.can_send_request:
                await ctx.session.send_tool_list_changed()
            return text("grown")
    raise ValueError(params.name)


class Announcing(Server[Any]):
    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        options = notification_options or NotificationOptions(True, True, True)
        return super().create_initialization_options(options, *args, **kwargs)


async def main() -> None:
    server = Announcing(
        "many", on_list_tools=list_tools, on_call_tool=call_tool, on_subscriptions_listen=ListenHandler(bus)
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)

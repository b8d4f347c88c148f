"""The suite's fixture: a server that has all that the suite calls, reads and gets. Run by itself, it is on stdio."""

from typing import Any

import anyio
import mcp.types as t
from mcp.server import NotificationOptions, Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError

from tests.conformance import asking, reading, tools

__all__ = ["asking"]  # importing it adds its tools

NAMES = (*tools.TOOLS, *reading.PROMPTS)
"""Of its tools and prompts."""


class Fixture(Server[Any]):
    """A server that says in the older protocol's handshake that it announces all changes."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **options: Any
    ) -> Any:
        """The SDK passes nothing over HTTP."""
        told = notification_options or NotificationOptions(True, True, True)
        return super().create_initialization_options(told, *args, **options)


async def list_tools(_context: Any, _params: Any) -> t.ListToolsResult:
    """All of them."""
    return t.ListToolsResult(tools=[tool for tool, _ in tools.TOOLS.values()])


async def call_tool(context: Any, params: t.CallToolRequestParams) -> tools.Result:
    """One of them."""
    if params.name not in tools.TOOLS:
        raise MCPError(code=t.INVALID_PARAMS, message=f"Unknown tool: {params.name}")
    _, handler = tools.TOOLS[params.name]
    return await handler(context, params)


async def nothing(_context: Any, _params: Any) -> t.EmptyResult:
    return t.EmptyResult()


def fixture() -> Server[Any]:
    """What the suite expects of a server that has everything."""
    server = Fixture(
        "fixture",
        version="1",
        instructions="What the conformance suite calls.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=reading.list_resources,
        on_list_resource_templates=reading.list_templates,
        on_read_resource=reading.read_resource,
        on_list_prompts=reading.list_prompts,
        on_get_prompt=reading.get_prompt,
        on_completion=reading.complete,
        on_subscribe_resource=nothing,
        on_unsubscribe_resource=nothing,
        on_set_logging_level=nothing,
        on_subscriptions_listen=ListenHandler(tools.BUS),
    )
    security = RequestStateSecurity.ephemeral()
    server.middleware.append(RequestStateBoundary(security, default_audience="fixture"))
    return server


async def main() -> None:
    """Serve one client on stdin and stdout."""
    server = fixture()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)

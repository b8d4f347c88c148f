"""The program that the suite talks to: Tenuto's own server, with the suite's fixture at a path of its own.

The fixture is mounted as the runtime's own MCP server is: in the same kind of endpoint, behind the same bounds of
messages, guard, authentication and connections. What is shown of the transport with it holds for the product.
"""

import argparse
from typing import Any

import anyio
import mcp.types as t
from mcp.server import NotificationOptions, Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from starlette.routing import Route

from tenuto.runtime import serve
from tenuto.runtime.app import DIALECTS, opened
from tenuto.runtime.config import Settings, load
from tenuto.runtime.dialects.base import DialectServices
from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.dialect import Dialect
from tenuto.runtime.mcp.http import Endpoint
from tenuto.runtime.mcp.messages import BoundedMessages
from tests.conformance import asking, reading, tools

PATH = "/conformance/mcp"

__all__ = ["asking"]  # importing it adds its tools


class Fixture(Server[Any]):
    """A server that says in the older protocol's handshake that it announces all changes."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **options: Any
    ) -> Any:
        """The SDK passes nothing over HTTP."""
        told = notification_options or NotificationOptions(True, True, True)
        return super().create_initialization_options(told, *args, **options)


async def list_tools(_context: Any, _params: Any) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[tool for tool, _ in tools.TOOLS.values()])


async def call_tool(context: Any, params: t.CallToolRequestParams) -> tools.Result:
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


async def run(settings: Settings) -> None:
    """Serve until a signal."""
    endpoint = Endpoint(fixture(), principal_of=principal_of, max_body_bytes=settings.max_body_bytes)
    route = Route(PATH, BoundedMessages(endpoint))

    def conformance(_services: DialectServices) -> Dialect:
        return Dialect("conformance", ERRORS, (route,))

    with serve.listening(settings.host, settings.port) as listener:
        async with endpoint.run(), opened(settings, (*DIALECTS, conformance)) as app:
            await serve.Server(app, serve.url_of(listener), settings).serve([listener])


def main() -> None:
    """As `tenuto serve`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    for name in ("port", "data-dir", "model"):
        parser.add_argument(f"--{name}")
    given = vars(parser.parse_args())
    del given["command"]
    anyio.run(run, load(given))


if __name__ == "__main__":
    main()

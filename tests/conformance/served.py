"""The program that the suite talks to: Tenuto's own server, with the suite's fixture at a path of its own.

The fixture is mounted as the runtime's own MCP server is: in the same kind of endpoint, behind the same bounds of
messages, guard, authentication and connections. What is shown of the transport with it holds for the product. Its tools
that take long are calls of the product's own.
"""

import argparse
from typing import Any

import anyio
import mcp.types as t
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
from tests.conformance import tools, working
from tests.conformance.fixture import call_tool, fixture

PATH = "/conformance/mcp"


async def list_tools(_context: Any, _params: Any) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[*(tool for tool, _ in tools.TOOLS.values()), *working.TOOLS.values()])


async def run(settings: Settings) -> None:
    """Serve until a signal."""
    server = fixture()
    endpoint = Endpoint(server, principal_of=principal_of, max_body_bytes=settings.max_body_bytes)
    route = Route(PATH, BoundedMessages(endpoint))

    def conformance(services: DialectServices) -> Dialect:
        long = working.Working(services.runner)
        long.serve(server)

        async def call(context: Any, params: t.CallToolRequestParams) -> Any:
            return await (long.call if params.name in working.TOOLS else call_tool)(context, params)

        server.add_request_handler("tools/list", t.PaginatedRequestParams, list_tools)
        server.add_request_handler("tools/call", t.CallToolRequestParams, call)
        return Dialect("conformance", ERRORS, (route,))

    with serve.listening(settings.host, settings.port) as listener:
        async with endpoint.run(), opened(settings, (*DIALECTS, conformance)) as app:
            await serve.Server(app, serve.url_of(listener), settings).serve([listener])


def main() -> None:
    """As `tenuto serve`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    for name in ("port", "data-dir", "model", "mcp-config"):
        parser.add_argument(f"--{name}")
    given = vars(parser.parse_args())
    del given["command"]
    anyio.run(run, load(given))


if __name__ == "__main__":
    main()

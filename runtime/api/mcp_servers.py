"""GET /v1/mcp/servers: the configured MCP servers, how each stands, and to an admin what it wrote. Never a secret."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.query import number
from tenuto.runtime.schema.mcp_servers import McpServerAnswer, McpServersAnswer, server_answer
from tenuto.tools.host import ServerState
from tenuto.tools.registry import Registry

STDERR_LINES = 20
MAX_STDERR_LINES = 200


class Source(Protocol):
    """A configured server, as far as it is shown."""

    @property
    def state(self) -> ServerState:
        """Where it stands."""

    @property
    def stderr(self) -> Sequence[str]:
        """Its last lines, without secrets."""


@dataclass(frozen=True, slots=True)
class McpServersApi:
    """The endpoint."""

    servers: Sequence[Source]
    registry: Registry

    async def index(self, request: Request) -> Response:
        """All servers, in the order of the configuration. `stderr` says how many lines of each are wanted.

        What a server's program writes concerns all who use it, so only an admin sees it.
        """
        lines = number(request, "stderr", STDERR_LINES, least=0, most=MAX_STDERR_LINES)
        if not principal_of(request).is_admin:
            lines = 0
        tools: dict[str, list[str]] = {}
        for each in self.registry.list():
            tools.setdefault(each.server, []).append(each.name)
        data = [_answer(server, tools.get(server.state.name, []), lines) for server in self.servers]
        return answered(McpServersAnswer(object="list", data=data))


def _answer(server: Source, tools: list[str], lines: int) -> McpServerAnswer:
    return server_answer(server.state, tools, server.stderr[-lines:] if lines else ())

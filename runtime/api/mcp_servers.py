"""GET /v1/mcp/servers: the configured MCP servers, how each stands, and to an admin what it wrote. Never a secret."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.query import number
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
        data = [_facts(server, tools.get(server.state.name, []), lines) for server in self.servers]
        return Response(to_json({"object": "list", "data": data}), media_type="application/json")


def _facts(server: Source, tools: list[str], lines: int) -> dict[str, Any]:
    state = server.state
    return {
        "id": state.name,
        "object": "mcp.server",
        "status": state.status.value,
        "reason": state.reason or None,
        "transport": state.transport,
        "protocol": state.protocol,
        "era": state.era,
        "tools": tools,
        "restarts": state.restarts,
        "last_error": state.last_error or None,
        "stderr": list(server.stderr[-lines:]) if lines else [],
    }

"""MCP servers as Tenuto shows them, alike in every front end."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from tenuto.runtime.http.shape import Shape
from tenuto.tools.host import Failure, ServerState, Status


class McpServerAnswer(Shape):
    """A configured MCP server."""

    id: str
    object: Literal["mcp.server"]
    status: Status
    reason: str | None
    failure: Failure | None = Field(
        description="Why it is not ready, or that it is and wants a login for some calls; `reason` has it in words."
    )
    transport: str
    protocol: str | None
    era: str | None
    tools: list[str] = Field(description="The tools it lists, by the names that models see.")
    restarts: int
    last_error: str | None
    stderr: list[str] = Field(
        description="The last lines it wrote, secrets removed; empty unless the key is an admin's."
    )


class McpServersAnswer(Shape):
    """All configured MCP servers."""

    object: Literal["list"]
    data: list[McpServerAnswer]


def server_answer(state: ServerState, tools: Sequence[str], stderr: Sequence[str]) -> McpServerAnswer:
    """A server as it is shown."""
    return McpServerAnswer(
        id=state.name,
        object="mcp.server",
        status=state.status,
        reason=state.reason or None,
        failure=state.failure,
        transport=state.transport,
        protocol=state.protocol,
        era=state.era,
        tools=list(tools),
        restarts=state.restarts,
        last_error=state.last_error or None,
        stderr=list(stderr),
    )

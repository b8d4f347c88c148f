"""What the runtime's MCP server and its proxy on stdio have in common. No loop and no model: a proxy starts at once."""

import json
from typing import Any

import mcp.types as t
from mcp.server import NotificationOptions, Server
from mcp.server.context import ServerRequestContext
from mcp.server.models import InitializationOptions

from tenuto.runtime.mcp.icons import icon

Context = ServerRequestContext[Any, Any]
CallResult = t.CallToolResult | t.InputRequiredResult

NAME = "tenuto"
INSTRUCTIONS = (
    "A local model with sessions and tools. `chat` talks to it; pass the session_id of an answer to continue its"
    " conversation. The tools session_*, run_* and models_list manage sessions, runs and models; each session is also"
    " a resource. The other tools are those the model itself can call."
)


SHOWN: dict[str, Any] = {
    "title": "Tenuto",
    "description": "A local model with durable sessions, tools and approvals.",
    "icons": [icon("server")],
}
"""What a client shows of us beside our name."""


class AnnouncingServer(Server[Any]):
    """A server that says in the older protocol's handshake that it announces changed lists of tools and of sessions."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **options: Any
    ) -> InitializationOptions:
        """The SDK passes nothing over HTTP."""
        tells = notification_options or NotificationOptions(
            prompts_changed=True, tools_changed=True, resources_changed=True
        )
        return super().create_initialization_options(tells, *args, **options)


def can_ask(context: Context) -> bool:
    """Whether the client can put a form to a person. One that names no kind of elicitation means forms."""
    capabilities = context.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def can_open(context: Context) -> bool:
    """Whether the client can show a person a link to open."""
    capabilities = context.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and elicitation.url is not None


def failure(text: str, data: dict[str, Any] | None = None) -> t.CallToolResult:
    """A result that says what went wrong, for the model that called to read."""
    told = f"{text} {json.dumps(data, ensure_ascii=False)}" if data else text
    return t.CallToolResult(content=[t.TextContent(type="text", text=told)], is_error=True)

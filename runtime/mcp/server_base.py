"""What the runtime's MCP server and its proxy on stdio have in common. No loop and no model: a proxy starts at once."""

import json
import logging
from typing import Any

import mcp.types as t
from mcp.server import NotificationOptions, Server
from mcp.server.context import ServerRequestContext
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError

from tenuto.runtime.mcp.icons import icon

Context = ServerRequestContext[Any, Any]
CallResult = t.CallToolResult | t.InputRequiredResult

logger = logging.getLogger(__name__)

NAME = "tenuto"
BEHIND_META_KEY = "tenuto/clientCapabilities"
"""In a request's `_meta`: what the client of a proxy can do. The proxy can relay whatever that is."""
ANSWER_S = 3600.0
"""How long a person behind a client may take, where nothing else says so: a client may forget what it was asked."""
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

    tasks: t.ServerTasksCapability | None = None
    """What it says there of tasks."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **options: Any
    ) -> InitializationOptions:
        """The SDK passes nothing over HTTP."""
        tells = notification_options or NotificationOptions(
            prompts_changed=True, tools_changed=True, resources_changed=True
        )
        made = super().create_initialization_options(tells, *args, **options)
        said = made.capabilities.model_copy(update={"tasks": self.tasks})
        return made.model_copy(update={"capabilities": said})


def capabilities(context: Context) -> t.ClientCapabilities:
    """What the client can do; behind a proxy, what the proxy's client can."""
    behind = (context.meta or {}).get(BEHIND_META_KEY)
    if behind is not None:
        try:
            return t.ClientCapabilities.model_validate(behind)
        except ValidationError:
            logger.debug("a proxy tells of capabilities that are none", exc_info=True)
    return context.session.client_capabilities or t.ClientCapabilities()


def can_ask(context: Context) -> bool:
    """Whether the client can put a form to a person. One that names no kind of elicitation means forms."""
    elicitation = capabilities(context).elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def can_open(context: Context) -> bool:
    """Whether the client can show a person a link to open."""
    elicitation = capabilities(context).elicitation
    return elicitation is not None and elicitation.url is not None


async def put_now(context: Context, request: t.InputRequest) -> t.InputResponse:
    """Ask a client of the older protocol, in the middle of its call, and wait for the answer, `ANSWER_S` at most.

    Raises:
        MCPError, ValidationError: it refuses, takes too long, or answers something else.
    """
    match request:
        case t.ElicitRequest():
            kind: type[t.ElicitResult | t.CreateMessageResult | t.CreateMessageResultWithTools] = t.ElicitResult
        case t.CreateMessageRequest():
            kind = t.CreateMessageResultWithTools if request.params.tools else t.CreateMessageResult
        case _:
            raise MCPError(code=t.INVALID_REQUEST, message=f"{request.method} is not asked of clients")
    params = request.params
    if isinstance(params, t.ElicitRequestURLParams) and params.elicitation_id is None:  # the older protocol needs one
        named = params.model_copy(update={"elicitation_id": f"ask-{context.request_id}"})
        request = t.ElicitRequest(params=named)
    related = ServerMessageMetadata(related_request_id=context.request_id)
    return await context.session.send_request(request, kind, ANSWER_S, related)


def failure(text: str, data: dict[str, Any] | None = None) -> t.CallToolResult:
    """A result that says what went wrong, for the model that called to read."""
    told = f"{text} {json.dumps(data, ensure_ascii=False)}" if data else text
    return t.CallToolResult(content=[t.TextContent(type="text", text=told)], is_error=True)

"""What requests about tasks bring, and which protocol has them. No loop: a proxy on stdio reads them too.

https://github.com/modelcontextprotocol/ext-tasks,
https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
"""

from typing import Any

import mcp.types as t
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tenuto.runtime.mcp.server_base import Context, capabilities

EXTENSION = "io.modelcontextprotocol/tasks"
TRIED_IN = "2025-11-25"
RELATED = "io.modelcontextprotocol/related-task"


class TaskParams(t.RequestParams):
    """Names a task."""

    task_id: str


class UpdateParams(TaskParams):
    """Brings answers to what it asks. Those of other keys are ignored, so they may be anything."""

    input_responses: dict[str, Any]


def is_modern(context: Context) -> bool:
    """Whether the request is of the protocol to which tasks are an extension."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def has_extension(context: Context) -> bool:
    """Whether the client takes a task for an answer."""
    return is_modern(context) and EXTENSION in (capabilities(context).extensions or {})


def expect_extension(context: Context) -> None:
    """Raises MCPError where the client does not know tasks."""
    if not has_extension(context):
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(
            code=t.MISSING_REQUIRED_CLIENT_CAPABILITY,
            message=f"this needs the extension {EXTENSION}, which the client has not declared",
            data=needed,
        )

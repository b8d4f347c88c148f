"""Makes what a server answers something that can be worked with: a single malformed tool would cost all the others of a
listing, and the SDK knows no call that begins a task."""

import logging
from collections.abc import Sequence
from typing import Any

from mcp_types import ListToolsResult
from mcp_types.methods import validate_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pydantic import ValidationError

from tenuto.sessions.schemas import malformed, oversize
from tenuto.sessions.tool_limits import MOST_DESCRIPTION
from tenuto.tools.spec import Tool

TASK_META_KEY = "tenuto/task"
_ESSENTIAL = ("name", "description", "inputSchema")

logger = logging.getLogger(__name__)


def mend_listing(result: dict[str, Any]) -> None:
    """Mend a result in place if it is one of tools/list; no other result has `tools` at its top.

    A tool that does not fit is tried without what is not essential, and with the type that its schema must have;
    where that does not help it is left out and named in the log.
    """
    tools = result.get("tools")
    if not isinstance(tools, list) or _fits(result):
        return
    mended = [_mended(result, tool) for tool in tools]
    result["tools"] = [tool for tool in mended if tool is not None]


def mend_task(result: dict[str, Any]) -> None:
    """Put a task that a call has begun where the SDK's client lets it be read: it takes results of calls alone."""
    task = result.get("task")
    if isinstance(task, dict) and "content" not in result:
        del result["task"]
        result["content"] = []
        result["_meta"] = {TASK_META_KEY: task}


def _mended(result: dict[str, Any], tool: Any) -> dict[str, Any] | None:
    if isinstance(tool, dict):
        schema = tool.get("inputSchema")
        typed = {**tool, "inputSchema": {"type": "object", **(schema if isinstance(schema, dict) else {})}}
        bare = {key: typed[key] for key in _ESSENTIAL if key in typed}
        for candidate in (tool, typed, bare):
            if _fits({**result, "tools": [candidate]}):
                return candidate
    name = tool.get("name") if isinstance(tool, dict) else tool
    logger.warning("a malformed tool is left out of a listing: %.100r", name)
    return None


def usable(tools: Sequence[Tool]) -> list[Tool]:
    """The tools that a model can be shown and a call can be held to; the others are named in the log."""
    return [tool for tool in tools if _is_usable(tool)]


def _is_usable(tool: Tool) -> bool:
    schema = tool.spec.parameters
    problem = oversize(schema) or malformed(schema)
    if len(tool.spec.description) > MOST_DESCRIPTION:
        problem = f"its description has more than {MOST_DESCRIPTION} characters"
    if problem is not None:
        logger.warning("the tool %.100r is left out of a listing: %s", tool.spec.name, problem)
    return problem is None


def _fits(result: dict[str, Any]) -> bool:
    version = LATEST_MODERN_VERSION if "resultType" in result else LATEST_HANDSHAKE_VERSION
    try:
        validate_server_result("tools/list", version, result)
        ListToolsResult.model_validate(result, by_name=False)
    except ValidationError:
        return False
    return True

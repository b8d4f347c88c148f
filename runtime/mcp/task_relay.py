"""Tasks over the proxy on stdio, for clients of the newer protocol: made, asked for and cancelled at the owner."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import mcp.types as t
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.server import Server
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from tenuto.runtime.mcp.server_base import BEHIND_META_KEY, Context, capabilities
from tenuto.runtime.mcp.task_shapes import EXTENSION, TaskParams, UpdateParams, is_modern


class TaskMade(t.Result):
    """The answer to a call that has become a task."""

    model_config = ConfigDict(extra="allow")

    result_type: Literal["task"] = "task"


class _Answer(t.Result):
    """Whatever the owner says of one."""

    model_config = ConfigDict(extra="allow")


class _TaskRequest(t.Request[TaskParams, str]):
    name_param = "taskId"


class TakesTasks(ClientExtension):
    """Lets the proxy's connection take tasks, which it passes on. Whether a call may become one, its client says."""

    identifier = EXTENSION

    def claims(self) -> list[ResultClaim[Any]]:
        """Tasks."""
        return [ResultClaim(result_type="task", model=TaskMade, resolve=_never)]


class TaskRelay:
    """The requests about tasks. `client` gives a connection to the owner."""

    def __init__(self, client: Callable[[], Awaitable[Client]]) -> None:
        self._client = client

    def serve(self, server: Server[Any]) -> None:
        """Let the proxy have them."""
        server.extensions[EXTENSION] = {}
        for method in ("tasks/get", "tasks/cancel"):
            server.add_request_handler(method, TaskParams, self.forward)
        server.add_request_handler("tasks/update", UpdateParams, self.forward)

    async def forward(self, context: Context, params: TaskParams) -> dict[str, Any]:
        """Any of them."""
        if not is_modern(context):
            raise MCPError(code=t.METHOD_NOT_FOUND, message="Method not found", data=context.method)
        given = params.model_dump(by_alias=True, mode="json", exclude={"meta"})
        asked = type(params).model_validate({**given, "_meta": {BEHIND_META_KEY: behind(context)}})
        client = await self._client()
        answer = await client.session.send_request(_TaskRequest(method=context.method, params=asked), _Answer)
        return told(answer)


def behind(context: Context) -> dict[str, Any]:
    """What the proxy's client can do, for the owner."""
    own: dict[str, Any] = capabilities(context).model_dump(mode="json", by_alias=True, exclude_none=True)
    return own


def told(answer: t.Result) -> dict[str, Any]:
    """What the owner said, for the proxy's client. The proxy says itself who it is."""
    return answer.model_dump(by_alias=True, mode="json", exclude={"meta"})


async def _never(_made: TaskMade, _context: ClaimContext) -> t.CallToolResult:
    raise AssertionError("calls take tasks as they are")

"""Calls of tools that are made as tasks alone, as servers of 2025-11-25 may want it: begun, waited for, and fetched.

https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
"""

from collections.abc import Sequence
from contextlib import suppress

import anyio
from mcp import MCPError
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    CancelTaskRequest,
    CancelTaskRequestParams,
    CancelTaskResult,
    GetTaskPayloadRequest,
    GetTaskPayloadRequestParams,
    GetTaskRequest,
    GetTaskRequestParams,
    GetTaskResult,
    Task,
    TaskMetadata,
    Tool,
)

from tenuto.sessions.items import JsonObject
from tenuto.tools.host.mending import TASK_META_KEY

KEPT_MS = 3_600_000
"""How long a server is asked to keep a task and its result."""
SOONEST_S, LATEST_S, USUAL_S = 0.05, 5.0, 0.5
"""Between two questions how far a task is; a server names its own interval within the first two."""
CANCEL_S = 2.0
"""How long a server may take to hear that a task is cancelled."""


def made_as_tasks(tools: Sequence[Tool]) -> frozenset[str]:
    """The names of those that are called in no other way."""
    return frozenset(
        tool.name for tool in tools if tool.execution is not None and tool.execution.task_support == "required"
    )


async def call_as_task(
    session: ClientSession, name: str, arguments: JsonObject, progress: ProgressFnT | None
) -> CallToolResult:
    """Make a call and wait for its result. Cancelling it cancels the task. Raises what the SDK's client does."""
    params = CallToolRequestParams(name=name, arguments=arguments, task=TaskMetadata(ttl=KEPT_MS))
    made = await session.send_request(CallToolRequest(params=params), CallToolResult, progress_callback=progress)
    begun = (made.meta or {}).get(TASK_META_KEY)
    if begun is None:
        return made
    task = Task.model_validate(begun)
    id = task.task_id
    try:
        pause, status = _pause(task.poll_interval), task.status
        while status == "working":
            await anyio.sleep(pause)
            state = await session.send_request(GetTaskRequest(params=GetTaskRequestParams(task_id=id)), GetTaskResult)
            pause, status = _pause(state.poll_interval), state.status
        # What the task asks of us comes while this waits.
        wanted = GetTaskPayloadRequest(params=GetTaskPayloadRequestParams(task_id=id))
        return await session.send_request(wanted, CallToolResult)
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(CANCEL_S, shield=True):
            await _cancel(session, id)
        raise


async def _cancel(session: ClientSession, id: str) -> None:
    with suppress(MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError):  # then it has ended anyway
        await session.send_request(CancelTaskRequest(params=CancelTaskRequestParams(task_id=id)), CancelTaskResult)


def _pause(poll_interval: int | None) -> float:
    return USUAL_S if poll_interval is None else min(max(poll_interval / 1000, SOONEST_S), LATEST_S)

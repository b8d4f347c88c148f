"""Tasks as clients are told of them, in both of their protocols. Pure."""

from datetime import UTC, datetime
from typing import Any, Literal

import mcp.types as t
from mcp.server.context import HandlerResult
from pydantic import ConfigDict, Field

from tenuto.runtime.mcp import chat
from tenuto.runtime.mcp.asking import asked
from tenuto.runtime.mcp.server_base import Context
from tenuto.runtime.mcp.task_shapes import RELATED, is_modern
from tenuto.runtime.mcp.tasks import Task, TaskStatus

CAPABILITY = t.ServerTasksCapability(
    cancel=t.TasksCancelCapability(),
    requests=t.ServerTasksRequestsCapability(tools=t.TasksToolsCapability(call=t.TasksCallCapability())),
)
"""What is said of tasks in the handshake of 2025-11-25."""
POLL_MS = 1000
_MADE = "tenuto/task"


class Told(t.NotificationParams):
    """A task, complete."""

    model_config = ConfigDict(extra="allow")


class TaskNotification(t.Notification[Told, Literal["notifications/tasks"]]):
    """Tells those who listen that a task has moved."""

    method: Literal["notifications/tasks"] = "notifications/tasks"
    params: Told = Field(default_factory=Told)


TaskCreated = dict[str, Any] | t.CallToolResult
"""The answer to a call that has become a task, on a connection of the newer protocol and of the older one."""


def created(context: Context, task: Task) -> TaskCreated:
    """The answer to a call that has become a task. `as_created` makes of it what goes over an older connection."""
    if is_modern(context):
        return {"resultType": "task", **_told(context, task), "status": TaskStatus.WORKING}
    # The SDK lets no other result of a call pass on an older connection.
    begun = {**tried(context, task), "status": TaskStatus.WORKING}
    return t.CallToolResult(content=[], meta={_MADE: begun})


def as_created(result: HandlerResult) -> HandlerResult:
    """The result of a call as 2025-11-25 has it where that has become a task."""
    if not isinstance(result, dict) or _MADE not in (result.get("_meta") or {}):
        return result
    return {"task": result["_meta"][_MADE]}


def detailed(context: Context, task: Task) -> dict[str, Any]:
    """A task with what it asks or what came of it, as the extension has it."""
    told = _told(context, task)
    match told["status"]:
        case TaskStatus.INPUT_REQUIRED:
            pause = task.answer.pause
            params = asked(context, pause)
            assert pause is not None
            assert params is not None
            request = t.ElicitRequest(params=params)
            told["inputRequests"] = {str(pause.pause_id): dumped(request)}
        case TaskStatus.COMPLETED:
            told["result"] = dumped(task.result())
        case _:
            pass
    return told


def tried(context: Context, task: Task) -> dict[str, Any]:
    """A task as 2025-11-25 has it."""
    told = _told(context, task)
    told["ttl"], told["pollInterval"] = told.pop("ttlMs"), told.pop("pollIntervalMs")
    return told


def payload(task: Task) -> dict[str, Any]:
    """The result of a task as 2025-11-25 has it."""
    told = dumped(task.result())
    told.pop("resultType", None)
    return {**told, "_meta": {**told.get("_meta", {}), **related(task.id)}}


def related(task_id: str) -> dict[str, Any]:
    """What says in 2025-11-25 that a message belongs to a task."""
    return {RELATED: {"taskId": task_id}}


def dumped(model: Any) -> dict[str, Any]:
    """A model of the SDK's as it goes over the wire."""
    told: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return told


def _told(context: Context, task: Task) -> dict[str, Any]:
    status, message = task.status, None
    if status is TaskStatus.INPUT_REQUIRED:
        form = asked(context, task.answer.pause)
        if form is None:
            # The client cannot answer; somebody else may, or it resumes the run as the message says.
            status, message = TaskStatus.WORKING, chat.waiting(task.answer)
        else:
            message = form.message
    elif task.answer.error:
        message = task.answer.error
    told = {
        "taskId": task.id,
        "status": status,
        "statusMessage": message,
        "createdAt": _time(task.created_at),
        "lastUpdatedAt": _time(task.updated_at),
        "ttlMs": task.ttl_ms,
        "pollIntervalMs": POLL_MS,
    }
    return {name: value for name, value in told.items() if value is not None or name == "ttlMs"}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

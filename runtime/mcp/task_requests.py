"""The requests about tasks, in both of their protocols, and who is told of them. No transport.

Since 2026-07-28 tasks are an extension: `tasks/get` has the result, `tasks/update` brings answers, and a listener names
the tasks that it wants to hear of. In 2025-11-25 `tasks/result` waits for the result, and asks meanwhile.
"""

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import mcp.types as t
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from pydantic import ValidationError

from tenuto.errors import AlreadyDecided, NotFound, SessionBusy
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.mcp import asking
from tenuto.runtime.mcp.acknowledging import Acknowledging, Listen
from tenuto.runtime.mcp.news import News, expect_few
from tenuto.runtime.mcp.protocol_errors import as_protocol_errors
from tenuto.runtime.mcp.server_base import Context, put_now
from tenuto.runtime.mcp.task_answers import TaskNotification, Told, as_created, detailed, payload, related, tried
from tenuto.runtime.mcp.task_shapes import (
    EXTENSION,
    TRIED_IN,
    TaskParams,
    UpdateParams,
    expect_extension,
    is_modern,
)
from tenuto.runtime.mcp.tasks import Task, Tasks, TaskStatus
from tenuto.sessions.principal import Principal

logger = logging.getLogger(__name__)

LOOK_AGAIN_S = 30.0
"""Who waits for a task looks again after so long, whatever it has been told."""
NAME_HEADER = "mcp-name"


class TaskRequests:
    """Their handlers. Event-loop thread only."""

    def __init__(self, runner: LoopPort, news: News, tasks: Tasks, principal_of: Callable[[Any], Principal]) -> None:
        self._runner, self._news, self._tasks, self._principal_of = runner, news, tasks, principal_of

    def serve(self, server: Server[Any]) -> None:
        """Let a server have them."""
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, self.get)
        server.add_request_handler("tasks/result", TaskParams, self.result)
        server.add_request_handler("tasks/cancel", TaskParams, self.cancel)
        server.add_request_handler("tasks/update", UpdateParams, self.update)
        server.middleware.append(_older_results)

    async def get(self, context: Context, params: TaskParams) -> dict[str, Any]:
        """How a task stands."""
        with as_protocol_errors("tasks/get"):
            task = await self._named(context, params)
            return detailed(context, task) if is_modern(context) else tried(context, task)

    async def cancel(self, context: Context, params: TaskParams) -> dict[str, Any]:
        """Cancel a task's run, where it is not over. The older protocol wants to be told where it is."""
        with as_protocol_errors("tasks/cancel"):
            task = await self._named(context, params)
            if is_modern(context):
                with suppress(SessionBusy):  # a tool takes long to hear of it: the extension waits for nothing
                    await self._cancel(self._who(context), task)
                return {}
            if task.status.is_over:
                raise MCPError(code=t.INVALID_PARAMS, message=f"the task is over: it is {task.status}")
            await self._cancel(self._who(context), task)
            return tried(context, await self._tasks.find(self._who(context), task.id))

    async def update(self, context: Context, params: UpdateParams) -> dict[str, Any]:
        """Give a task what it asks for; answers to what it does not ask now change nothing."""
        _expect(is_modern(context), "tasks/update")
        with as_protocol_errors("tasks/update"):
            task = await self._named(context, params)
            pause_id = _asks(task)
            if pause_id is not None and pause_id in params.input_responses:
                reply = _reply(pause_id, params.input_responses[pause_id])
                await self._answer(self._who(context), task, pause_id, reply)
            return {}

    async def result(self, context: Context, params: TaskParams) -> dict[str, Any]:
        """Wait until a task is over. What it asks meanwhile is asked once, of the client that waits."""
        _expect(context.protocol_version == TRIED_IN, "tasks/result")
        with as_protocol_errors("tasks/result"):
            who, put = self._who(context), set[str]()
            task = await self._named(context, params)
            while not task.status.is_over:
                rest = self._news.next_rest(task.run_id)
                task = await self._tasks.find(who, params.task_id)
                pause_id, form = _asks(task), asking.asked(context, task.answer.pause)
                if pause_id is not None and form is not None and pause_id not in put:
                    put.add(pause_id)
                    if (reply := await _ask(context, task, form)) is not None:
                        await self._answer(who, task, pause_id, reply)
                elif not task.status.is_over:
                    with anyio.move_on_after(LOOK_AGAIN_S):
                        await rest.wait()
                task = await self._tasks.find(who, params.task_id)
            return payload(task)

    async def listen(
        self, context: Context, params: t.SubscriptionsListenRequestParams, plain: Listen
    ) -> t.SubscriptionsListenResult:
        """A client's stream; `plain` tells it all but of tasks.

        Raises:
            MCPError: it does not know tasks, or names too many.
        """
        named = _wanted(params)
        if not named:
            return await plain(context, params)
        expect_extension(context)
        expect_few(len(named))
        who = self._who(context)
        known = [task for id in named if (task := await self._found(who, id)) is not None]
        session = Acknowledging(context.session, {"taskIds": [task.id for task in known]})
        failed: MCPError | None = None
        result = t.SubscriptionsListenResult()
        async with anyio.create_task_group() as group:
            for task in known:
                group.start_soon(self._tell, context, who, task, session.acknowledged)
            try:
                result = await plain(session.within(context), params)
            except MCPError as exc:  # goes on as it is, not in a group
                failed = exc
            group.cancel_scope.cancel()
        if failed is not None:
            raise failed
        return result

    async def _tell(self, context: Context, who: Principal, task: Task, acknowledged: anyio.Event) -> None:
        """Tell of a task as it stands, and whenever it stands otherwise, until it is over or gone."""
        meta = {SUBSCRIPTION_ID_META_KEY: context.request_id}
        await acknowledged.wait()
        told: dict[str, Any] | None = None
        with suppress(NotFound, MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                rest = self._news.next_rest(task.run_id)
                task = await self._tasks.find(who, task.id)
                if (now := detailed(context, task)) != told:
                    told = now
                    notification = TaskNotification(params=Told.model_validate({**now, "_meta": meta}))
                    await context.session.send_notification(
                        notification,  # type: ignore[arg-type]  # the SDK knows none of extensions
                        related_request_id=context.request_id,
                    )
                if task.status.is_over:
                    return
                with anyio.move_on_after(LOOK_AGAIN_S):
                    await rest.wait()

    async def _named(self, context: Context, params: TaskParams) -> Task:
        """The task that a request names."""
        if is_modern(context):
            expect_extension(context)
            _expect_header(context, params.task_id)
        else:
            _expect(context.protocol_version == TRIED_IN, context.method)
        return await self._tasks.find(self._who(context), params.task_id)

    async def _found(self, who: Principal, id: str) -> Task | None:
        try:
            return await self._tasks.find(who, id)
        except NotFound:
            return None

    async def _cancel(self, who: Principal, task: Task) -> None:
        if not task.status.is_over:
            await self._runner.cancel(who, task.run_id)

    async def _answer(self, who: Principal, task: Task, pause_id: str, reply: t.ElicitResult) -> None:
        """What somebody else has answered meanwhile stays answered."""
        keep_as = self._tasks.kept_as(task)
        with suppress(AlreadyDecided):
            await asking.go_on(self._runner, who, pause_id, reply, keep_as)

    def _who(self, context: Context) -> Principal:
        return self._principal_of(context.request)


async def _older_results(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Middleware: the SDK knows no other results of calls on older connections than those of tools."""
    result = await call_next(ctx)
    return result if is_modern(ctx) or ctx.method != "tools/call" else as_created(result)


async def _ask(context: Context, task: Task, form: t.ElicitRequestParams) -> t.ElicitResult | None:
    """Ask the client that waits for a task, and is told that the question belongs to it. None: it does not answer."""
    params = form.model_validate({**form.model_dump(by_alias=True, exclude_none=True), "_meta": related(task.id)})
    try:
        said = await put_now(context, t.ElicitRequest(params=params))
    except (MCPError, ValidationError):
        logger.debug("a client that waits for a task has not answered", exc_info=True)
        return None
    return said if isinstance(said, t.ElicitResult) else None


def _asks(task: Task) -> str | None:
    """The id of what a task asks a person."""
    is_asking = task.status is TaskStatus.INPUT_REQUIRED and task.answer.pause is not None
    return task.answer.pause.pause_id if is_asking and task.answer.pause is not None else None


def _reply(key: str, given: Any) -> t.ElicitResult:
    try:
        return t.ElicitResult.model_validate(given)
    except ValidationError:
        shown = json.dumps(key)
        raise MCPError(
            code=t.INVALID_PARAMS, message=f"inputResponses[{shown}] must be the result of an elicitation"
        ) from None


def _wanted(params: t.SubscriptionsListenRequestParams) -> list[str]:
    wanted = (params.notifications.model_extra or {}).get("taskIds")
    if wanted is None:
        return []
    if not isinstance(wanted, list) or not all(isinstance(id, str) for id in wanted):
        raise MCPError(code=t.INVALID_PARAMS, message="taskIds must be a list of ids")
    return list(dict.fromkeys(wanted))


def _expect(holds: bool, method: str) -> None:
    """Raises MCPError where the request's protocol has no such method."""
    if not holds:
        raise MCPError(code=t.METHOD_NOT_FOUND, message="Method not found", data=method)


def _expect_header(context: Context, task_id: str) -> None:
    """Raises MCPError where what routes a request over HTTP does not name its task."""
    if context.request is not None and context.request.headers.get(NAME_HEADER, "").strip() != task_id:
        raise MCPError(code=t.HEADER_MISMATCH, message="the header Mcp-Name must be the taskId")

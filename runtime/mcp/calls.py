"""Calls of tools over MCP: our own tools, and every tool of the registry under its exported name. No transport.

The SDK validates no arguments and tells clients of the older protocol the text of any exception, so both are done here:
arguments are checked, and no exception leaves a call.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import mcp.types as t
from mcp.shared.exceptions import MCPError

from tenuto.errors import InvalidRequest, NotFound, TenutoError
from tenuto.runtime.loop.decisions import DENIED
from tenuto.runtime.loop.events import Answer
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.loop.requests import KeepAs, Turn
from tenuto.runtime.mcp import approval, asking, chat, exported, handles, questions
from tenuto.runtime.mcp.chat_results import chat_result, success
from tenuto.runtime.mcp.direct_calls import DirectCalls
from tenuto.runtime.mcp.gateway import Behind
from tenuto.runtime.mcp.logs import RunLog, sender, wanted
from tenuto.runtime.mcp.news import News
from tenuto.runtime.mcp.own_tools import INPUTS, RUN_RESUME
from tenuto.runtime.mcp.protocol_errors import expect_json
from tenuto.runtime.mcp.server_base import CallResult, Context, can_ask, failure
from tenuto.runtime.mcp.task_answers import TaskCreated, created
from tenuto.runtime.mcp.task_shapes import TRIED_IN, has_extension, is_modern
from tenuto.runtime.mcp.tasks import Tasks
from tenuto.runtime.schema.conversion import told_event
from tenuto.sessions.principal import Principal
from tenuto.sessions.priority import Priority
from tenuto.tools.registry import Exported
from tenuto.tools.spec import ToolResult
from tenuto.tools.validate import without_nulls

logger = logging.getLogger(__name__)

CallAnswer = CallResult | TaskCreated
MAY_BE_TASKS = (chat.CHAT, RUN_RESUME)
"""The tools that begin runs, which outlive a call. A call of a server's own tool is none, and ends with its client."""
GOODBYE_S = 10.0
"""How long a run may take to notice that its client has gone."""


class Calls:
    """The calls of all clients, over one runner. Event-loop thread only."""

    def __init__(
        self,
        runner: LoopPort,
        news: News,
        behind: Behind,
        direct: DirectCalls,
        principal_of: Callable[[Any], Principal],
        tasks: Tasks,
        *,
        task_after_s: float,
    ) -> None:
        self._runner, self._news, self._behind, self._direct = runner, news, behind, direct
        self._principal_of, self._tasks, self._task_after_s = principal_of, tasks, task_after_s

    async def call(self, context: Context, params: t.CallToolRequestParams) -> CallAnswer:
        """Any of them. Whatever goes wrong is a result in words, where there is to be a result."""
        wants_task = _wants_task(context, params)
        if wants_task and params.name not in MAY_BE_TASKS:
            raise MCPError(code=t.METHOD_NOT_FOUND, message=f"{params.name[:100]!r} cannot be called as a task")
        try:
            if wants_task:
                self._tasks.expect_room(self._principal_of(context.request))
            return await self._dispatch(context, params)
        except MCPError:
            raise
        except TenutoError as exc:
            if wants_task:
                raise MCPError(code=t.INVALID_PARAMS, message=f"{exc.code}: {exc}", data=exc.data or None) from exc
            return failure(f"{exc.code}: {exc}", exc.data)
        except Exception as exc:
            logger.exception("the call of %s over MCP failed", params.name)
            told = "internal: the call failed inside the server; its log has the details"
            if wants_task:
                raise MCPError(code=t.INTERNAL_ERROR, message=told) from exc
            return failure(told)

    async def _dispatch(self, context: Context, params: t.CallToolRequestParams) -> CallAnswer:
        principal = self._principal_of(context.request)
        arguments = params.arguments or {}
        name = params.name
        expect_json("the arguments", arguments)
        if name in INPUTS:
            arguments = without_nulls(INPUTS[name], arguments)
            await self._check(arguments, INPUTS[name])
            params = params.model_copy(update={"arguments": arguments})
        if name == chat.CHAT:
            return await self._chat(context, params, principal)
        if name == RUN_RESUME:
            return await self._resume(context, params, principal)
        if name in INPUTS:
            return success(await handles.answer(self._runner, principal, name, arguments))
        return await self._call(context, params, principal)

    async def _call(self, context: Context, params: t.CallToolRequestParams, principal: Principal) -> CallResult:
        """Call a server's tool for whoever asks, once a person has said yes where that is needed."""
        arguments, approved = params.arguments or {}, False
        tool = self._behind.tool(principal, params.name)
        if tool is None:
            raise MCPError(
                code=t.INVALID_PARAMS, message=f"Unknown tool: {params.name[:100]!r}; tools/list names those there are"
            )
        name = tool.name
        if (resumed := await self._direct.resumed(context, principal, params)) is not None:
            return self._readable(tool, resumed)
        if can_ask(context) and self._runner.needs_word(principal, name):
            question = approval.CallQuestion(name, arguments, tool)
            if params.request_state is not None:
                decision = question.answered(params)
            elif not context.session.can_send_request:
                return question.put()
            else:
                decision = await question.ask(context)
            if decision is None:
                return failure(f"nothing was decided, so {name} was not called")
            if not decision.approve:
                return failure(" ".join(filter(None, (DENIED, decision.message))))
            approved = True
        make = partial(self._runner.call_tool, principal, name, arguments, approved=approved)
        return self._readable(
            tool, await self._direct.make(context, principal, params.name, make, partial(self._wanted, principal))
        )

    def _wanted(self, principal: Principal, context: Context) -> frozenset[t.LoggingLevel]:
        """The levels of messages that the client behind a request wants to read."""
        return wanted(context, self._news.log_level(principal.id, context))

    def _readable(self, tool: Exported, made: ToolResult | t.InputRequiredResult) -> CallResult:
        """The result of a call, or what is asked first, as the client reads it."""
        return self._behind.readable(tool, exported.result(made)) if isinstance(made, ToolResult) else made

    async def _chat(self, context: Context, params: t.CallToolRequestParams, principal: Principal) -> CallAnswer:
        """Answer one turn."""
        answer, patience = approval.answered(params), self._patience(context, params)
        if answer is not None:
            return await self._answered(context, principal, answer, patience)
        turn = self._turn(principal, params.arguments or {})
        keep_as = None if patience is None else self._tasks.kept(session_is_named=turn.session_id is not None)
        run = await self._start(turn, keep_as, is_wanted=_wants_task(context, params))
        progress = chat.RunProgress(context.session.report_progress)
        return await self._follow(context, principal, run, progress, patience)

    async def _resume(self, context: Context, params: t.CallToolRequestParams, principal: Principal) -> CallAnswer:
        """Give a run what it waits for, and answer its next leg."""
        answer, patience = approval.answered(params), self._patience(context, params)
        if answer is not None:
            return await self._answered(context, principal, answer, patience)
        keep_as = None if patience is None else self._tasks.kept(session_is_named=False)
        run = await handles.resume(self._runner, principal, params.arguments or {}, keep_as)
        progress = chat.RunProgress(context.session.report_progress)
        return await self._follow(context, principal, run, progress, patience)

    async def _answered(
        self, context: Context, principal: Principal, answer: approval.Answered, patience: float | None
    ) -> CallAnswer:
        """Go on with a run after the approval that an earlier call of the same turn asked for."""
        keep_as = None if patience is None else self._tasks.kept(session_is_named=False)
        run = await self._reply(principal, answer.pause_id, answer.reply, keep_as)
        if run is None:
            return failure(f"nothing was decided; the approval {answer.pause_id} is still open")
        progress = chat.RunProgress(context.session.report_progress, first=answer.first, told=answer.last)
        return await self._follow(context, principal, run, progress, patience)

    def _patience(self, context: Context, params: t.CallToolRequestParams) -> float | None:
        """How long a client waits for the answer of a run before it takes a task; None: it takes none."""
        if _wants_task(context, params):
            return 0.0
        return self._task_after_s if has_extension(context) else None

    async def _start(self, turn: Turn, keep_as: KeepAs | None, *, is_wanted: bool) -> Follower:
        """Begin a run, which is kept for a task where its session is in the store."""
        try:
            priority = Priority.BACKGROUND if is_wanted else None
            return await self._runner.start(replace(turn, keep_as=keep_as, priority=priority))
        except InvalidRequest as exc:
            if exc.param != "background":
                raise
            if is_wanted:
                raise InvalidRequest(
                    f"the session {turn.session_id!r} is kept in memory only, so there can be no task; call without one"
                ) from exc
            return await self._runner.start(turn)

    async def _check(self, arguments: dict[str, Any], schema: dict[str, Any]) -> None:
        """Raise InvalidRequest where the arguments do not fit the schema."""
        if wrong := await self._runner.registry.check(schema, arguments):
            raise InvalidRequest("the arguments are not valid: " + "; ".join(wrong))

    def _turn(self, principal: Principal, arguments: dict[str, Any]) -> Turn:
        return chat.turn(principal, arguments, server_of=self._server_of)

    async def _follow(
        self,
        context: Context,
        principal: Principal,
        run: Follower,
        progress: chat.RunProgress,
        patience: float | None,
    ) -> CallAnswer:
        """Show a run to the client until it ends, waits for what the client cannot be asked, or goes on as a task."""
        log = RunLog(sender(context), self._wanted(principal, context), told=progress.told)
        patience_s = math.inf
        if patience is not None and run.kept is not None:
            patience_s = patience
            run.claim()
        while True:
            answer = await _watch(run, progress, log, patience_s)
            if answer is None and not self._tasks.admit(principal, run.run):
                if not is_modern(context):
                    await run.disconnected()
                    self._tasks.expect_room(principal)
                patience_s = math.inf  # it stays a call
                continue
            if answer is None:
                run.let_go()
                task = await self._tasks.find(principal, await self._tasks.id_of(principal, run.run))
                return created(context, task)
            asked = asking.asked(context, answer.pause)
            if answer.pause is None or asked is None:
                return chat_result(answer, progress.text, progress.calls)
            if not context.session.can_send_request:
                return approval.question(answer.pause, asked, first=progress.first or 1, last=progress.last or 0)
            went_on = await self._reply(principal, str(answer.pause.pause_id), await questions.ask(context, asked))
            if went_on is None:
                return chat_result(answer, progress.text, progress.calls)
            run = went_on

    async def _reply(
        self, principal: Principal, pause_id: str, reply: t.ElicitResult, keep_as: KeepAs | None = None
    ) -> Follower | None:
        """Give a run what a person has answered; None where that decides nothing."""
        run = await asking.go_on(self._runner, principal, pause_id, reply, keep_as)
        return None if run is None else Follower(run, claims=True)

    def _server_of(self, name: str) -> str:
        found = self._runner.registry.find(name)
        if found is None:
            raise NotFound("tool", name, [each.name for each in self._runner.registry.list()])
        return found.server


def _wants_task(context: Context, params: t.CallToolRequestParams) -> bool:
    """Whether the call asks for a task: in 2025-11-25 the client decides that, later the server."""
    return params.task is not None and context.protocol_version == TRIED_IN


async def _watch(run: Follower, progress: chat.RunProgress, log: RunLog, patience_s: float) -> Answer | None:
    """Tell of the run up to its next rest, and give the answer then. If the client goes away, so does the run.

    None: it takes longer than that.
    """
    done = False
    try:
        with anyio.move_on_after(patience_s):
            await log.begin(run.id, run.session_id, run.model)
            async for number, event in run.events(progress.last):
                told = told_event(number, event)
                await progress.see(told)
                await log.see(told)
            await progress.flush()
            answer = await run.answer()
            done = True
            return answer
        done = True
        return None
    finally:
        if not done:
            with anyio.move_on_after(GOODBYE_S, shield=True):
                await run.disconnected()

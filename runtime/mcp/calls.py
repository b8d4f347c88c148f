"""Calls of tools over MCP: our own tools, and every tool of the registry under its exported name. No transport.

The SDK validates no arguments and tells clients of the older protocol the text of any exception, so both are done here:
arguments are checked, and no exception leaves a call.
"""

import json
import logging
from collections.abc import Callable
from typing import Any

import anyio
import mcp.types as t
from mcp.shared.exceptions import MCPError

from tenuto.errors import InvalidRequest, NotFound, TenutoError
from tenuto.runtime.loop.decisions import DENIED
from tenuto.runtime.loop.events import Answer, RunPaused
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.held_calls import PAUSE as QUESTION
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.loop.requests import Turn
from tenuto.runtime.mcp import approval, chat, exported, handles, questions
from tenuto.runtime.mcp.gateway import Behind
from tenuto.runtime.mcp.logs import RunLog, sender, wanted
from tenuto.runtime.mcp.news import News
from tenuto.runtime.mcp.own_tools import INPUTS, RUN_RESUME
from tenuto.runtime.mcp.protocol_errors import expect_json
from tenuto.runtime.mcp.server_base import CallResult, Context, can_ask, failure
from tenuto.runtime.schema.conversion import told_event
from tenuto.sessions.principal import Principal
from tenuto.sessions.records import RunStatus
from tenuto.tools.validate import without_nulls

logger = logging.getLogger(__name__)

GOODBYE_S = 10.0
"""How long a run may take to notice that its client has gone."""


class Calls:
    """The calls of all clients, over one runner. Event-loop thread only."""

    def __init__(self, runner: LoopPort, news: News, behind: Behind, principal_of: Callable[[Any], Principal]) -> None:
        self._runner, self._news, self._behind, self._principal_of = runner, news, behind, principal_of

    async def call(self, context: Context, params: t.CallToolRequestParams) -> CallResult:
        """Any of them. Whatever goes wrong is a result in words."""
        try:
            return await self._dispatch(context, params)
        except MCPError:
            raise
        except TenutoError as exc:
            return failure(f"{exc.code}: {exc}", exc.data)
        except Exception:
            logger.exception("the call of %s over MCP failed", params.name)
            return failure("internal: the call failed inside the server; its log has the details")

    async def _dispatch(self, context: Context, params: t.CallToolRequestParams) -> CallResult:
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
        report = context.session.report_progress
        result = await self._runner.call_tool(principal, name, arguments, progress=report, approved=approved)
        return self._behind.readable(tool, exported.result(result))

    async def _chat(self, context: Context, params: t.CallToolRequestParams, principal: Principal) -> CallResult:
        """Answer one turn."""
        answer = approval.answered(params)
        if answer is not None:
            return await self._answered(context, principal, answer)
        run = await self._runner.start(self._turn(principal, params.arguments or {}))
        return await self._follow(context, principal, run, chat.RunProgress(context.session.report_progress))

    async def _resume(self, context: Context, params: t.CallToolRequestParams, principal: Principal) -> CallResult:
        """Give a run what it waits for, and answer its next leg."""
        answer = approval.answered(params)
        if answer is not None:
            return await self._answered(context, principal, answer)
        run = await handles.resume(self._runner, principal, params.arguments or {})
        return await self._follow(context, principal, run, chat.RunProgress(context.session.report_progress))

    async def _answered(self, context: Context, principal: Principal, answer: approval.Answered) -> CallResult:
        """Go on with a run after the approval that an earlier call of the same turn asked for."""
        run = await self._reply(principal, answer.pause_id, answer.reply)
        if run is None:
            return failure(f"nothing was decided; the approval {answer.pause_id} is still open")
        progress = chat.RunProgress(context.session.report_progress, first=answer.first, told=answer.last)
        return await self._follow(context, principal, run, progress)

    async def _check(self, arguments: dict[str, Any], schema: dict[str, Any]) -> None:
        """Raise InvalidRequest where the arguments do not fit the schema."""
        if wrong := await self._runner.registry.check(schema, arguments):
            raise InvalidRequest("the arguments are not valid: " + "; ".join(wrong))

    def _turn(self, principal: Principal, arguments: dict[str, Any]) -> Turn:
        return chat.turn(principal, arguments, server_of=self._server_of)

    async def _follow(
        self, context: Context, principal: Principal, run: Follower, progress: chat.RunProgress
    ) -> CallResult:
        """Show a run to the client until it ends or waits for what the client cannot be asked for."""
        levels = wanted(context, self._news.log_level(principal.id, context))
        log = RunLog(sender(context), levels, told=progress.told)
        await log.begin(run.id, run.session_id, run.model)
        while True:
            answer = await _watch(run, progress, log)
            asked = _asked(context, answer.pause)
            if answer.pause is None or asked is None:
                return _chat_result(answer, progress)
            if not context.session.can_send_request:
                return approval.question(answer.pause, asked, first=progress.first or 1, last=progress.last or 0)
            went_on = await self._reply(principal, str(answer.pause.pause_id), await questions.ask(context, asked))
            if went_on is None:
                return _chat_result(answer, progress)
            run = went_on

    async def _reply(self, principal: Principal, pause_id: str, reply: t.ElicitResult) -> Follower | None:
        """Give a run what a person has answered; None where that decides nothing."""
        if pause_id.startswith(QUESTION):
            return Follower(await self._runner.answer(principal, pause_id, questions.reply_of(reply)), claims=True)
        decision = approval.decision(reply)
        if decision is None:
            return None
        run = await self._runner.decide(
            principal, pause_id, approve=decision.approve, message=decision.message, remember=decision.remember
        )
        return Follower(run, claims=True)

    def _server_of(self, name: str) -> str:
        found = self._runner.registry.find(name)
        if found is None:
            raise NotFound("tool", name, [each.name for each in self._runner.registry.list()])
        return found.server


def _asked(context: Context, pause: RunPaused | None) -> t.ElicitRequestParams | None:
    """What to ask the person behind the client; None where nothing is asked, or the client cannot ask it."""
    if pause is not None and pause.question is not None and questions.can_relay(context, pause.question):
        return questions.elicitation(pause, pause.question)
    return approval.form(pause) if pause is not None and approval.is_question(pause) and can_ask(context) else None


async def _watch(run: Follower, progress: chat.RunProgress, log: RunLog) -> Answer:
    """Tell of the run up to its next rest, and give the answer then. If the client goes away, so does the run."""
    done = False
    try:
        async for number, event in run.events(progress.last):
            told = told_event(number, event)
            await progress.see(told)
            await log.see(told)
        await progress.flush()
        answer = await run.answer()
        done = True
        return answer
    finally:
        if not done:
            with anyio.move_on_after(GOODBYE_S, shield=True):
                await run.disconnected()


def success(structured: dict[str, Any], text: str | None = None) -> t.CallToolResult:
    """A result that programs read as JSON. Where it has a text of its own, the JSON beside it leaves that out."""
    facts = structured if text is None else {key: value for key, value in structured.items() if key != "text"}
    blocks = [json.dumps(facts, ensure_ascii=False)] if text is None else [text, json.dumps(facts, ensure_ascii=False)]
    content: list[t.ContentBlock] = [t.TextContent(type="text", text=block) for block in blocks]
    return t.CallToolResult(content=content, structured_content=structured)


def _chat_result(answer: Answer, progress: chat.RunProgress) -> t.CallToolResult:
    if answer.status is RunStatus.FAILED:
        failed = f"{answer.error_code or 'internal'}: {answer.error or 'the run failed'}"
        return failure(failed, {"run_id": answer.run_id, "session_id": answer.session_id})
    shown = success(chat.result(answer, progress), progress.text)
    if (waiting := chat.waiting(answer)) is not None:
        shown.content.insert(1, t.TextContent(type="text", text=waiting))
    return shown

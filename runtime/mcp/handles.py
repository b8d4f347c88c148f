"""Sessions, runs and models as handles: the tools that look after what `chat` makes. No transport."""

from dataclasses import replace
from typing import Any

from tenuto.errors import Conflict, InvalidRequest
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.loop.requests import KeepAs, SessionMode, Turn
from tenuto.runtime.loop.run import Run
from tenuto.runtime.mcp import own_tools
from tenuto.runtime.schema.models import models_answer
from tenuto.runtime.schema.runs import run_answer
from tenuto.runtime.schema.sessions import deleted_answer, session_answer, session_page
from tenuto.runtime.schema.transcript import PAGE, transcript_answer
from tenuto.sessions.items import ToolResultItem
from tenuto.sessions.principal import Principal
from tenuto.sessions.records import PauseReason, RunStatus
from tenuto.tools.asking import Action, Reply


async def answer(runner: LoopPort, principal: Principal, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What one of these tools answers to valid arguments.

    Raises:
        TenutoError: there is no such thing, or its state does not allow it.
    """
    match name:
        case own_tools.SESSION_GET:
            session = await runner.snapshot(principal, arguments["session_id"])
            limit = int(arguments.get("limit", PAGE))
            return _told(transcript_answer(session, before=arguments.get("before"), limit=limit))
        case own_tools.SESSION_LIST:
            return await _sessions(runner, principal, arguments)
        case own_tools.SESSION_FORK:
            id, at, new_id = arguments["session_id"], arguments.get("at"), arguments.get("new_id")
            return _told(session_answer(await runner.fork_session(principal, id, at, new_id)))
        case own_tools.SESSION_DELETE:
            await runner.delete_session(principal, arguments["session_id"])
            return _told(deleted_answer(arguments["session_id"]))
        case own_tools.RUN_GET:
            return _told(run_answer(await runner.run(principal, arguments["run_id"])))
        case own_tools.RUN_CANCEL:
            return _told(run_answer(await runner.cancel(principal, arguments["run_id"])))
        case own_tools.MODELS_LIST:
            return _told(models_answer(runner.models.standings()))
        case _:
            raise AssertionError(f"{name} is not one of these tools")


async def _sessions(runner: LoopPort, principal: Principal, arguments: dict[str, Any]) -> dict[str, Any]:
    limit = int(arguments.get("limit", own_tools.LISTED))
    found = await runner.list_sessions(
        principal, implicit=arguments.get("implicit", False), limit=limit + 1, after=arguments.get("after")
    )
    return _told(session_page(found, limit))


def _told(answer: Shape) -> dict[str, Any]:
    return answer.model_dump(mode="json", exclude_unset=True)


async def resume(
    runner: LoopPort, principal: Principal, arguments: dict[str, Any], keep_as: KeepAs | None = None
) -> Follower:
    """Give a run that waits what it waits for; it goes on, and its leg is kept where `keep_as` says so.

    Raises:
        InvalidRequest: the arguments hold neither a decision nor results, or what the run does not wait for.
        Conflict: the run does not wait.
    """
    decision, results, answer = (arguments.get(name) for name in ("decision", "results", "answer"))
    if [decision, results, answer].count(None) != 2:
        raise InvalidRequest("give one of decision, answer and results")
    run = await runner.run(principal, arguments["run_id"])
    reason, pause = run.record.reason, run.snapshot().pause
    keep_as = keep_as if run.stored else None
    if run.record.status is not RunStatus.PAUSED or reason is None:
        raise Conflict(f"the run {run.id} is not waiting: it is {run.record.status.value}")
    match reason:
        case PauseReason.CLIENT_TOOL if results is not None:
            return await runner.start(replace(_with_results(run, principal, results), keep_as=keep_as))
        case PauseReason.CLIENT_TOOL:
            raise InvalidRequest(f"the run {run.id} waits for results of client tools, not for a decision")
        case PauseReason.INPUT if answer is not None and pause is not None:
            reply = Reply(Action(answer["action"]), answer.get("content"))
            return Follower(await runner.answer(principal, str(pause.pause_id), reply, keep_as), claims=True)
        case PauseReason.INPUT:
            raise InvalidRequest(f"the run {run.id} waits for an answer")
        case PauseReason.APPROVAL if decision is not None and pause is not None:
            decided = await runner.decide(
                principal,
                str(pause.pause_id),
                approve=decision == "approve",
                message=arguments.get("message"),
                remember=arguments.get("remember_for_session", False),
                keep_as=keep_as,
            )
            return Follower(decided, claims=True)
        case _:
            raise InvalidRequest(f"the run {run.id} waits for a decision, not for results")


def _with_results(run: Run, principal: Principal, results: list[dict[str, Any]]) -> Turn:
    """The turn that brings results, held to what the run was held to."""
    items = tuple(
        ToolResultItem(each["tool_call_id"], "", each["content"], is_error=each.get("is_error", False))
        for each in results
    )
    return Turn(
        principal=principal,
        model=run.model,
        items=items,
        session_id=run.session_id,
        mode=SessionMode.APPEND,
        match=False,
        wants_events=True,
        continues=True,
    )

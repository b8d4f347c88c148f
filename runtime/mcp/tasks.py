"""Runs as tasks: what a client asks for again that has called `chat` or `run_resume` and left. No transport.

A task is a request to a run: it begins with the leg that the call began, whose id its own is made of, goes on with the
legs that answer what the run asks a person meanwhile, and ends with the run, or where that waits for its client. All of
it is in the store, so it outlives the connection and the process; a leg that was at work in a crash goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import mcp.types as t

from tenuto.errors import LegNotFound, NotFound, Overloaded
from tenuto.runtime.loop.decisions import leg_after
from tenuto.runtime.loop.events import Answer, RunEvent, ServerCall, TextAdded, ToolReturned
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.past_leg import PastLeg
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.loop.requests import KeepAs
from tenuto.runtime.loop.run import Run
from tenuto.runtime.mcp.chat_results import chat_result
from tenuto.sessions.principal import Principal
from tenuto.sessions.records import LegRecord, PauseReason, RunStatus

_PREFIX = "task_"
_MARK = "mcp_task"
_TTL = "ttl_ms"

MOST_AT_WORK = 32
"""Tasks of one principal that are at work: no connection holds them, and an engine has not many more places."""
RETRY_S = 5.0

AnyLeg = Follower | PastLeg


class TaskStatus(StrEnum):
    """Where a task stands. A run that failed has a result that says so, so no task of ours is `failed`."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether it stays so."""
        return self in (TaskStatus.COMPLETED, TaskStatus.CANCELLED)


@dataclass(frozen=True, slots=True)
class Task:
    """A task as it stands. Times are seconds since the epoch; `ttl_ms` None: as long as its session.

    `answer` is the last leg's; `text` and `calls` are those of all its legs, once it is over.
    """

    id: str
    run_id: str
    status: TaskStatus
    created_at: float
    updated_at: float
    ttl_ms: int | None
    answer: Answer
    text: str
    calls: Sequence[dict[str, Any]]

    def result(self) -> t.CallToolResult:
        """What the call would have been answered."""
        return chat_result(self.answer, self.text, self.calls)


class Tasks:
    """The tasks of all principals. Event-loop thread only. `ttl_s`: how long what no client has named is kept."""

    def __init__(self, runner: LoopPort, ttl_s: float) -> None:
        self._runner, self._ttl_ms = runner, int(ttl_s * 1000)
        self._at_work: dict[str, list[Run]] = {}

    def expect_room(self, principal: Principal) -> None:
        """Raises Overloaded where so many tasks of a principal are at work that there may be no more."""
        if len(self._working(principal)) >= MOST_AT_WORK:
            raise Overloaded("the table of your tasks that are at work", RETRY_S)

    def admit(self, principal: Principal, run: Run) -> bool:
        """Let a run be at work as a task, where there is room."""
        working = self._working(principal)
        if len(working) >= MOST_AT_WORK:
            return False
        self._at_work[principal.id] = [*working, run]
        return True

    def _working(self, principal: Principal) -> list[Run]:
        working = [run for run in self._at_work.pop(principal.id, ()) if run.working]
        if working:
            self._at_work[principal.id] = working
        return working

    def kept(self, *, session_is_named: bool) -> KeepAs:
        """How a leg is kept that belongs to a task: a session that its client has named is kept until it is deleted."""
        return KeepAs({_MARK: {_TTL: None if session_is_named else self._ttl_ms}}, is_detached=True)

    def kept_as(self, task: Task) -> KeepAs:
        """How the leg is kept that a task goes on with."""
        return KeepAs({_MARK: {_TTL: task.ttl_ms}}, is_detached=True)

    async def id_of(self, principal: Principal, run: Run) -> str:
        """The id of the task that the present leg of a run belongs to, which is one that is kept for a task."""
        assert run.leg.record is not None
        first, present = run.request_leg_id, run.leg.record.id
        if first != present:
            try:
                leg = await self._runner.leg(principal, first)
                await leg.disconnected()
            except LegNotFound:
                return _PREFIX + present
            if _mark_of(leg) is None:
                return _PREFIX + present
        return _PREFIX + first

    async def find(self, principal: Principal, id: str) -> Task:
        """A task by its id.

        Raises:
            NotFound: there is none, or it is another principal's.
        """
        legs = await self._legs(principal, id)
        run = await self._runner.run(principal, legs[0].id)
        stands = _standing(legs[-1], run)
        status, told = _status(stands.answer), _Told()
        if status.is_over:
            for leg in legs:
                told.take(leg.told())
            if stands.is_beside:
                told.take_rest(stands.answer)
        first = _kept(legs[0])
        return Task(
            id=id,
            run_id=run.id,
            status=status,
            created_at=first.created_at,
            updated_at=max(stands.at, first.created_at),
            ttl_ms=(_mark_of(legs[0]) or {}).get(_TTL),
            answer=stands.answer,
            text=told.text,
            calls=told.calls,
        )

    async def _legs(self, principal: Principal, id: str) -> list[AnyLeg]:
        """The legs of a task, as far as they are kept: somebody else may have answered what its run asked."""
        legs: list[AnyLeg] = []
        named: str | None = id.removeprefix(_PREFIX) if id.startswith(_PREFIX) else ""
        while named is not None:
            try:
                leg = await self._runner.leg(principal, named)
            except LegNotFound:
                break
            await leg.disconnected()  # a look, which keeps nothing going
            if _mark_of(leg) is None:
                break
            legs.append(leg)
            pause = None if leg.is_under_way else leg.snapshot().pause
            named = None if pause is None or pause.pause_id is None else leg_after(pause.pause_id)
        if not legs:
            raise NotFound("task", id[:100])
        return legs


@dataclass(slots=True)
class _Told:
    """What legs have told."""

    text: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)

    def take(self, events: Sequence[RunEvent]) -> None:
        """And what another one has."""
        self.text += "".join(event.text for event in events if isinstance(event, TextAdded))
        self.calls += [
            _call(ServerCall(event.round, event.call.name, event.call.arguments, event.result, event.status))
            for event in events
            if isinstance(event, ToolReturned)
        ]

    def take_rest(self, answer: Answer) -> None:
        """What legs have told that are not kept for the task: the last text, and the calls of the whole request."""
        self.text += answer.text
        self.calls = [_call(call) for call in answer.server_calls]


@dataclass(frozen=True, slots=True)
class _Standing:
    """The answer as it is now, and since when. `is_beside`: it is of a leg that is not kept for the task."""

    answer: Answer
    at: float
    is_beside: bool = False


def _standing(last: AnyLeg, run: Run) -> _Standing:
    """How a task stands whose last kept leg this is."""
    kept, answer = _kept(last), last.snapshot()
    if kept.status is RunStatus.RUNNING:
        # Nobody may be at work on it: before it goes on after a crash, or where its end could not be kept.
        return _Standing(replace(answer, status=run.status), run.record.updated_at)
    ended_at = kept.ended_at or kept.created_at
    if kept.status is not RunStatus.PAUSED:
        return _Standing(answer, ended_at)
    has_gone_on = run.working or len(run.rounds) > len((kept.usage or {}).get("rounds", ()))
    if has_gone_on and answer.pause is not None and answer.pause.reason is PauseReason.CLIENT_TOOL:
        return _Standing(answer, ended_at)
    if has_gone_on:
        return _Standing(run.snapshot(), run.record.updated_at, is_beside=True)
    if run.status is RunStatus.PAUSED:
        return _Standing(replace(answer, status=run.status), ended_at)
    closed = replace(answer, status=run.status, pause=None, stop_reason=run.record.stop_reason, error=run.record.error)
    return _Standing(closed, run.record.updated_at)


def _status(answer: Answer) -> TaskStatus:
    match answer.status:
        case RunStatus.RUNNING:
            return TaskStatus.WORKING
        case RunStatus.PAUSED if answer.pause is not None and answer.pause.reason is not PauseReason.CLIENT_TOOL:
            return TaskStatus.INPUT_REQUIRED
        case RunStatus.CANCELLED:
            return TaskStatus.CANCELLED
        case _:
            return TaskStatus.COMPLETED


def _kept(leg: AnyLeg) -> LegRecord:
    assert leg.kept is not None
    return leg.kept


def _mark_of(leg: AnyLeg) -> dict[str, Any] | None:
    """What was kept of the task with a leg; None where it belongs to none."""
    mark: dict[str, Any] | None = _kept(leg).request.get(_MARK)
    return mark


def _call(call: ServerCall) -> dict[str, Any]:
    return {
        "round": call.round,
        "name": call.name,
        "arguments": call.arguments,
        "result": call.result,
        "status": call.status,
    }

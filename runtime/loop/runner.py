"""The loop's front: takes turns, begins and resumes runs, and keeps house over them. Event-loop thread only."""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from types import TracebackType
from typing import Any, Self
from uuid import uuid4
from weakref import WeakValueDictionary

import anyio
from anyio.abc import TaskGroup

from tenuto.errors import (
    AlreadyDecided,
    IdempotencyMismatch,
    NotFound,
    Overloaded,
    ShuttingDown,
    TenutoError,
    ToolFailed,
)
from tenuto.runtime.engine.engine import EngineState
from tenuto.runtime.loop.desk import Desk
from tenuto.runtime.loop.events import RunDone
from tenuto.runtime.loop.intake import Admitted, Defaults, Found, Intake, body_digest
from tenuto.runtime.loop.leg import House, Leg
from tenuto.runtime.loop.models import Model, Models
from tenuto.runtime.loop.raw import RawRequest, RawRun
from tenuto.runtime.loop.requests import Turn
from tenuto.runtime.loop.run import Run
from tenuto.sessions import transfer
from tenuto.sessions.changes import SavePause, SaveRun, SaveSession
from tenuto.sessions.principal import Principal
from tenuto.sessions.records import PauseRecord, PauseStatus, RunStatus, SessionSummary
from tenuto.sessions.session import Session
from tenuto.sessions.store import Store
from tenuto.tools.approvals import Permission
from tenuto.tools.spec import CallContext, ToolResult

log = logging.getLogger(__name__)

TICK_S = 1.0
ADMISSION_S = 0.01
"""About how long a turn takes from its commit to its run."""
INTERRUPT_S = 10.0
"""How long runs may take to be closed as interrupted when the server stops."""
SWEEP_TICKS = 60
"""Sessions whose time is over are looked for once in so many ticks."""


class Runner:
    """Begins, resumes and ends runs. An async context manager: leaving it breaks off what is still under way."""

    def __init__(self, house: House, store: Store, models: Models, defaults: Defaults) -> None:
        self.models = models
        self.directory = house.directory
        self.registry = house.registry
        self.watchers: list[Callable[[Run], None]] = []
        """Told whenever a run has begun to wait or has ended."""
        self._house = house
        self._store = store
        self._defaults = defaults
        self._desk = Desk(house, store, models)
        self._intake = Intake(house, self._desk, defaults)
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._group: TaskGroup | None = None
        self._draining = False
        self._admitting = 0
        self._raw: set[RawRun] = set()

    async def __aenter__(self) -> Self:
        """Close what a crash left open, then take turns."""
        await self._recover()
        self._group = await anyio.create_task_group().__aenter__()
        self._group.start_soon(self._keep_house)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel what is under way; each run is closed as interrupted, with what it has."""
        assert self._group is not None
        self._draining = True
        self._group.cancel_scope.cancel()
        if isinstance(error, Exception):  # goes on as it is, not in a group: no run can have caused it
            kind = error = trace = None
        await self._group.__aexit__(kind, error, trace)

    async def drain(self, timeout_s: float) -> None:
        """Take no new turns, and let the runs under way wait or end; after so long they are interrupted."""
        self._draining = True
        with anyio.move_on_after(timeout_s):
            await self._rest()
        with anyio.move_on_after(INTERRUPT_S):
            for run in self._desk.working():
                run.interrupt()
            for raw in list(self._raw):
                raw.close()
            await self._rest()

    async def _rest(self) -> None:
        """Return when no run is under way or about to be."""
        while (runs := self._desk.working()) or self._admitting or self._raw:
            for run in runs:
                await run.answer()
            await anyio.sleep(ADMISSION_S)

    @property
    def is_draining(self) -> bool:
        """Whether it takes no new turns any more."""
        return self._draining

    # Turns.

    async def start(self, turn: Turn) -> Run:
        """Admit a turn and begin or resume its run. A repeat of an Idempotency-Key gets the run that it began.

        Raises before anything has changed: InvalidRequest and its kin, NotFound (the model), SessionBusy,
        SessionPaused, IdempotencyMismatch, Overloaded, ShuttingDown. MissingToolResults keeps the results that came.
        """
        if turn.idempotency_key is None:
            return await self._start(turn)
        async with self._lock(f"key {turn.principal} {turn.idempotency_key}"):
            return await self._repeated(turn, turn.idempotency_key) or await self._start(turn)

    def complete(self, request: RawRequest) -> RawRun:
        """Begin a raw completion, which whoever reads it must read to its end or close.

        Raises what `RawRun` does, and NotFound (the model).
        """
        self._check_open()
        run = RawRun(self.models.find(request.model), request, self._complete_ended)
        self._raw.add(run)
        return run

    def _complete_ended(self, run: RawRun) -> None:
        self._raw.discard(run)
        usage = run.usage
        for kind, tokens in (("computed", usage.computed), ("cached", usage.cached), ("sampled", usage.sampled)):
            self._house.metrics.tokens(run.model.id, kind, tokens)

    async def preview(self, turn: Turn) -> tuple[int, ...]:
        """The tokens that the model would read of a turn. Raises what `start` does of a turn that is not valid."""
        return await self._intake.preview(turn, self.models.find(turn.model))

    async def _repeated(self, turn: Turn, key: str) -> Run | None:
        known = await self._store.key(turn.principal, key)
        if known is None or known.expires_at <= self._house.clock():
            return None
        if known.body_digest != body_digest(turn):
            raise IdempotencyMismatch(f"the Idempotency-Key {key!r} came before with another body")
        run = await self.run(turn.principal, known.run_id)
        run.attached += 1
        return run

    async def _start(self, turn: Turn) -> Run:
        model = self.models.find(turn.model)
        self._check_open()
        model.engine.reserve()
        leg: Leg | None = None
        try:
            found = await self._intake.find(turn)
            async with self._lock(found.session.uid):
                if await self._intake.goes_on(turn, found):
                    leg = await self._admit(turn, model, found)
            if leg is None:
                branch = self._intake.branch(turn, found)
                async with self._lock(branch.session.uid):
                    leg = await self._admit(turn, model, branch)
        finally:
            if leg is None:
                model.engine.unreserve()
        return leg.run

    async def _admit(self, turn: Turn, model: Model, found: Found) -> Leg:
        with self._admission():
            admitted = await self._intake.admit(turn, model, found)
            leg = self._begin_leg(admitted, found.session, model, reserved=True)
        leg.run.attached += 1
        return leg

    @contextmanager
    def _admission(self) -> Iterator[None]:
        """From the commit to the leg's begin is one step, which a drain waits for."""
        self._check_open()
        self._admitting += 1
        try:
            with anyio.CancelScope(shield=True):
                yield
        finally:
            self._admitting -= 1

    def _check_open(self) -> None:
        if self._draining or self._group is None:
            raise ShuttingDown("the server is stopping")
        if len(self._desk.working()) >= self._defaults.max_runs:
            raise Overloaded("the table of runs", 5.0)

    def _begin_leg(self, admitted: Admitted, session: Session, model: Model, *, reserved: bool = False) -> Leg:
        assert self._group is not None
        leg = Leg(
            self._house,
            admitted.run,
            session,
            model,
            admitted.calls,
            admitted.then,
            rendered=admitted.prompt,
            reserved=reserved,
        )
        scope = anyio.CancelScope()
        admitted.run.begin_leg(scope)
        admitted.run.close_waiting = self._close_waiting
        self._desk.add(admitted.run)
        if not admitted.run.rounds:
            self._house.metrics.run_started(model.id)
        self._group.start_soon(self._drive, leg, scope)
        return leg

    async def _drive(self, leg: Leg, scope: anyio.CancelScope) -> None:
        run = leg.run
        try:
            with scope:
                await leg.drive()
        finally:
            if run.working:  # a bug: nobody may wait for ever
                log.error("the leg of run %s ended without a word", run.id)
                run.emit(RunDone(RunStatus.FAILED, "error", "an internal error", "internal"))
            self._desk.settle(run)
            for watcher in self.watchers:
                watcher(run)

    # Runs.

    async def run(self, principal: str, run_id: str) -> Run:
        """A run by its id, at work, waiting or ended.

        Raises:
            NotFound: there is none, or it is another principal's.
        """
        run = await self._desk.find(run_id, principal)
        run.close_waiting = self._close_waiting
        return run

    async def decide(self, principal: str, pause_id: str, *, approve: bool, message: str | None, remember: bool) -> Run:
        """Answer an approval; its run goes on.

        Raises:
            NotFound: there is none, or it is another principal's.
            AlreadyDecided: it has been answered, has expired, or its run has ended.
        """
        self._check_open()
        pause = await self._desk.pause(pause_id)
        if pause is None or pause.principal != principal:
            raise NotFound("approval", pause_id)
        run = await self._desk.find(pause.run_id, principal)
        session = await self._desk.session(run)
        async with self._lock(session.uid):
            pause = await self._desk.pause(pause_id)
            assert pause is not None
            if pause.status is not PauseStatus.OPEN:
                raise AlreadyDecided(f"the approval {pause_id} is {pause.status.value} already")
            if pause.expires_at <= self._house.clock():
                await self._expire(run, session)
                raise AlreadyDecided(f"the approval {pause_id} has expired")
            with self._admission():
                await self._resume_decided(run, session, pause, approve=approve, message=message, remember=remember)
        return run

    async def _resume_decided(
        self, run: Run, session: Session, pause: PauseRecord, *, approve: bool, message: str | None, remember: bool
    ) -> None:
        model = self.models.find(run.model)
        calls = await self._desk.calls(run, session)
        for pending in calls:
            if pending.call.id == pause.call_id:
                pending.approved = approve
                pending.denial = None if approve else " ".join(filter(None, (DENIED, message)))
        if approve and remember:
            session.approved |= {pause.tool}
        status = PauseStatus.APPROVED if approve else PauseStatus.DENIED
        decided = replace(pause, status=status, message=message, remember=remember, decided_at=self._house.clock())
        record = replace(run.record, status=RunStatus.RUNNING, reason=None, expires_at=None)
        await self.directory.commit(session, SavePause(decided), SaveRun(record), SaveSession(session))
        run.record = record
        run.pending, run.pause = [], None
        self._begin_leg(Admitted(run, calls), session, model)

    async def _close_waiting(self, run: Run) -> None:
        """Cancel a run that waits."""
        session = await self._desk.session(run)
        async with self._lock(session.uid):
            if run.record.status is RunStatus.PAUSED:
                await self._desk.close(run, session, RunStatus.CANCELLED, "cancelled", "the run was cancelled")

    # Sessions.

    async def delete_session(self, principal: str, id: str) -> None:
        """Delete a session; its open run is cancelled first. Raises NotFound."""
        session = await self._existing(principal, id)
        cancelled: str | None = None
        while True:
            async with self._lock(session.uid):
                open_run = session.open_run  # seen under the lock: a turn may just be beginning one
                if open_run is None or open_run == cancelled:  # the same again: its end could not be kept
                    await self.directory.delete(principal, id)
                    self._release(session.uid)
                    return
            await (await self.run(principal, open_run)).cancel()
            cancelled = open_run

    async def fork_session(self, principal: str, id: str, at: int | None, new_id: str | None) -> Session:
        """A session of its own over completed items. Raises NotFound, InvalidRequest, Conflict."""
        return await self.directory.fork(await self._existing(principal, id), at, new_id)

    async def export_session(self, principal: str, id: str) -> dict[str, Any]:
        """A session as a document that `import_session` reads. Raises NotFound."""
        session = await self._existing(principal, id)
        return transfer.export(session, await self._store.notes(session.uid))

    async def import_session(self, principal: str, id: str, document: dict[str, Any]) -> Session:
        """Put a session in the place of the one of that id. Raises InvalidRequest, SessionBusy."""
        session, notes = transfer.restore(document, principal, id)
        await self.directory.install(session, notes)
        return session

    async def list_sessions(
        self, principal: str, *, implicit: bool, limit: int, after: str | None
    ) -> list[SessionSummary]:
        """The principal's stored sessions, newest first."""
        return await self.directory.list(principal, implicit, limit=limit, after=after)

    async def _existing(self, principal: str, id: str) -> Session:
        session = await self.directory.get(principal, id)
        if session is None:
            raise NotFound("session", id)
        return session

    # Tools and health.

    def open_runs(self) -> tuple[int, int]:
        """How many runs are at work, and how many wait for a client or a person."""
        return len(self._desk.working()), self._desk.waiting()

    def needs_word(self, principal: Principal, name: str) -> bool:
        """Whether a person must be asked before this principal calls a tool from outside any session."""
        decision = self._house.policy.decide_direct(name, has_word=principal.is_person)
        return decision.permission is Permission.ASK

    async def call_tool(
        self,
        principal: Principal,
        name: str,
        arguments: dict[str, Any],
        progress: Callable[[float, float | None, str | None], Awaitable[None]] | None = None,
        *,
        approved: bool = False,
    ) -> ToolResult:
        """Call a server's tool from outside any session. A person who asks for it has approved it; a denial stays one.

        `approved`: a person has been asked about this very call.
        """
        decision = self._house.policy.decide_direct(name, has_word=principal.is_person or approved)
        if decision.permission is not Permission.AUTO:
            return ToolResult(decision.reason, is_error=True)
        context = CallContext(principal.id, None, None, f"call_{uuid4().hex[:24]}", progress)
        try:
            return await self.registry.call(name, arguments, context)
        except ToolFailed as error:
            return ToolResult(f"Error: {error}", is_error=True)

    def engines(self) -> dict[str, EngineState]:
        """How each model's engine is doing. Any thread."""
        return {model.id: model.engine.state() for model in self.models.list()}

    # Housekeeping.

    async def _recover(self) -> None:
        """After a crash: runs that were at work are closed as interrupted, those that wait go on waiting."""
        for record in await self._store.open_runs():
            if record.status is RunStatus.PAUSED and record.expires_at is not None:
                self._desk.pauses[record.id] = record.expires_at
                continue
            try:
                run = await self._desk.find(record.id)
                session = await self._desk.session(run)
                await self._desk.close(run, session, RunStatus.INTERRUPTED, "interrupted", "interrupted")
            except TenutoError:  # one damaged session does not keep the others from starting
                log.exception("the run %s, which a crash has left open, cannot be closed", record.id)

    async def _keep_house(self) -> None:
        for tick in count(1):
            await anyio.sleep(TICK_S)
            try:
                await self.expire_pauses()
                if tick % SWEEP_TICKS == 0:
                    await self.expire_sessions()
            except TenutoError:
                log.exception("housekeeping failed; it goes on with the next tick")

    async def expire_pauses(self) -> None:
        """End the runs that have waited for too long. Done every second by itself."""
        now = self._house.clock()
        for run_id in [run_id for run_id, expires in self._desk.pauses.items() if expires <= now]:
            await self._expire_run(run_id)

    async def expire_sessions(self) -> None:
        """Delete the sessions whose time is over, and let runs of long ago go. Done every minute by itself."""
        self._desk.forget_old()
        for uid in await self.directory.expire():
            self._release(uid)

    def _release(self, uid: str) -> None:
        for model in self.models.list():
            model.engine.release(f"{uid}/{model.id}")

    async def _expire_run(self, run_id: str) -> None:
        try:
            run = await self._desk.find(run_id)
            session = await self._desk.session(run)
        except NotFound:  # deleted meanwhile
            self._desk.pauses.pop(run_id, None)
            return
        async with self._lock(session.uid):
            if run.record.status is RunStatus.PAUSED:
                await self._expire(run, session)

    async def _expire(self, run: Run, session: Session) -> None:
        await self._desk.close(run, session, RunStatus.EXPIRED, "expired", "no answer came in time")

    def _lock(self, name: str) -> anyio.Lock:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = anyio.Lock()
        return lock


DENIED = "The user denied this tool call."

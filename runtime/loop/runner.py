"""The loop's front: takes turns, begins and resumes runs, and keeps house over them. Event-loop thread only."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup

from tenuto.errors import NotFound, ShuttingDown, ToolFailed
from tenuto.runtime.loop.decisions import Decision, decide
from tenuto.runtime.loop.engine_client import EngineClient, Place
from tenuto.runtime.loop.events import RunDone
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.imported import DroppedLedger, drop_unbelieved
from tenuto.runtime.loop.intake import Admitted, Defaults, Found, Intake
from tenuto.runtime.loop.keys import Keys
from tenuto.runtime.loop.leg import Leg
from tenuto.runtime.loop.models import Model, Models
from tenuto.runtime.loop.owners import Owners
from tenuto.runtime.loop.raw import RawRequest, RawRun
from tenuto.runtime.loop.requests import Turn
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.runs import Runs
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.sessions import Sessions
from tenuto.sessions import transfer
from tenuto.sessions.principal import Principal
from tenuto.sessions.records import RunStatus, SessionSummary
from tenuto.sessions.session import Session
from tenuto.sessions.shares import Shares
from tenuto.sessions.store import Store
from tenuto.sessions.watchers import tell
from tenuto.tools.approvals import Permission
from tenuto.tools.spec import CallContext, ToolResult

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Follower | None)

TICK_S = 1.0
GRACE_S = 60.0
"""How long a request with an Idempotency-Key goes on after its client has gone: clients that retry come sooner."""
MANY_ITEMS = 256
MUCH_TEXT = 1 << 18
"""A turn that brings more is read in a worker thread."""
ADMISSION_S = 0.01
"""About how long a turn takes from its commit to its run."""
INTERRUPT_S = 10.0
"""How long runs may take to be closed as interrupted when the server stops."""
SWEEP_TICKS = 60
"""Sessions whose time is over are looked for once in so many ticks."""


class Runner:
    """Begins, resumes and ends runs. An async context manager: leaving it breaks off what is still under way.

    Whatever changes a session is a command to its owner (`owners`), and runs there one after the other.
    """

    def __init__(self, services: Services, store: Store, models: Models, defaults: Defaults) -> None:
        self.models = models
        self.directory = services.directory
        self.registry = services.registry
        self.watchers: list[Callable[[Run], None]] = []
        """Told whenever a run has begun to wait or has ended."""
        self._services = services
        self._store = store
        self._defaults = defaults
        self._runs = Runs(services, store, models)
        self._keys = Keys(store, services.clock)
        self._intake = Intake(services, self._runs, self._keys, defaults)
        self._group: TaskGroup | None = None
        self._draining = False
        self._admitting = 0
        self._raw: set[RawRun] = set()
        self._places: Shares[object] = Shares("the table of runs", defaults.max_runs, lambda _: False)
        self._leg_s = 1.0

    async def __aenter__(self) -> Self:
        """Close what a crash left open, then take turns."""
        self._group = await anyio.create_task_group().__aenter__()
        self._owners = Owners(self._group)
        self._repeats = Owners(self._group, "Idempotency-Key")
        self._sessions = Sessions(self._services, self._store, self._runs, self._owners, self._release)
        try:
            await self._sessions.recover()
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
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
            for run in self._runs.working():
                run.interrupt()
            for raw in list(self._raw):
                raw.close()
            await self._rest()

    async def _rest(self) -> None:
        """Return when no run is under way or about to be."""
        while (runs := self._runs.working()) or self._admitting or self._raw:
            for run in runs:
                await run.rest()
            await anyio.sleep(ADMISSION_S)

    @property
    def is_draining(self) -> bool:
        """Whether it takes no new turns any more."""
        return self._draining

    # Turns.

    async def start(self, turn: Turn) -> Follower:
        """Admit a turn and begin or resume its run. A repeat of an Idempotency-Key gets the run that it began.

        Raises before anything has changed: InvalidRequest and its kin, NotFound (the model), SessionBusy,
        SessionPaused, IdempotencyMismatch, Overloaded, ShuttingDown, StoreUnavailable. MissingToolResults keeps the
        results that came.
        """
        await _read(turn)
        if turn.idempotency_key is None:
            return await self._start(turn)
        # A repeat waits to see what the first has begun, even if the first's client has gone meanwhile.
        key = (turn.principal.id, turn.idempotency_key)
        return await self._repeats.ask(key, partial(self._start_once, turn), unheard=_leave)

    def complete(self, request: RawRequest) -> RawRun:
        """Begin a raw completion, which whoever reads it must read to its end or close.

        Raises what `RawRun` does, and NotFound (the model).
        """
        self._check_open(request.principal.id)
        run = RawRun(self.models.find(request.model), request, self._complete_ended)
        self._raw.add(run)
        return run

    def _complete_ended(self, run: RawRun) -> None:
        self._raw.discard(run)
        usage = run.usage
        for kind, tokens in (("computed", usage.computed), ("cached", usage.cached), ("sampled", usage.sampled)):
            self._services.metrics.tokens(run.model.id, kind, tokens)

    async def preview(self, turn: Turn) -> tuple[int, ...]:
        """The tokens that the model would read of a turn. Raises what `start` does of a turn that is not valid."""
        model = self.models.find(turn.model)
        await _read(turn)
        if turn.session_id is None:
            return await self._intake.preview(turn, model, None)
        known = await self._sessions.fetch(turn.principal.id, turn.session_id)
        return await self._intake.preview(turn, model, known)

    async def _start_once(self, turn: Turn) -> Follower:
        return await self._repeated(turn) or await self._start(turn)

    async def _repeated(self, turn: Turn) -> Follower | None:
        run_id = await self._keys.run_of(turn)
        if run_id is None:
            return None
        try:
            return Follower(await self._runs.find(run_id, turn.principal.id))
        except NotFound:  # its session was in memory only, and is there no more
            return None

    async def _start(self, turn: Turn) -> Follower:
        model = self.models.find(turn.model)
        self._check_open(turn.principal.id)
        if turn.session_id is not None:
            return await self._ask(turn, turn.session_id, partial(self._admit_named, turn, turn.session_id, model))
        found = None
        if turn.match and turn.stored:
            fetch = self._sessions.fetch
            found = await self.directory.match(turn.principal.id, turn.user, turn.told, fetch)
        if found is None:
            return await self._start_new(turn, model)
        session, at = found
        follower = await self._ask(turn, session.id, partial(self._go_on, turn, session, model))
        if follower is not None:
            return follower
        branch = await self._sessions.branch(turn, session, at)
        if branch is None:
            return await self._start_new(turn, model)
        return await self._ask(turn, branch.session.id, partial(self._admit, turn, model, branch))

    async def _start_new(self, turn: Turn, model: Model) -> Follower:
        session = self.directory.new(turn.principal.id, user=turn.user, stored=turn.stored)
        return await self._ask(turn, session.id, partial(self._admit, turn, model, Found(session)))

    async def _ask(self, turn: Turn, session_id: str, work: Callable[[], Awaitable[F]]) -> F:
        """Let the owner of a session carry out a command that may begin a leg; a client that has gone leaves it."""
        return await self._owners.ask((turn.principal.id, session_id), work, unheard=_leave)

    async def _admit_named(self, turn: Turn, id: str, model: Model) -> Follower:
        session = await self.directory.get_or_create(turn.principal.id, id, stored=turn.stored)
        return await self._admit(turn, model, Found(session))

    async def _go_on(self, turn: Turn, session: Session, model: Model) -> Follower | None:
        """Go on with the session that was found by match, if it is still there and still fits."""
        if await self.directory.get(session.principal, session.id) is not session:
            return None
        if await self._intake.goes_on(turn, session):
            return await self._admit(turn, model, Found(session))
        return None

    async def _admit(self, turn: Turn, model: Model, found: Found) -> Follower:
        if found.session.stored:
            self._store.expect_to_write()
        place = model.engine.reserve(turn.principal.id)
        leg: Leg | None = None
        try:
            with self._admission(turn.principal.id):
                admitted = await self._intake.admit(turn, model, found)
                if not found.session.stored:
                    self._keys.remember(turn, admitted.run.id)
                grace_s = GRACE_S if turn.idempotency_key else 0.0
                leg = self._begin_leg(admitted, found.session, model, place=place, of_request=True, grace_s=grace_s)
        finally:
            if leg is None:
                place.give_back()
        return Follower(leg.run)

    @contextmanager
    def _admission(self, principal: str) -> Iterator[None]:
        """From the commit to the leg's begin is one step, which a drain waits for and nothing cancels."""
        self._check_open(principal)
        self._admitting += 1
        try:
            with anyio.CancelScope(shield=True):
                yield
        finally:
            self._admitting -= 1

    def _check_open(self, principal: str) -> None:
        if self._draining or self._group is None:
            raise ShuttingDown("the server is stopping")
        self._places.expect_room(principal, anyio.current_time(), round(min(max(self._leg_s, 1.0), 60.0)))

    def _begin_leg(
        self,
        admitted: Admitted,
        session: Session,
        model: Model,
        *,
        of_request: bool,
        grace_s: float = 0.0,
        place: Place | None = None,
    ) -> Leg:
        assert self._group is not None
        run = admitted.run
        leg = Leg(self._services, run, session, model, admitted.calls, admitted.then, admitted.prompt, place)
        scope = anyio.CancelScope()
        seat = object()
        self._places.settle(seat, session.principal)
        run.begin_leg(scope, of_request=of_request, grace_s=grace_s)
        self._runs.add(run)
        if not run.rounds:
            self._services.metrics.run_started(model.id)
        self._group.start_soon(self._drive, leg, scope, seat)
        return leg

    async def _drive(self, leg: Leg, scope: anyio.CancelScope, seat: object) -> None:
        run, begun = leg.run, anyio.current_time()
        try:
            with scope:
                await leg.drive()
        except Exception:  # a bug in the leg is its run's; the others go on
            log.exception("the leg of run %s ended in an error", run.id)
        finally:
            if run.working:
                log.error("the leg of run %s ended without a word", run.id)
                run.unkept_end = RunDone(RunStatus.FAILED, "error", "an internal error", "internal")
                run.emit(run.unkept_end)
            self._places.remove(seat)
            self._leg_s += 0.1 * (anyio.current_time() - begun - self._leg_s)
            self._runs.settle(run)
            tell(self.watchers, run)

    # Runs.

    async def run(self, principal: Principal, run_id: str) -> Run:
        """A run by its id, at work, waiting or ended.

        Raises:
            NotFound: there is none, or it is another principal's.
        """
        return await self._runs.find(run_id, principal.id)

    async def cancel(self, principal: Principal, run_id: str) -> Run:
        """Stop a run: the model within a step, tools by a cancel; give it when it has ended.

        Raises:
            NotFound: there is none, or it is another principal's.
        """
        return await self._sessions.cancel(await self._runs.find(run_id, principal.id))

    async def decide(
        self, principal: Principal, pause_id: str, *, approve: bool, message: str | None, remember: bool
    ) -> Run:
        """Answer an approval; its run goes on.

        Raises:
            NotFound: there is none, or it is another principal's.
            AlreadyDecided: it has been answered, has expired, or its run has ended.
        """
        self._check_open(principal.id)
        pause = await self._runs.pause(pause_id)
        if pause is None or pause.principal != principal.id:
            raise NotFound("approval", pause_id)
        run = await self._runs.find(pause.run_id, principal.id)
        decision = Decision(approve, message, remember)
        work = partial(self._decide, principal.id, run.id, pause_id, decision)
        return await self._owners.ask((principal.id, run.session_id), work)

    async def _decide(self, principal: str, run_id: str, pause_id: str, decision: Decision) -> Run:
        with self._admission(principal):
            run = await self._runs.find(run_id)
            session = await self._runs.session(run)
            model = self.models.find(run.model)
            calls = await decide(self._services, self._runs, run, session, pause_id, decision)
            self._begin_leg(Admitted(run, calls), session, model, of_request=False)
        return run

    # Sessions.

    async def delete_session(self, principal: Principal, id: str) -> None:
        """Delete a session, also one that cannot be read; its open run is cancelled first. Raises NotFound."""
        await self._sessions.delete(principal.id, id)

    async def fork_session(self, principal: Principal, id: str, at: int | None, new_id: str | None) -> Session:
        """A session of its own over completed items. Raises NotFound, InvalidRequest, Conflict."""
        return await self._sessions.fork(principal.id, id, at, new_id)

    async def export_session(self, principal: Principal, id: str, *, raw: bool = False) -> dict[str, Any]:
        """A session as a document that `import_session` reads; `raw`: all rows of it as they are. Raises NotFound."""
        if raw:
            return await self._sessions.raw(principal.id, id)
        return await anyio.to_thread.run_sync(transfer.export, *await self._sessions.snapshot(principal.id, id))

    async def export_pages(self, principal: Principal, id: str) -> Iterator[bytes]:
        """The JSON text of the same document in pieces, made as they are asked for, in any thread. Raises NotFound."""
        return transfer.pages(*await self._sessions.snapshot(principal.id, id))

    async def import_session(
        self, principal: Principal, id: str, document: dict[str, Any]
    ) -> tuple[Session, list[DroppedLedger]]:
        """Put a session in the place of the one of that id; what of its ledgers is not believed is left out and told.

        Raises InvalidRequest, SessionBusy.
        """
        return await self.keep_imported(*transfer.restore(document, principal.id, id))

    async def keep_imported(self, session: Session, notes: Mapping[str, str]) -> tuple[Session, list[DroppedLedger]]:
        """Put what `transfer.restore` made in the place of the session of that id. Raises SessionBusy."""
        codecs = [model.codec for model in self.models.list()]
        dropped = await anyio.to_thread.run_sync(drop_unbelieved, session, codecs)
        await self._sessions.install(session, notes)
        return session, dropped

    async def list_sessions(
        self, principal: Principal, *, implicit: bool, limit: int, after: str | None
    ) -> list[SessionSummary]:
        """The principal's stored sessions, newest first."""
        return await self.directory.list(principal.id, implicit, limit=limit, after=after)

    # Tools and health.

    def open_runs(self) -> tuple[int, int]:
        """How many runs are at work, and how many wait for a client or a person."""
        return len(self._runs.working()), self._runs.waiting()

    def memory(self) -> dict[str, int]:
        """About how many bytes each table takes of what may be forgotten, besides caches. Event-loop thread only."""
        sequences = sum(model.engine.remembered_bytes for model in self.models.list())
        return {**self.directory.nbytes(), "runs": self._runs.nbytes, "sequences": sequences}

    def needs_word(self, principal: Principal, name: str) -> bool:
        """Whether a person must be asked before this principal calls a tool from outside any session."""
        decision = self._services.policy.decide_direct(name, has_word=principal.is_person)
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
        decision = self._services.policy.decide_direct(name, has_word=principal.is_person or approved)
        if decision.permission is not Permission.AUTO:
            return ToolResult(decision.reason, is_error=True)
        context = CallContext(principal.id, None, None, f"call_{uuid4().hex[:24]}", progress)
        try:
            return await self.registry.call(name, arguments, context)
        except ToolFailed as error:
            return ToolResult(f"Error: {error}", is_error=True)

    @property
    def store_trouble(self) -> str | None:
        """Why the store cannot write; None where it can."""
        return self._store.trouble

    def engines(self) -> dict[str, EngineClient]:
        """Each model's engine, to see how it does."""
        return {model.id: model.engine for model in self.models.list()}

    # Housekeeping.

    async def _keep_house(self) -> None:
        for tick in count(1):
            await anyio.sleep(TICK_S)
            try:
                self._stop_abandoned()
                await self.expire_pauses()
                if tick % SWEEP_TICKS == 0:
                    await self.expire_sessions()
            except Exception:  # it goes on with the next tick, whatever was wrong with this one
                log.exception("housekeeping failed")

    def _stop_abandoned(self) -> None:
        """Stop the legs to which nobody has come again."""
        now = anyio.current_time()
        for run in self._runs.working():
            if run.leg.until is not None and run.leg.until <= now:
                run.begin_to_stop(run.leg)

    async def expire_pauses(self) -> None:
        """End the runs that have waited for too long, or whose end could not be kept. Done every second by itself."""
        await self._sessions.close_overdue()

    async def expire_sessions(self) -> None:
        """Delete the sessions whose time is over, and let runs of long ago go. Done every minute by itself."""
        self._runs.forget_old()
        await self.directory.tidy()
        await self._sessions.expire()
        await self._store.sweep()

    def _release(self, uid: str) -> None:
        for model in self.models.list():
            model.engine.release(f"{uid}/{model.id}")


async def _leave(follower: Follower | None) -> None:
    """Nobody waits for the leg that a command has begun."""
    if follower is not None:
        await follower.disconnected()


async def _read(turn: Turn) -> None:
    """Look at what a turn tells, in a worker thread where that is long."""
    if len(turn.items) > MANY_ITEMS or sum(len(item.text) for item in turn.items) > MUCH_TEXT:
        await anyio.to_thread.run_sync(turn.told.read)

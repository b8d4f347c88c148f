"""The legs that are under way: how many there may be, begun and driven each in a task of its own, and their rest."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskGroup

from tenuto.errors import ShuttingDown
from tenuto.runtime.loop.engine_client import Place
from tenuto.runtime.loop.events import RunDone, RunEvent, StopReason
from tenuto.runtime.loop.intake import Admitted
from tenuto.runtime.loop.ledgers import Prompt
from tenuto.runtime.loop.leg import Leg
from tenuto.runtime.loop.leg_state import LegState
from tenuto.runtime.loop.models import Model
from tenuto.runtime.loop.pending import PendingCall
from tenuto.runtime.loop.round_start import sequence_of
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.runs import Runs
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.telling import keeping_told
from tenuto.runtime.loop.unfinished import Progress, Said
from tenuto.sessions.items import Item
from tenuto.sessions.records import LegRecord, RunStatus
from tenuto.sessions.session import Session
from tenuto.sessions.shares import Shares
from tenuto.sessions.watchers import notify

logger = logging.getLogger(__name__)

ADMISSION_S = 0.01
"""About how long a turn takes from its commit to its run."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A leg as its process has left it. It has told `told`, of which the last `untold` are not kept; `calls` are those
    of its last round where they have not become items; else `prompt` is what its open round reads, which has `said`
    something already."""

    record: LegRecord
    of_request: bool
    usage: dict[str, Any] | None
    end: dict[str, Any]
    told: Sequence[RunEvent]
    progress: Progress
    then: tuple[Item, ...] = ()
    untold: int = 0
    calls: list[PendingCall] = field(default_factory=list)
    prompt: Prompt | None = None
    said: Said | None = None


class Legs:
    """Begins legs and drives them, until it is closed. Event-loop thread only.

    `watchers` are told whenever a run has begun to wait or has ended.
    """

    def __init__(
        self, services: Services, runs: Runs, group: TaskGroup, most: int, watchers: Sequence[Callable[[Run], None]]
    ) -> None:
        self.is_closed = False
        """Set to take no more."""
        self._services, self._runs, self._group, self._watchers = services, runs, group, watchers
        self._admitting = 0
        self._places: Shares[object] = Shares("the table of runs", most, lambda _: False)
        self._leg_s = 1.0

    def check_open(self, principal: str) -> None:
        """Raises ShuttingDown, or Overloaded where the table of runs has no place for this principal."""
        if self.is_closed:
            raise ShuttingDown("the server is stopping")
        self._places.expect_room(principal, anyio.current_time(), round(min(max(self._leg_s, 1.0), 60.0)))

    @contextmanager
    def admission(self, principal: str) -> Iterator[None]:
        """From the commit to the leg's begin is one step, which a drain waits for and nothing cancels."""
        self.check_open(principal)
        self._admitting += 1
        try:
            with anyio.CancelScope(shield=True):
                yield
        finally:
            self._admitting -= 1

    def begin(
        self,
        admitted: Admitted,
        session: Session,
        model: Model,
        *,
        of_request: bool,
        grace_s: float = 0.0,
        place: Place | None = None,
    ) -> Leg:
        """Begin the next leg of a run that is committed. `place` is its first round's in the engine's queue."""
        run = admitted.run
        leg = Leg(self._services, run, session, model, admitted.calls, admitted.then, admitted.prompt, place)
        scope = anyio.CancelScope()
        run.begin_leg(
            scope,
            of_request=of_request,
            leg_id=admitted.leg_id,
            grace_s=grace_s,
            record=admitted.leg,
            is_detached=admitted.is_detached,
        )
        if not run.rounds:
            self._services.metrics.run_started(model.id)
        self._start(leg, scope)
        return leg

    def resume(
        self,
        run: Run,
        session: Session,
        model: Model,
        resumed: Resumed,
        turn: Callable[[LegState], AbstractAsyncContextManager[None]],
    ) -> None:
        """Go on with a detached leg that an earlier process has begun, when its turn has come."""
        then, prompt, said = resumed.then, resumed.prompt, resumed.said
        leg = Leg(self._services, run, session, model, resumed.calls, then, prompt, None, resumed.progress, said)
        scope = anyio.CancelScope()
        record, of_request = resumed.record, resumed.of_request
        run.begin_leg(scope, of_request=of_request, leg_id=record.id, record=record, is_detached=True)
        run.go_on(resumed.told, resumed.usage, resumed.end)
        run.keep_up_to(run.leg.start + len(resumed.told) - resumed.untold)
        leg.turn = turn(run.leg)
        self._start(leg, scope)

    def _expect(self, leg: Leg) -> None:
        """Tell the engine how long a run is expected to wait for whom it waits."""
        reason = leg.run.record.reason
        if reason is not None:
            expected = self._services.expectations.paused(leg.run.id, reason, anyio.current_time())
            leg.model.engine.expect(sequence_of(leg.session, leg.model), expected.seconds, expected.spread_s)

    def _start(self, leg: Leg, scope: anyio.CancelScope) -> None:
        seat = object()
        self._services.expectations.resumed(leg.run.id, anyio.current_time())
        leg.model.uses.take()
        leg.model.uses.waits.discard(leg.run.id)
        self._places.settle(seat, leg.session.principal)
        self._runs.add(leg.run)
        self._services.requested.begin(leg.run.id)
        self._group.start_soon(self._drive, leg, scope, seat)

    async def _drive(self, leg: Leg, scope: anyio.CancelScope, seat: object) -> None:
        run, begun = leg.run, anyio.current_time()
        try:
            with scope:
                await keeping_told(self._services.store, run, leg.drive)
        except Exception:  # a bug in the leg is its run's; the others go on
            logger.exception("the leg of run %s ended in an error", run.id)
        finally:
            if run.working:
                logger.error("the leg of run %s ended without a word", run.id)
                run.unkept_end = RunDone(RunStatus.FAILED, StopReason.ERROR, "internal error", "internal")
                run.emit(run.unkept_end)
            self._places.remove(seat)
            if run.record.status is RunStatus.PAUSED:
                leg.model.uses.waits.add(run.id)
                self._expect(leg)
            leg.model.uses.give_back()
            self._leg_s += 0.1 * (anyio.current_time() - begun - self._leg_s)
            self._runs.settle(run)
            if run.leg.end is not None:  # else it is left to the next process
                notify(self._watchers, run)

    async def rest(self) -> None:
        """Return when no leg is under way or about to be."""
        while (runs := self._runs.working()) or self._admitting:
            for run in runs:
                await run.rest()
            await anyio.sleep(ADMISSION_S)

    def interrupt(self) -> None:
        """Break off what is under way; what there is of it is kept as interrupted."""
        for run in self._runs.working():
            run.interrupt()

    def stop_abandoned(self) -> None:
        """Stop the legs to which nobody has come again."""
        now = anyio.current_time()
        for run in self._runs.working():
            if run.leg.is_overdue(now):
                run.begin_to_stop(run.leg)

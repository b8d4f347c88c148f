"""The legs that are under way: how many there may be, begun and driven each in a task of its own, and their rest."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import anyio
from anyio.abc import TaskGroup

from tenuto.errors import ShuttingDown
from tenuto.runtime.loop.engine_client import Place
from tenuto.runtime.loop.events import RunDone, StopReason
from tenuto.runtime.loop.intake import Admitted
from tenuto.runtime.loop.leg import Leg
from tenuto.runtime.loop.models import Model
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.runs import Runs
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.telling import keeping_told
from tenuto.sessions.records import RunStatus
from tenuto.sessions.session import Session
from tenuto.sessions.shares import Shares
from tenuto.sessions.watchers import notify

logger = logging.getLogger(__name__)

ADMISSION_S = 0.01
"""About how long a turn takes from its commit to its run."""


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
        seat = object()
        self._places.settle(seat, session.principal)
        run.begin_leg(
            scope,
            of_request=of_request,
            leg_id=admitted.leg_id,
            grace_s=grace_s,
            record=admitted.leg,
            is_detached=admitted.is_detached,
        )
        self._runs.add(run)
        if not run.rounds:
            self._services.metrics.run_started(model.id)
        self._group.start_soon(self._drive, leg, scope, seat)
        return leg

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
            self._leg_s += 0.1 * (anyio.current_time() - begun - self._leg_s)
            self._runs.settle(run)
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

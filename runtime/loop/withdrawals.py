"""Looks after runs that wait for an answer which nobody needs any more: their calls have ended, or ask no more."""

import logging
from functools import partial

from anyio.abc import TaskGroup

from tenuto.errors import TenutoError
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.runs import Runs
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.turns import Turns
from tenuto.sessions.records import PauseReason

logger = logging.getLogger(__name__)


class Withdrawals:
    """Lets such runs go on, each in a task of `group`, in which all calls run. Event-loop thread only."""

    def __init__(self, services: Services, runs: Runs, turns: Turns, group: TaskGroup) -> None:
        self._services, self._runs, self._turns, self._group = services, runs, turns, group
        services.held.open(group, self.moved)

    def moved(self, run_id: str) -> None:
        """A call of a run has come further, perhaps while the run waits for the answer to what it asked."""
        run = self._runs.known(run_id)
        if run is None or not run.working:
            self._group.start_soon(self._withdraw, run_id)

    def look_at(self, run: Run) -> None:
        """A run has begun to wait: its call may have come further meanwhile."""
        if run.record.reason is PauseReason.INPUT:
            self.moved(run.id)

    async def _withdraw(self, run_id: str) -> None:
        if not self._services.held.of_run(run_id):
            return
        try:
            principal = (await self._runs.find(run_id)).record.principal
            await self._services.models.with_loaded(partial(self._turns.withdraw, run_id), principal)
        except TenutoError as failure:  # its answer, or its time, ends the pause
            logger.warning("run %s does not go on: %s", run_id, failure)

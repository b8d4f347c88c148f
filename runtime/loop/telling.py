"""Keeps what a leg tells while it is under way, a few pieces at a time; of one that goes on after a crash also the
tokens that were sampled by then, in the same commit."""

import logging
from collections.abc import Awaitable, Callable

import anyio

from tenuto.errors import Overloaded, StoreFailed
from tenuto.runtime.loop.run import Run
from tenuto.sessions.storage.store import Store

logger = logging.getLogger(__name__)

DETACHED_S = 0.1
"""So often what a detached leg has told is kept, and shown to those who follow it."""
ATTACHED_S = 5.0
"""So often what others have told is kept, which they have shown already: a crash loses no more of it."""


async def keeping_told(store: Store, run: Run, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work of the run's present leg, and meanwhile keep what it tells, if its client can ask for it again.

    What it has told when the work is done is kept with the leg's end.
    """
    if run.leg.record is None:
        await work()
        return
    async with anyio.create_task_group() as group:
        group.start_soon(_keep, store, run)
        await work()
        group.cancel_scope.cancel()


async def _keep(store: Store, run: Run) -> None:
    leg, is_failing = run.leg, False
    while True:
        await anyio.sleep(DETACHED_S if leg.is_detached else ATTACHED_S)
        if leg.is_ending:
            return
        if leg.is_settling:
            continue
        place, told = run.to_keep()
        sampled, opened = run.sampled_to_keep(), leg.open
        if not told and not sampled:
            continue
        try:
            await store.commit(*told, *sampled)
        except (StoreFailed, Overloaded) as failure:  # it is tried again with what comes after it
            if not is_failing:
                logger.warning("what run %s tells could not be kept: %s", run.id, failure)
            is_failing = True
        else:
            is_failing = False
            if opened is not None and sampled:
                opened.kept += len(sampled[0].tokens)
            run.keep_up_to(place)

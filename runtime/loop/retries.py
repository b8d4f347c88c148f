"""How often a leg has been gone on with after a crash without coming further, and when it may be. No engine.

A leg may be what ends the process, at each start again. So each try is counted before it is made, beside where the leg
stands, and there are few of them. Once the leg stands elsewhere the count begins anew.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from tenuto.runtime.loop.leg_state import LegState
from tenuto.runtime.loop.models import Model
from tenuto.sessions.changes import AddSampled, SaveProgress
from tenuto.sessions.records import UnfinishedLeg
from tenuto.sessions.storage.store import Store

MOST_TRIES = 3
"""So often a leg is gone on with that does not come any further."""

_KEY = "tries"


class Retries:
    """Tries at a time as many legs of a model as it has slots, since one that waits for a slot is not tried yet.

    Of legs that have been tried before without coming further only one is tried at a time, so that a leg which ends the
    process does not use up the tries of others. Event-loop thread only.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of_models: dict[str, anyio.Semaphore] = {}
        self._suspects = anyio.Semaphore(1)

    @asynccontextmanager
    async def turn(self, leg: LegState, model: Model, unfinished: UnfinishedLeg) -> AsyncIterator[None]:
        """Wait for a leg's turn, which it has for the block, and count its try."""
        count = tries(unfinished)
        async with self._of_models.setdefault(model.id, anyio.Semaphore(model.backend.slots)):
            if count:
                await self._suspects.acquire()
                leg.when_further = self._suspects.release
            try:
                await self._store.commit(*_counted(unfinished, count + 1))
                yield
            finally:
                leg.has_come_further()


def tries(unfinished: UnfinishedLeg) -> int:
    """How often a leg has been gone on with from where it stands now."""
    kept: dict[str, Any] = (unfinished.record.progress or {}).get(_KEY, {})
    return int(kept["count"]) if kept.get("at") == _place(unfinished) else 0


def _place(unfinished: UnfinishedLeg) -> list[int]:
    """Where a leg stands, of what is kept between the starts and ends of its rounds."""
    return [len(unfinished.told), len(unfinished.sampled)]


def _counted(unfinished: UnfinishedLeg, count: int) -> list[SaveProgress | AddSampled]:
    """The changes that keep all as it is, with the count."""
    record = unfinished.record
    progress = {**(record.progress or {}), _KEY: {"count": count, "at": _place(unfinished)}}
    changes: list[SaveProgress | AddSampled] = [SaveProgress(record.id, record.session_uid, progress)]
    if unfinished.sampled:  # which the change of the progress forgets
        entries = [entry for piece in unfinished.logprobs for entry in json.loads(piece)]
        logprobs = json.dumps(entries, separators=(",", ":")) if entries else None
        changes.append(AddSampled(record.id, record.session_uid, 0, unfinished.sampled, logprobs))
    return changes

"""Caches on their way back: read from the disk for who waits for them, or ahead of time for who is expected.

Engine thread only. Reading is beside the steps; a copy to a slot is not, and so is made only where a slot is free and
nobody waits for it.
"""

import logging
import math
from concurrent.futures import Future
from dataclasses import dataclass

from tenuto.runtime.engine.disk_caches import DiskCaches
from tenuto.runtime.engine.host_memory import HostRoom
from tenuto.runtime.engine.messages import Residency, State
from tenuto.runtime.engine.residency import CacheResidency
from tenuto.runtime.engine.roster import Roster
from tenuto.runtime.engine.sequence import Sequence
from tenuto.runtime.engine.snapshots import Restored

logger = logging.getLogger(__name__)

SETTLE_S = 0.5
"""Who comes back sooner, as from a quick tool, is not held up by a copy of its cache, which takes some steps' time."""


@dataclass(eq=False, slots=True)
class _Reading:
    room: HostRoom
    name: str
    """Under which it is kept: its sequence's own, or another's that begins alike."""
    done: "Future[Restored | None]"


class Returning:
    """Of one engine. `now` is the engine's clock, which never goes back."""

    def __init__(self, disk: DiskCaches, residency: CacheResidency, roster: Roster) -> None:
        self._disk, self._residency, self._roster = disk, residency, roster
        self._readings: list[_Reading] = []
        """All that are under way, also those that nobody waits for any more."""
        self._expected: dict[str, Sequence] = {}
        """Paused sequences whose caches are to be back before they are."""
        self._next_at = math.inf
        """When the next of them is due, or earlier."""
        self._settles_at = math.inf
        """When the next that pauses has done so for long enough to be written, or earlier."""
        self._waits_for_slot = False
        """Whether one that is due lies in host memory, and there was no slot for it."""

    def forget(self, id: str) -> None:
        """A sequence goes on, or is gone: it is expected no more."""
        self._expected.pop(id, None)

    # For those that wait.

    @property
    def is_awaited(self) -> bool:
        """Whether some wait, and nobody but these."""
        waiting = self._roster.waiting.values()
        return bool(waiting) and all(sequence.reading is not None for sequence in waiting)

    def fetch(self, sequence: Sequence) -> None:
        """Begin to read a cache back from the disk, where that serves a sequence and host memory has room for it."""
        if sequence.reading is not None or (found := self._residency.on_disk(sequence)) is None:
            return
        if (room := self._residency.expect(sequence, found)) is not None:
            sequence.reading = self._disk.read(sequence, found)
            self._readings.append(_Reading(room, found.sequence, sequence.reading))

    def adopt(self) -> None:
        """Take the caches that have been read. Who waited for one may be admitted then, with or without it."""
        if not any(one.done.done() for one in self._readings):
            return
        under_way = []
        for one in self._readings:
            sequence = one.room.sequence
            if not one.done.done():
                under_way.append(one)
                continue
            # Given up by who waited for it, it may still be of use to its next round.
            if sequence.reading is one.done:
                sequence.reading = None
            is_known = self._roster.get(sequence.id) is sequence
            restored = None if one.done.cancelled() or not is_known else one.done.result()
            self._residency.adopt(one.room, restored, one.name)
        self._readings = under_way
        self._next_at = -math.inf  # what has been read may go on to a slot

    def give_up(self) -> None:
        """Wait for no cache any more: what the disk does not give in time is computed."""
        for sequence in self._roster.waiting.values():
            if sequence.reading is not None:
                logger.warning("the cache of sequence %s is not read back in time", sequence.id)
                sequence.reading = None

    # For those that are expected.

    def expect(self, sequence: Sequence, now: float) -> None:
        """A paused sequence is expected at a time: what was moved of it is to be back by then."""
        expected = sequence.expected
        if expected is not None and sequence.state is State.PAUSED:
            self._expected[sequence.id] = sequence
            self._next_at = min(self._next_at, max(self._due_at(sequence), now))

    def due_in(self, now: float) -> float | None:
        """In how many seconds there is something to bring back or to write; None where there is nothing."""
        next_at = min(self._next_at, self._settles_at)
        return max(next_at - now, 0.0) if next_at < math.inf else None

    def bring_back(self, now: float, *, may_copy: bool) -> None:
        """Begin with what is due: one copy at most, where `may_copy`, to a slot that is free and that nobody waits for;
        reads as many as there are."""
        may_copy = may_copy and self._residency.free_slots > 0 and not self._roster.waiting
        if now < self._next_at and not (may_copy and self._waits_for_slot):
            return
        self._next_at, self._waits_for_slot = math.inf, False
        for sequence in list(self._expected.values()):
            if (due_at := self._due_at(sequence)) > now:
                self._next_at = min(self._next_at, due_at)
            elif sequence.reading is None and self._is_back(sequence, may_copy=may_copy):
                may_copy = may_copy and sequence.slot is None
                del self._expected[sequence.id]

    def _is_back(self, sequence: Sequence, *, may_copy: bool) -> bool:
        """Bring one that is due a step nearer; whether nothing is left to do for it."""
        match self._residency.where(sequence):
            case Residency.NONE:
                self.fetch(sequence)
                return sequence.reading is None
            case Residency.DEVICE:
                return True
            case _ if may_copy:
                self._copy_back(sequence)
                return True
            case _:
                self._waits_for_slot = True
                return False

    def _due_at(self, sequence: Sequence) -> float:
        """When to begin, so that it is back in time."""
        assert sequence.expected is not None
        return sequence.expected.at - self._disk.read_s(sequence.computed_before)

    def _copy_back(self, sequence: Sequence) -> None:
        try:
            self._residency.bring_back(sequence)
        except Exception:  # without it the sequence is computed again
            logger.exception("the cache of sequence %s cannot be brought back", sequence.id)

    # For those that pause.

    def keep_one(self, now: float, *, settled: bool = True) -> bool:
        """Write a paused sequence's cache, if one is worth it; while nobody waits for the engine. `settled`: one alone
        that has been paused for a while."""
        self._settles_at = math.inf
        paused = (one for one in self._residency.holders() if one.state is State.PAUSED)
        for sequence in self._disk.wanted(paused):
            settles_at = (sequence.paused_at or 0.0) + SETTLE_S
            if not settled or settles_at <= now:
                break
            self._settles_at = min(self._settles_at, settles_at)
        else:
            return False
        try:
            self._residency.keep_on_disk(sequence)
        except Exception:  # without it the sequence is computed again
            logger.exception("the cache of sequence %s cannot be kept", sequence.id)
            sequence.kept_as = ""
        return True

"""How rounds end: stopped, cancelled or failed. Each is told, and frees what belongs to it. Engine thread only."""

import logging
import time
from collections.abc import Callable

from tenuto.runtime.engine.messages import Event, Failed, RoundUsage, StopCause, Stopped
from tenuto.runtime.engine.residency import CacheResidency
from tenuto.runtime.engine.roster import Roster
from tenuto.runtime.engine.sequence import Sequence, SequenceTrigger

logger = logging.getLogger(__name__)


class Ends:
    """Of the rounds of one engine. `tell` takes each event."""

    def __init__(self, roster: Roster, residency: CacheResidency, tell: Callable[[Event], None]) -> None:
        self._roster, self._residency, self._tell = roster, residency, tell

    def stop(self, sequence: Sequence, cause: StopCause) -> None:
        """The round has come to its end; the cache stays."""
        self._roster.on(sequence, SequenceTrigger.STOP)
        matched = sequence.open.stops.matched if sequence.open is not None and sequence.open.stops is not None else None
        self._close(sequence, lambda usage: Stopped(sequence.id, cause, usage, matched))

    def cancel_if_known(self, id: str) -> None:
        """End the round of a sequence, where there is one."""
        if (sequence := self._roster.get(id)) is not None:
            self.cancel(sequence)

    def forget(self, id: str) -> None:
        """Release a sequence, where there is one, whatever it is doing."""
        if (sequence := self._roster.get(id)) is not None:
            self.cancel(sequence)
            self.release(sequence)

    def cancel(self, sequence: Sequence) -> None:
        """End the round, where one is open; the cache stays."""
        if sequence.open is not None:
            self._roster.on(sequence, SequenceTrigger.CANCEL)
            self._close(sequence, lambda usage: Stopped(sequence.id, StopCause.CANCELLED, usage))

    def fail(self, sequence: Sequence, error: Exception) -> None:
        """The round cannot go on, and nobody knows what the cache is."""
        self._roster.on(sequence, SequenceTrigger.FAIL)
        self._close(sequence, lambda usage: Failed(sequence.id, f"{type(error).__name__}: {error}", usage))
        self.release(sequence)

    def release(self, sequence: Sequence) -> None:
        """Forget a sequence that has no round open, and free its cache."""
        self._roster.on(sequence, SequenceTrigger.RELEASE)
        if sequence.reading is not None:
            sequence.reading.cancel()
        try:
            self._residency.drop(sequence)
        except Exception:  # it is emptied again when it is used again
            logger.exception("the slot of sequence %s cannot be released", sequence.id)

    def _close(self, sequence: Sequence, event: Callable[[RoundUsage], Event]) -> None:
        opened, sequence.open = sequence.open, None
        sequence.paused_at, sequence.expected = time.monotonic(), None
        self._residency.touch(sequence)
        sequence.computed_before = max(sequence.computed_before, sequence.cached)
        usage = RoundUsage() if opened is None else opened.usage(time.monotonic())
        if opened is not None:
            opened.sampler.close()
        if sequence.reading is not None:
            sequence.reading.cancel()
        self._tell(event(usage))

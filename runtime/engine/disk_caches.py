"""Which caches are kept on disk, and which come back. Engine thread only, but for what wakes it.

Writing and reading are the affair of the store's threads; here is decided what is worth it. A snapshot takes the
engine's time for a copy in memory, so one is taken where a cache leaves its slot anyway, or while there is nothing else
to do.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass

from tenuto.pipelines.backend import Snapshot
from tenuto.runtime.engine.measures import Measures
from tenuto.runtime.engine.sequence import Sequence
from tenuto.runtime.engine.snapshots import Figures, Found, Restored, SnapshotStore

LEAST_TOKENS = 256
"""A cache of fewer is computed again as fast as it is read."""
GROWTH = 1.25
"""A sequence is written again when it is so many times longer, so that all that is written of one is a few times its
last size."""
READ_S, READ_BYTES_S = 0.01, 400e6
"""What reading a cache back is taken to cost: to begin with, and a second's bytes of a disk that is busy."""
PATIENCE_S = 10.0
"""After so long without its cache a sequence is computed: the disk does not answer."""
BEGIN_S = 5.0
"""For the headers of all files. Those of a few hundred take some hundredths of it."""
LOOK_S = 1.0
"""How often it is looked at what became of snapshots, while there is something to look for."""


@dataclass(frozen=True, slots=True)
class CacheDropped:
    """What was to be forgotten is gone from the disk, or may not be, with an `error`."""

    sequence: str
    error: str | None


class DiskCaches:
    """Over a store, or over none: then nothing is kept. `wake` is called on any thread when something has been read,
    and with what has been dropped.
    """

    def __init__(self, store: SnapshotStore | None, bytes_per_token: int, wake: Callable[[CacheDropped | None], None]):
        self._store, self._bytes_per_token, self._wake = store, bytes_per_token, wake
        self.measures = Measures()
        self._has_begun = False
        self._tried: list[str] = []
        """What the backend has been given since the last turn began."""
        self._figures: Figures | None = None
        self._looked = 0.0
        """When that was read. Any thread may set it back."""
        self._has_untold = store is not None
        """Whether it was not read yet, or some of what was given to the store was not yet written then."""

    def begin(self) -> None:
        """The engine begins a turn. Before the first it is waited, for a while, until it is known what lies there: else
        the first rounds would compute it."""
        if self._store is None:
            return
        if not self._has_begun:
            self._has_begun = True
            self._store.wait_until_known(BEGIN_S)
        while self._tried:  # the turn in which it was restored has ended, and the engine has not
            self._store.trust(self._tried.pop())

    @property
    def nbytes(self) -> int | None:
        """What lies on the disk, as of a second ago; None where nothing is kept."""
        figures = self.figures
        return None if figures is None else figures.nbytes

    @property
    def figures(self) -> Figures | None:
        """What became of snapshots, as of a second ago: the same object until then; None where nothing is kept."""
        now = time.monotonic()
        if self._store is not None and (self._figures is None or now - self._looked >= LOOK_S):
            figures, self._looked = self._store.figures(), now
            self._figures = self._figures if figures == self._figures else figures
            self._has_untold = figures.waiting > 0
        return self._figures

    def due_in(self, now: float) -> float | None:
        """In how many seconds there is more to tell in `figures`, though nothing else happens; None where there is
        not."""
        return max(self._looked + LOOK_S - now, 0.0) if self._has_untold else None

    def written(self, sequence: Sequence, held: int) -> int:
        """How many tokens of a sequence's cache of so many lie on the disk, as far as is known here: most, or none."""
        return min(sequence.kept, held) if self._store is not None and 0 < held < GROWTH * sequence.kept else 0

    def wants(self, sequence: Sequence, held: int) -> bool:
        """Whether a sequence's cache of so many tokens is worth to be written."""
        if self._store is None or not sequence.kept_as or held < max(LEAST_TOKENS, GROWTH * sequence.kept):
            return False
        reading_s = READ_S + held * self._bytes_per_token / READ_BYTES_S  # as slow as it may be, not as was measured
        prefill = self.measures.prefill
        return bool(prefill) and held / prefill > 2 * reading_s

    def keep(self, sequence: Sequence, held: int, snapshot: Snapshot) -> None:
        """Write a sequence's cache of so many tokens, of which this is the snapshot. Its buffer must not change any
        more."""
        assert self._store is not None
        # Also where the queue has no room: what does not fit now is tried again once it has grown.
        sequence.kept = held
        self._has_untold = True
        self._store.keep(sequence.kept_as, sequence.principal, sequence.tokens.copy(held), snapshot)

    def wanted(self, paused: Iterable[Sequence]) -> Iterator[Sequence]:
        """Those whose cache is worth to be written."""
        return (one for one in paused if self.wants(one, one.cached))

    def read_s(self, tokens: int) -> float:
        """About how long it takes until a cache of so many tokens is read back."""
        return READ_S + tokens * self._bytes_per_token / self.measures.read.per_s

    def find(self, sequence: Sequence, *, whole: bool) -> list[Found]:
        """What lies on the disk of a sequence's tokens: of its own, and of that of its principal's others that begins
        most alike. `whole`: of others, those alone that have nothing else."""
        if self._store is None:
            return []
        principal, tokens = sequence.principal, sequence.tokens
        own = self._store.find(sequence.kept_as, principal, tokens) if sequence.kept_as else None
        alike = self._store.find_alike(principal, tokens, whole=whole, but=sequence.kept_as)
        return [found for found in (own, alike) if found is not None]

    def pays(self, sequence: Sequence, found: Found, usable: int) -> bool:
        """Whether reading what was found takes less than computing so many tokens. A sequence's own was written because
        it does; of another's, all is read."""
        reading_s = READ_S + found.nbytes / READ_BYTES_S
        return found.sequence == sequence.kept_as or usable > reading_s * self.measures.prefill

    def read(self, sequence: Sequence, found: Found) -> "Future[Restored | None]":
        """Begin to read what was found for a sequence."""
        assert self._store is not None
        began, measures, wake = time.monotonic(), self.measures, self._wake

        def told(reading: "Future[Restored | None]") -> None:
            if not reading.cancelled() and reading.result() is not None:
                measures.read.add(found.nbytes, time.monotonic() - began)
            wake(None)

        reading = self._store.read(found.sequence, sequence.principal)
        reading.add_done_callback(told)
        return reading

    def restored(self, kept_as: str) -> None:
        """The backend has taken what was read back under this name."""
        self._tried.append(kept_as)

    def reject(self, kept_as: str) -> None:
        """The backend has refused what was read back under this name: it is not to be read again."""
        assert self._store is not None
        self._store.reject(kept_as)

    def forget(self, sequence: str, kept_as: str) -> None:
        """Take away what is kept under a name; `wake` is told when it is gone."""
        if self._store is None or not kept_as:
            self._wake(CacheDropped(sequence, None))
            return

        def tell(dropped: Future[None]) -> None:
            error = dropped.exception()
            self._looked = 0.0  # how much lies there is told with it
            self._wake(CacheDropped(sequence, None if error is None else f"{type(error).__name__}: {error}"))

        self._store.drop(kept_as).add_done_callback(tell)

    def abandon(self) -> None:
        """Write nothing more. On any thread."""
        if self._store is not None:
            self._store.abandon()

    def close(self) -> None:
        """Write what waits, within a bound."""
        if self._store is not None:
            self._store.close(PATIENCE_S)

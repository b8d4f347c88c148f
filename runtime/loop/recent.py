"""Runs at rest that are still in memory, for whoever follows their events: so many bytes of the last ones."""

from collections import OrderedDict
from collections.abc import Callable

from tenuto.runtime.loop.run import Run
from tenuto.sessions.shares import Shares

KEPT_BYTES = 64 << 20
KEPT_S = 600.0

_RUN_BYTES = 8192


class Recent:
    """Holds runs, of each principal the last ones. Event-loop thread only. `clock` gives seconds since any time."""

    def __init__(self, clock: Callable[[], float], size: int = KEPT_BYTES) -> None:
        self._clock = clock
        self._runs: OrderedDict[str, tuple[Run, float]] = OrderedDict()
        self._shares: Shares[str] = Shares("the table of recent runs", size, lambda _: True)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def nbytes(self) -> int:
        """About what they take in memory."""
        return self._shares.used

    def put(self, run: Run) -> None:
        """A run has come to rest just now: it waits, or it has ended for good."""
        if not run.record.status.is_open:
            run.forget_options()
        self._runs[run.id] = (run, self._clock() + KEPT_S)
        self._runs.move_to_end(run.id)
        for gone in self._shares.settle(run.id, run.record.principal, _RUN_BYTES + run.nbytes):
            del self._runs[gone]

    def expire(self) -> None:
        """Let those go that came to rest long ago."""
        now = self._clock()
        while self._runs:
            run_id, (_, until) = next(iter(self._runs.items()))
            if until > now:
                return
            del self._runs[run_id]
            self._shares.remove(run_id)

"""When an engine that has ended is begun again: at once, then after ever longer waits, and not for ever. Pure.

A wait counts from when the process that has ended began to work: one that has worked for longer costs none.
"""

FIRST_DELAY_S, MOST_DELAY_S = 0.5, 30.0
QUIET_S = 60.0
"""After so long without an end, the next one counts as the first."""
MOST = 8
"""Ends in a row of processes that never came to work, after which it is given up."""


class Restarts:
    """Of one engine. Times are those of any clock that never goes back."""

    def __init__(self) -> None:
        self._ends = self._failures = 0
        self._begun = 0.0

    def next(self, now: float) -> float | None:
        """It has ended, or could not be begun: after how many seconds to begin it again; None: no more."""
        if self._ends and not self._failures and now - self._begun > QUIET_S:
            self._ends = 0
        self._ends, self._failures = self._ends + 1, self._failures + 1
        if self._failures > MOST:
            return None
        if self._ends == 1:
            return 0.0
        delay_s: float = min(FIRST_DELAY_S * 2 ** min(self._ends - 2, 16), MOST_DELAY_S)
        worked_s = now - self._begun if self._failures == 1 else 0.0
        return max(delay_s - worked_s, 0.0)

    def works(self, now: float) -> None:
        """It has begun to work. Whatever ends it from now on, the model can be loaded here."""
        if self._failures or not self._begun:
            self._failures, self._begun = 0, now

"""When a server that has failed is tried again: at once where that may help, then ever more seldom."""

import anyio

from tenuto.tools.host.state import Failure

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 30.0
REFUSED_DELAY_S = 300.0
"""Between tries of a server that refuses our key: somebody must change something first."""
LOGIN_DELAY_S = 30.0
"""At the least, before a try without a login that is known to be wanted: a login is noticed by itself."""
STEADY_S = 10.0
"""A connection that lasted so long was a good one: after its end the delays begin anew."""
PATIENCE_S = 2.0
"""A call waits for a server that is tried again within this time, and fails at once otherwise."""


class Backoff:
    """Of one server. `at` is the time of the next try, by the event loop's clock."""

    def __init__(self) -> None:
        self.at = 0.0
        self._delay_s = 0.0

    @property
    def is_near(self) -> bool:
        """Whether a call can wait for the next try."""
        return self.at - anyio.current_time() <= PATIENCE_S

    def reset(self) -> None:
        """The next try is due."""
        self.at = self._delay_s = 0.0

    def fail(self, failure: Failure, lasted_s: float) -> float:
        """A start, or a connection that lasted so long, has failed; in how many seconds the next try is."""
        delay_s = 0.0 if lasted_s >= STEADY_S else self._delay_s
        if failure is Failure.LOGIN_REQUIRED:
            delay_s = max(delay_s, LOGIN_DELAY_S)
        self.at = anyio.current_time() + delay_s
        longest = REFUSED_DELAY_S if failure in (Failure.UNAUTHORIZED, Failure.LOGIN_REQUIRED) else MAX_DELAY_S
        self._delay_s = min(max(delay_s * 2, FIRST_DELAY_S), longest)
        return delay_s

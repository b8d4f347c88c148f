"""How long the garbage collector may stop the server, and how often: what it has looked at for long, it looks at when
nobody waits.

A full collection stops all threads for as long as it looks, and looks at all that is in memory. What lives stays there
while it is young, and cycles are few, so whatever a long collection has found alive is set aside until the server is at
rest. What is set aside is freed as ever by its last reference; only a cycle that dies there waits for the rest.
"""

import gc
import time
from typing import Any

_YOUNG = 10_000
"""A collection comes when so many objects more are alive than after the last one. Python's own 700 are what two
requests hold, so that it would look at each of them several times while it is under way."""
_LONG_S = 0.05
"""A collection that takes longer sets aside what it has found alive."""


class Collector:
    """Bounds the collections of this process. Any thread, as collections are."""

    def __init__(self, long_s: float = _LONG_S) -> None:
        self._long_s, self._begun = long_s, 0.0
        self._has_set_aside = False
        self._thresholds = gc.get_threshold()
        gc.set_threshold(_YOUNG, *self._thresholds[1:])
        gc.callbacks.append(self._seen)

    def settle(self) -> None:
        """Look at everything once, and set it aside. Takes as long as there is much."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._has_set_aside = False

    def rest(self) -> None:
        """Nobody waits: look at what was set aside since the last rest."""
        if self._has_set_aside:
            self.settle()

    def close(self) -> None:
        """Collect as ever."""
        gc.callbacks.remove(self._seen)
        gc.set_threshold(*self._thresholds)

    def _seen(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._begun = time.perf_counter()
        elif info["generation"] == 2 and time.perf_counter() - self._begun > self._long_s:
            gc.freeze()
            self._has_set_aside = True

"""What servers tell in the middle of a run's calls, as events of the run: progress and messages, bounded. Pure but for
the clock."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from tenuto.runtime.loop.events import ToolTold
from tenuto.tools.host.results import shortened

MOST = 300
"""Events of one call."""
PROGRESS_EVERY_S = 0.2
"""Progress that comes faster is left out, but for the end of it."""
MOST_CHARACTERS = 2_000
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


@dataclass(slots=True)
class Tellings:
    """Those of one call. `emit` takes the events."""

    call_id: str
    name: str
    round: int
    emit: Callable[[ToolTold], None]
    clock: Callable[[], float] = field(default=anyio.current_time)
    _told: int = 0
    _at: float = -math.inf

    async def progress(self, done: float, total: float | None, message: str | None) -> None:
        """How far the call is."""
        now = self.clock()
        is_last = total is not None and done >= total
        finite = math.isfinite(done) and (total is None or math.isfinite(total))
        if finite and (is_last or now - self._at >= PROGRESS_EVERY_S):
            self._at = now
            self._tell(None if message is None else shortened(message, MOST_CHARACTERS), done, total)

    def log(self, level: str, text: str) -> None:
        """A message of the server's log."""
        self._tell(shortened(text, MOST_CHARACTERS), level=level if level in LEVELS else "info")

    def _tell(
        self, text: str | None, done: float | None = None, total: float | None = None, level: str | None = None
    ) -> None:
        if self._told < MOST:
            self._told += 1
            self.emit(ToolTold(self.round, self.call_id, self.name, text, done, total, level))

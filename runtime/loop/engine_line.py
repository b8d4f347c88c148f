"""The line to an engine: begins it, carries commands there, and tells for how long it has been silent."""

import time
from collections.abc import Callable, Sequence

from tenuto.errors import ShuttingDown
from tenuto.runtime.engine.messages import Command, EngineStatus, Event, Report
from tenuto.runtime.engine.port import EnginePort


class EngineLine:
    """Begins an engine. Event-loop thread only; made inside a running loop, freed by `stop`.

    `heard` gets what each report tells; `ended` is called when nothing more will come.
    """

    def __init__(
        self, model: str, engine: EnginePort, heard: Callable[[Sequence[Event]], None], ended: Callable[[], None]
    ) -> None:
        self._model, self._engine, self._heard, self._ended = model, engine, heard, ended
        self._has_ended = False
        self._told = 0
        self._heard_at = time.monotonic()
        self.status = EngineStatus()
        """As of its last report."""
        engine.begin(self._hear, self._end)

    @property
    def is_alive(self) -> bool:
        """Whether the engine has not ended."""
        return self._engine.is_alive()

    @property
    def silent_s(self) -> float:
        """For how long it has said nothing although it has something to do, in seconds; 0 where it rests."""
        has_work = self.status.busy or self._told > self.status.commands
        return time.monotonic() - self._heard_at if has_work else 0.0

    def tell(self, command: Command) -> None:
        """Give a command."""
        if not self.silent_s:
            self._heard_at = time.monotonic()  # it had nothing to say: its time to answer begins now
        self._told += 1
        self._engine.tell(command)

    def check_alive(self) -> None:
        """Raises ShuttingDown where the engine has ended, or is to."""
        if self._has_ended or not self._engine.is_alive():
            raise ShuttingDown(f"the engine of {self._model} has stopped")

    async def stop(self, timeout_s: float) -> None:
        """End the engine. It takes nothing from now on, and has ended or is given up when this returns."""
        self._has_ended = True
        await self._engine.stop(timeout_s)

    def _hear(self, report: Report) -> None:
        self._heard_at = time.monotonic()
        self.status = report.status
        self._heard(report.events)

    def _end(self) -> None:
        self._has_ended = True
        self._ended()

"""The line to an engine: begins it, carries commands there, and tells for how long it has been silent."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tenuto.errors import ShuttingDown
from tenuto.runtime.engine.counts import together
from tenuto.runtime.engine.messages import Command, EngineStatus, Event, Report, Residency
from tenuto.runtime.engine.port import EnginePort


@dataclass(frozen=True, slots=True)
class EngineHealth:
    """How a model's engine does. `silent_s`: for so long it has had work and has not made a step. `restarts`: so often
    it has ended by itself and begun again."""

    is_alive: bool
    silent_s: float
    restarts: int
    status: EngineStatus


class EngineLine:
    """Begins an engine. Event-loop thread only; made inside a running loop, freed by `stop`.

    `heard` gets what each report tells; `ended` is called when nothing more will come, `lost` when the engine has ended
    by itself, and `anew` when it has begun again with nothing.
    """

    def __init__(
        self,
        model: str,
        engine: EnginePort,
        heard: Callable[[Sequence[Event]], None],
        ended: Callable[[], None],
        lost: Callable[[], None],
        anew: Callable[[], None],
    ) -> None:
        self._model, self._engine = model, engine
        self._heard, self._ended, self._lost, self._anew = heard, ended, lost, anew
        self._has_ended = False
        self.is_away = False
        """Whether it is being begun again, and takes nothing."""
        self._told = 0
        self._heard_at = time.monotonic()
        self.status = EngineStatus()
        """As of its last report; its counts are of all that the engine has done, however often it began."""
        self._before: EngineStatus | None = None
        """When it was last lost."""
        self.restarts = 0
        engine.begin(self._hear, self._end, self._lose, self._begin_anew)

    @property
    def is_alive(self) -> bool:
        """Whether the engine has not ended."""
        return self._engine.is_alive()

    @property
    def health(self) -> EngineHealth:
        """All of this together."""
        return EngineHealth(self.is_alive, self.silent_s, self.restarts, self.status)

    @property
    def silent_s(self) -> float:
        """For how long it has said nothing although it has something to do, in seconds; 0 where it rests, and while it
        is being begun again, which has an end of its own."""
        has_work = self.status.busy or self._told > self.status.commands
        return time.monotonic() - self._heard_at if has_work and not self.is_away else 0.0

    def tell(self, command: Command) -> None:
        """Give a command."""
        if not self.silent_s:
            self._heard_at = time.monotonic()  # it had nothing to say: its time to answer begins now
        self._told += 1
        if not self.is_away:
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
        self.status = report.status if self._before is None else _after(self._before, report.status)
        self._heard(report.events)

    def _lose(self) -> None:
        self.is_away, self._before = True, self.status
        held = self._before.cache_bytes
        left = {place: nbytes if place is Residency.DISK else 0 for place, nbytes in held.items()}
        self.status = _after(self._before, EngineStatus(cache_bytes=left))
        self._lost()

    def _begin_anew(self) -> None:
        self.is_away = False
        self._told, self._heard_at, self.restarts = 0, time.monotonic(), self.restarts + 1
        self._anew()

    def _end(self) -> None:
        self._has_ended = True
        self._ended()


def _after(before: EngineStatus, status: EngineStatus) -> EngineStatus:
    """A status with what an engine had done before it began again."""
    return replace(
        status,
        steps=before.steps + status.steps,
        computed=before.computed + status.computed,
        sampled=before.sampled + status.sampled,
        drafted=before.drafted + status.drafted,
        accepted=before.accepted + status.accepted,
        shared=before.shared + status.shared,
        interrupted=before.interrupted + status.interrupted,
        counts=together(before.counts, status.counts),
    )

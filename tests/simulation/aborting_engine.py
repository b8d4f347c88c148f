"""An engine that may end in the middle of a step, and is begun again: what one in a process of its own does."""

import asyncio
from collections.abc import Callable

from tenuto.pipelines.base import Pipeline
from tenuto.runtime.engine.engine import Engine, EngineSettings
from tenuto.runtime.engine.messages import Command, Report
from tenuto.threads import Body, Drive, Driver, Next
from tests.simulation.script import Aborted


class AbortingEngine:
    """An `EnginePort` over one engine after the other. While there is none, what it is told is dropped."""

    def __init__(self, pipeline: Callable[[], Pipeline], drive: Drive, settings: EngineSettings) -> None:
        self._pipeline, self._drive, self._settings = pipeline, drive, settings
        self._engine: Engine | None = None
        self._life = 0
        self._again: asyncio.TimerHandle | None = None
        self._has_ended = False

    def begin(
        self,
        heard: Callable[[Report], None],
        ended: Callable[[], None],
        lost: Callable[[], None],
        anew: Callable[[], None],
    ) -> None:
        self._heard, self._ended, self._lost, self._anew = heard, ended, lost, anew
        self._begin()

    def tell(self, command: Command) -> None:
        if self._engine is not None:
            self._engine.tell(command)

    def is_alive(self) -> bool:
        return not self._has_ended

    async def stop(self, timeout_s: float) -> None:
        if self._again is not None:
            self._again.cancel()
        if self._engine is not None:
            await self._engine.stop(timeout_s)
        self._end()

    def _begin(self) -> None:
        engine = self._engine = Engine(self._pipeline(), self._settings, self._drive_until_it_aborts)

        def heard(report: Report) -> None:
            if self._engine is engine:  # what one said that has ended is lost with it
                self._heard(report)

        engine.begin(heard, lambda: self._lose(engine), lambda: None, lambda: None)

    def _lose(self, engine: Engine) -> None:
        if self._engine is engine and self._again is None:
            self._end()

    def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._ended()

    def _drive_until_it_aborts(self, name: str, body: Body) -> Driver:
        life = self._life

        def work(wait: bool) -> Next:
            if life != self._life:  # whatever threads a process had have ended with it
                return Next.ENDED
            try:
                return body(wait)
            except Aborted as end:
                self._engine = None
                self._life += 1
                loop = asyncio.get_running_loop()
                self._again = loop.call_later(end.seconds, self._begin_again)
                self._lost()
                return Next.ENDED

        return self._drive(name, work)

    def _begin_again(self) -> None:
        self._again = None
        self._begin()
        self._anew()

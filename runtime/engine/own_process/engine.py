"""An engine in a process of its own, which is begun again where it ends by itself."""

import asyncio
import logging
import pickle
from collections.abc import Callable
from dataclasses import replace

import anyio

from tenuto.errors import ModelLoadFailed
from tenuto.runtime.engine.messages import Command, Report, Stop
from tenuto.runtime.engine.own_process import commands, reports
from tenuto.runtime.engine.own_process.frames import Kind, frame
from tenuto.runtime.engine.own_process.line import BySignal, Line, NotForText
from tenuto.runtime.engine.own_process.order import EngineSettings, Opened, Order
from tenuto.runtime.engine.own_process.restarts import Restarts

logger = logging.getLogger(__name__)


class EngineProcess:
    """An `EnginePort`. Event-loop thread only; freed by `stop`.

    What a step does to the process costs a pause: another one loads the same model, and whoever uses the engine is told
    that it is lost, and when it has begun anew. What is given to it in between is dropped, as what was given to the one
    that has ended.
    """

    def __init__(self, order: Order, line: Line) -> None:
        self.opened: Opened = line.opened
        self._settings, self._vocabulary = EngineSettings(), reports.ANY
        # The next process has as many slots and cells as this one, whatever memory is free then.
        self._order = replace(order, settings=replace(order.settings, layout=self.opened.layout))
        self._line: Line | None = line
        self._restarts = Restarts()
        self._again: asyncio.Task[None] | None = None
        self._giving_up = anyio.CancelScope()
        self._stopped: asyncio.Event | None = None
        self._has_begun = self._has_ended = False
        self._ended: Callable[[], None] = lambda: None

    @classmethod
    async def open(cls, order: Order) -> "EngineProcess":
        """Start a process and let it load a model. The engine is begun by `begin`.

        Raises:
            NotForText: it makes vectors of texts.
            ModelLoadFailed: the text says what is wrong and what to do.
        """
        try:
            return cls(order, await Line.open(order))
        except ModelLoadFailed as error:
            if not isinstance(error.__cause__, BySignal):
                raise
            # What a file does to the library is found out by its trial: this came from elsewhere.
            logger.error("%s; it is loaded once more", error)
            return cls(order, await Line.open(order))

    def limited(self, settings: EngineSettings, vocabulary: int = reports.ANY) -> "EngineProcess":
        """Itself, held to these settings, and to so many tokens that the codec knows. Before it is begun."""
        self._settings, self._vocabulary = settings, vocabulary
        return self

    @property
    def process_id(self) -> int | None:
        """Of the process; None while there is none."""
        return None if self._line is None else self._line.process_id

    def begin(
        self,
        heard: Callable[[Report], None],
        ended: Callable[[], None],
        lost: Callable[[], None],
        anew: Callable[[], None],
    ) -> None:
        """Begin to take commands."""
        self._heard, self._ended, self._lost, self._anew = heard, ended, lost, anew
        assert self._line is not None, "it has not been stopped"
        self._has_begun = True
        self._attach(self._line)

    def tell(self, command: Command) -> None:
        """Give a command. It is dropped where there is no process that could take it."""
        if self._line is not None:
            self._line.send(commands.encoded(command))

    def is_alive(self) -> bool:
        """Whether there is a process, or is to be one."""
        is_gone = self._line is None or self._line.is_lost
        return not self._has_ended and not (self._stopped is not None and is_gone)

    async def stop(self, timeout_s: float) -> None:
        """End the process; one that does not end within the time is killed."""
        stopped = self._stopped = self._stopped or asyncio.Event()
        self._giving_up.cancel()
        if self._again is not None:
            await asyncio.wait([self._again])
        line = self._line
        if line is not None:
            if self._has_begun and not line.is_lost:
                line.send(commands.encoded(Stop()))
                with anyio.move_on_after(timeout_s):
                    await stopped.wait()
            if self._has_begun and not line.is_lost:
                logger.error("the engine of %s did not stop within %g s", self._order.model, timeout_s)
            self._line = None
            await line.close()
        self._end()

    def _attach(self, line: Line) -> None:
        line.hear, line.lost = self._hear, self._lose
        self._line = line
        line.send(frame(Kind.BEGIN, pickle.dumps(self._settings)))
        if line.is_lost:
            asyncio.get_running_loop().call_soon(self._lose)

    def _hear(self, kind: Kind, payload: bytes) -> None:
        assert self._line is not None, "what one has said that is lost was heard before"
        try:
            if kind is not Kind.REPORT:
                raise ValueError(f"{kind.name} in place of a report")
            report = reports.decoded(payload, self._vocabulary)
        except ValueError as error:
            self._line.break_off(str(error))
            return
        self._restarts.works(asyncio.get_running_loop().time())
        self._heard(report)

    def _lose(self) -> None:
        """The process has closed its end."""
        if self._stopped is not None:
            self._stopped.set()
        elif self._again is None and self._line is not None and self._line.is_lost:
            line, self._line = self._line, None
            self._again = asyncio.get_running_loop().create_task(self._begin_again(line))

    async def _begin_again(self, lost: Line) -> None:
        """Wait for the end of the process that was lost, and start others until one has loaded the model."""
        how, line = await lost.how_it_ended(), None
        await lost.close()
        self._lost()
        with self._giving_up:
            line = await self._another(how)
        self._again = None
        if line is None:
            self._end()
            return
        if self._stopped is not None:
            await line.close()
            self._end()
            return
        self._giving_up = anyio.CancelScope()
        self._attach(line)
        self._anew()

    async def _another(self, how: str) -> Line | None:
        model = self._order.model
        while (delay_s := self._restarts.next(asyncio.get_running_loop().time())) is not None:
            logger.error("the engine of %s ended (%s); it is begun again in %g s", model, how, delay_s)
            await anyio.sleep(delay_s)
            try:
                line = await Line.open(self._order)
            except ModelLoadFailed as error:
                how = str(error)
                continue
            except NotForText:
                how = "its file has been replaced by one that embeds"
                break
            if _is_same(line.opened, self.opened):
                return line
            await line.close()
            how = "its file has changed since it was loaded; load the model again"
            break
        logger.error("the engine of %s ended (%s), and is given up", model, how)
        return None

    def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._ended()


def _is_same(opened: Opened, before: Opened) -> bool:
    """Whether rounds can go on with what has been opened, and the codec that the server has."""
    now, then = opened.backend, before.backend
    return (opened.stamp, now.slots, now.cells, now.context) == (before.stamp, then.slots, then.cells, then.context)

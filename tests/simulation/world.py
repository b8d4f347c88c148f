"""What the code under test takes from outside a loop (clocks, random bytes, threads), put on the seed for a while."""

import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import anyio
import anyio.lowlevel
import anyio.to_thread

from tenuto.sessions import ids
from tenuto.threads import Body, Next
from tests.simulation.loop import SimulatedLoop

EPOCH = 1_000_000_000.0
THREAD_S = 0.002
"""About how long a thread takes to begin, and to be heard."""


class Injected(OSError):
    """A fault that the simulation has made."""


def is_injected(error: BaseException | None) -> bool:
    """Whether a fault of the simulation's is the cause."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, Injected):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


class Log(logging.Handler):
    """Keeps what is logged as an error, without making text of it."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class Driven:
    """Drives a body on the loop, step after step: it stands for a thread.

    `times` gives how long until the next step begins, and how long it takes: what it says is heard at its end.
    """

    def __init__(self, loop: SimulatedLoop, times: Callable[[], tuple[float, float]], body: Body) -> None:
        self._loop, self._times, self._body = loop, times, body
        self._expected = self._ended = False
        self._busy_until = 0.0

    def wake(self) -> None:
        if not (self._expected or self._ended):
            self._expected = True
            before, lasts = self._times()
            begins = max(self._loop.time(), self._busy_until) + before
            self._busy_until = begins + lasts
            self._loop.call_at(begins, self._step, lasts)

    def is_alive(self) -> bool:
        return not self._ended

    def join(self, timeout: float) -> None:
        while not self._ended and self._do() is Next.MORE:
            pass

    def _step(self, lasts: float) -> None:
        self._expected = False
        self._loop.step_s = lasts
        try:
            following = None if self._ended else self._do()
        finally:
            self._loop.step_s = 0.0
        if following is Next.MORE:
            self.wake()

    def _do(self) -> Next:
        following = self._body(False)
        self._ended = following is Next.ENDED
        return following


@contextmanager
def simulated(loop: SimulatedLoop, chance: random.Random, log: Log) -> Iterator[None]:
    """Everything random comes from `chance`, every clock shows the loop's time, every thread is a task."""

    def clock() -> float:
        return EPOCH + loop.time()

    async def run_sync(work: Callable[..., Any], *args: Any, limiter: Any = None, **options: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        abandoned = bool(options.get("abandon_on_cancel"))
        async with limiter or nullcontext():
            with anyio.CancelScope(shield=not abandoned):
                await anyio.sleep(chance.random() * THREAD_S)
                try:
                    return work(*args)
                finally:
                    await anyio.sleep(chance.random() * THREAD_S)

    loggers = [logging.getLogger(name) for name in ("tenuto", "asyncio", "sqlalchemy")]
    before = [(logger.handlers, logger.propagate) for logger in loggers]
    with (
        mock.patch.object(os, "urandom", chance.randbytes),
        mock.patch.object(ids, "_DIGITS", ids.Digits()),
        mock.patch.object(time, "time", clock),
        mock.patch.object(time, "monotonic", loop.time),
        mock.patch.object(time, "sleep", loop.pass_time),
        mock.patch.object(anyio.to_thread, "run_sync", run_sync),
    ):
        for logger in loggers:
            logger.handlers, logger.propagate = [log], False
        try:
            yield
        finally:
            for logger, (handlers, propagate) in zip(loggers, before, strict=True):
                logger.handlers, logger.propagate = handlers, propagate

"""Work that nobody can bound beforehand, done apart: in processes that are ended when a job takes too long.

A thread cannot be ended, and one that computes in C code may keep the interpreter's lock. A job is a function of a
module and plain arguments; the same function does it here where it is known to be cheap.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

import anyio

from tenuto.errors import Overloaded, TookTooLong
from tenuto.runtime.apart.worker import Worker, WorkerDied

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MOST_WAITING = 64
_RETRY_S = 1.0


class Pool:
    """A few worker processes, each started when it is needed first. Event-loop thread only."""

    def __init__(self, most: int = 2, memory_bytes: int = 2 << 30) -> None:
        self._memory_bytes = memory_bytes
        self._places = anyio.Semaphore(most, max_value=most)
        self._idle: list[Worker] = []
        self._waiting = 0

    async def do(self, what: str, job: Callable[..., T], *arguments: object, seconds: float) -> T:
        """What a job gives, or what it raises. `what` names it in errors.

        Raises:
            TookTooLong: it did not come to its end in so many seconds, or it ended its process.
            Overloaded: too many others wait for such work.
        """
        if self._waiting >= _MOST_WAITING:
            raise Overloaded("the queue of the worker processes", _RETRY_S)
        self._waiting += 1
        try:
            async with self._places:
                return await self._do(what, job, arguments, seconds)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """End all processes."""
        while self._idle:
            await self._idle.pop().close()

    async def _do(self, what: str, job: Callable[..., T], arguments: tuple[object, ...], seconds: float) -> T:
        worker = self._idle.pop() if self._idle else await Worker.start(self._memory_bytes)
        fit = False
        try:
            done: T = await worker.do(job, arguments, seconds)
            fit = True
            return done
        except (TimeoutError, WorkerDied) as exc:
            logger.warning("%s was given up: %s", what, type(exc).__name__)
            raise TookTooLong(what, seconds) from None
        except Exception:
            fit = True  # the job's own
            raise
        finally:
            if fit:
                self._idle.append(worker)
            else:
                with anyio.CancelScope(shield=True):
                    await worker.close()

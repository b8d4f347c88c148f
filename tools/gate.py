"""A limit on how many calls of one tool run at a time, with a bounded queue before it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from tenuto.errors import ToolFailed


class Gate:
    """Lets `limit` callers in and `max_waiting` wait; refuses the rest. One event loop only."""

    def __init__(self, name: str, limit: int, max_waiting: int) -> None:
        self._name, self._limit, self._max_waiting = name, limit, max_waiting
        self._places = anyio.Semaphore(limit)
        self._waiting = 0

    @asynccontextmanager
    async def enter(self, deadline: float) -> AsyncIterator[None]:
        """Hold a place for the block. `deadline` is a time of the event loop's clock.

        Raises:
            ToolFailed: the queue is full, or no place came free before the deadline; nothing has run.
        """
        try:
            self._places.acquire_nowait()
        except anyio.WouldBlock:
            await self._wait(deadline)
        try:
            yield
        finally:
            self._places.release()

    async def _wait(self, deadline: float) -> None:
        if self._waiting >= self._max_waiting:
            raise self._busy(f"{self._waiting} more wait")
        self._waiting += 1
        try:
            with anyio.CancelScope(deadline=deadline) as scope:
                await self._places.acquire()
        finally:
            self._waiting -= 1
        if scope.cancelled_caught:
            raise self._busy("none has ended in time")

    def _busy(self, detail: str) -> ToolFailed:
        return ToolFailed(f"{self._name} is busy: {self._limit} calls of it run and {detail}", may_have_run=False)

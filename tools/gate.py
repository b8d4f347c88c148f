"""A limit on how many calls of one tool run at a time, with a bounded queue before it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from tenuto.errors import ToolFailed


class Place:
    """A place that a caller holds."""

    def __init__(self, places: anyio.Semaphore) -> None:
        self._places = places
        self.is_held = True

    @asynccontextmanager
    async def given_up(self) -> AsyncIterator[None]:
        """Let others have the place for the block, and wait for one after it."""
        self.leave()
        try:
            yield
        finally:
            await self._places.acquire()
            self.is_held = True

    def leave(self) -> None:
        """Give it back, where it is held."""
        if self.is_held:
            self.is_held = False
            self._places.release()


class Gate:
    """Lets `limit` callers in and `max_waiting` wait; refuses the rest. One event loop only."""

    def __init__(self, name: str, limit: int, max_waiting: int) -> None:
        self._name, self._limit, self._max_waiting = name, limit, max_waiting
        self._places = anyio.Semaphore(limit)
        self._waiting = 0

    @property
    def is_idle(self) -> bool:
        """Whether nobody is in, and nobody waits."""
        return not self._waiting and self._places.value == self._limit

    @asynccontextmanager
    async def enter(self, deadline: float) -> AsyncIterator[Place]:
        """Hold a place for the block. `deadline` is a time of the event loop's clock.

        Raises:
            ToolFailed: the queue is full, or no place came free before the deadline; nothing has run.
        """
        try:
            self._places.acquire_nowait()
        except anyio.WouldBlock:
            await self._wait(deadline)
        place = Place(self._places)
        try:
            yield place
        finally:
            place.leave()

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

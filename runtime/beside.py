"""Endless work beside a block of code, and how many changes become one round of it. Event-loop thread only."""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio


class Changed:
    """Turns any number of changes into refreshes, one at a time."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        """Something has changed. Event-loop thread only."""
        self._event.set()

    async def follow(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Refresh after changes, until cancelled."""
        while True:
            await self._event.wait()
            self._event = anyio.Event()
            await refresh()


@asynccontextmanager
async def beside(work: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Do some endless work for as long as the block lasts."""
    failed: Exception | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(work)
        try:
            yield
        except Exception as exc:  # goes on as it is, not in a group: the work cannot have caused it
            failed = exc
        group.cancel_scope.cancel()
    if failed is not None:
        raise failed

"""The hand-over from an engine's thread to the event loop: once a step, never once a token. asyncio is named here."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from tenuto.runtime.engine.messages import Event, Failed, Stopped


class RoundStream:
    """The events of one round, in order, ending with Stopped or Failed. Event-loop thread only, one reader.

    It is bounded by the round itself, whose tokens are.
    """

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, event: Event) -> None:
        """Add an event; never waits."""
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            while self._events:
                event = self._events.popleft()
                yield event
                if isinstance(event, Stopped | Failed):
                    return
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None


class Outlet:
    """Carries a step's events to the loop on which it was made. `send` is for the engine's thread."""

    def __init__(self, deliver: Callable[[Sequence[Event]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver

    def send(self, events: Sequence[Event]) -> None:
        """Hand over without waiting. Events for a loop that is closed have no reader and are dropped."""
        try:
            self._loop.call_soon_threadsafe(self._deliver, events)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

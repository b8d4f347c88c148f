"""The hand-over from an engine's thread to the event loop: once a step, never once a token. asyncio is named here."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from tenuto.runtime.engine.messages import WINDOW, Event, Failed, RoundEvent, Sampled, Stopped

TOLD_AFTER = WINDOW // 2
"""After so many tokens the engine is told that they have been read."""


class RoundStream:
    """The events of one round, in order, ending with Stopped or Failed. Event-loop thread only, one reader at a time.

    `tell` is told how many tokens have been read, once in `TOLD_AFTER`: a round does not go further ahead of its reader
    than `WINDOW` tokens. A reader that was cancelled lost nothing: the next one goes on where it stood.
    """

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell
        self._read = 0  # tokens that the engine has not been told of
        self._events: deque[RoundEvent] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether its last event has been read."""
        return self._is_over

    def put(self, event: RoundEvent) -> None:
        """Add an event; never waits."""
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> AsyncIterator[RoundEvent]:
        return self

    async def __anext__(self) -> RoundEvent:
        while not self._events:
            if self._is_over:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        event = self._events.popleft()
        if isinstance(event, Sampled):
            self._read += len(event.tokens)
            if self._read >= TOLD_AFTER:
                self._tell(self._read)
                self._read = 0
        self._is_over = isinstance(event, Stopped | Failed)
        return event


class Outlet:
    """Carries what the engine's thread has to say to the loop on which it was made, in order.

    `send` and `end` are for the engine's thread and never wait. What is meant for a loop that is closed has no reader
    and is dropped.
    """

    def __init__(self, deliver: Callable[[Sequence[Event]], None], ended: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver
        self._ended = ended

    def send(self, events: Sequence[Event]) -> None:
        """Hand over a step's events."""
        self._call(partial(self._deliver, events))

    def end(self) -> None:
        """Tell that nothing more will come."""
        self._call(self._ended)

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

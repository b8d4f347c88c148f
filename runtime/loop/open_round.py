"""One round at an engine, from its command to its end: what comes of it, for whoever reads it. No engine."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from tenuto.runtime.engine.messages import WINDOW, Cancel, Command, Read, RoundEvent, Submit, TokensSampled

TOLD_AFTER = WINDOW // 2
"""After so many tokens the engine is told that they have been read."""


@dataclass(eq=False)
class OpenRound:
    """The events of one round, in order, ending with Stopped or Failed. Event-loop thread only, one reader at a time.

    A reader that was cancelled lost nothing: the next one goes on where it stood. The engine goes no further ahead of
    its reader than `WINDOW` tokens.
    """

    command: Submit
    whole: Callable[[], Sequence[int]] | None
    """Gives all tokens of the prompt, where the command only names its beginning."""
    tell: Callable[[Command], None] | None
    """Reaches the engine; None once the round is closed there."""
    is_wanted: bool = True
    """Whether nobody has cancelled it."""
    is_over: bool = False
    """Whether its last event has been read."""
    _events: deque[RoundEvent] = field(default_factory=deque)
    _waiter: "asyncio.Future[None] | None" = None
    _read: int = 0
    """Tokens that the engine has not been told of."""

    def cancel(self) -> None:
        """Stop within a step; the last event is then Stopped. Does nothing once it is closed."""
        self.is_wanted = False
        self._tell(Cancel(self.command.sequence))

    def put(self, event: RoundEvent) -> None:
        """Add an event; never waits."""
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self, event: RoundEvent) -> None:
        """Add the last event. The engine hears no more of this round."""
        self.tell = None
        self.put(event)

    def __aiter__(self) -> AsyncIterator[RoundEvent]:
        return self

    async def __anext__(self) -> RoundEvent:
        while not self._events:
            if self.is_over:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        event = self._events.popleft()
        if isinstance(event, TokensSampled):
            self._read += len(event.tokens)
            if self._read >= TOLD_AFTER:
                self._tell(Read(self.command.sequence, self._read))
                self._read = 0
        else:
            self.is_over = True
        return event

    def _tell(self, command: Command) -> None:
        if self.tell is not None:
            self.tell(command)

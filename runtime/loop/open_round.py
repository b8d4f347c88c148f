"""One round at an engine, from its command to its end: what comes of it, for whoever reads it. No engine."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace

from tenuto.runtime.engine.messages import (
    WINDOW,
    Cancel,
    Command,
    Failed,
    Read,
    RoundEvent,
    RoundUsage,
    Stopped,
    Submit,
    TokensSampled,
)
from tenuto.sessions.tokens import NOTHING, Tokens

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
    is_told: bool = False
    """Whether the engine that there is has been told of it."""
    is_admitted: bool = False
    """Whether it is at work on it."""
    is_whole: bool = False
    """Whether the engine has been sent all of its tokens."""
    losses: int = 0
    """How many engines have ended that were at work on it, without a token since."""
    _began: float = field(default_factory=time.monotonic)
    _first_token: float | None = None
    _heard: Tokens = field(default_factory=Tokens)
    """All tokens that the engine has told."""
    _is_repeated: bool = False
    _events: deque[RoundEvent] = field(default_factory=deque)
    _waiter: "asyncio.Future[None] | None" = None
    _read: int = 0
    """Tokens that the engine has not been told of."""
    _unread: int = 0
    """Tokens that nobody has read."""

    def cancel(self) -> None:
        """Stop within a step; the last event is then Stopped. Does nothing once it is closed."""
        self.is_wanted = False
        self._tell(Cancel(self.command.sequence))

    def put(self, event: RoundEvent) -> None:
        """Add an event; never waits."""
        if isinstance(event, TokensSampled):
            self._heard.extend(event.tokens)
            self._unread += len(event.tokens)
            self.losses = 0
            if self._first_token is None:
                self._first_token = time.monotonic()
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self, event: Stopped | Failed) -> None:
        """Add the last event. The engine hears no more of this round."""
        self.tell = None
        self.put(replace(event, usage=self._timed(event.usage)) if self._is_repeated else event)

    def again(self) -> Submit:
        """The command that lets an engine which knows nothing go on after the last token that was heard.

        Raises:
            ValueError: the prompt cannot be had any more.
        """
        command, self._is_repeated, self._read = self.command, True, 0
        tokens = Tokens(command.tokens if self.whole is None else self.whole())
        if not tokens.begins_with(command.known):
            raise ValueError("the prompt has changed since")
        computed_before = max(command.computed_before, command.known.length)
        said = Tokens(command.said)
        said.extend(self._heard)
        return replace(
            command,
            known=NOTHING,
            tokens=tokens,
            computed_before=computed_before,
            said=said,
            unread=self._unread,
        )

    def usage(self) -> RoundUsage:
        """What it has cost as far as that is known without its engine."""
        command, sampled = self.command, len(self.command.said) + len(self._heard)
        prompt, before = command.known.length + len(command.tokens), max(command.computed_before, command.known.length)
        return self._timed(RoundUsage(prompt=prompt, new=prompt - before, sampled=sampled))

    @property
    def is_ahead(self) -> bool:
        """Whether the engine has told more than it may: twice what a reader may leave unread."""
        return self._unread > 2 * WINDOW

    def _timed(self, usage: RoundUsage) -> RoundUsage:
        """A usage with the times of the whole round, of which the engine knows only what came after it began again."""
        return replace(
            usage,
            first_token_s=None if self._first_token is None else round(self._first_token - self._began, 6),
            total_s=round(time.monotonic() - self._began, 6),
        )

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
            self._unread -= len(event.tokens)
            if self._read >= TOLD_AFTER:
                self._tell(Read(self.command.sequence, self._read))
                self._read = 0
        else:
            self.is_over = True
        return event

    def _tell(self, command: Command) -> None:
        if self.tell is not None:
            self.tell(command)

"""A call under way at a server, and what is being answered in it. Event-loop thread only."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import anyio

from tenuto.tools.asking import CannotAsk
from tenuto.tools.spec import CallContext

T = TypeVar("T")


class Over(CannotAsk):
    """The call in which something was to be asked is over."""


@dataclass(slots=True, eq=False)
class Flight:
    """A call under way. One question of it is asked at a time, of a person or of the model."""

    context: CallContext
    asking: anyio.Lock = field(default_factory=anyio.Lock)
    scopes: set[anyio.CancelScope] = field(default_factory=set)
    """Of what is being answered in it, which ends with it."""

    has_result: bool = False
    """Whether it has ended by itself. A question that it has left open then was another call's."""

    async def answering(self, work: Callable[[], Awaitable[T]]) -> T:
        """Answer a question of the call for as long as this is under way. Raises Over when it no longer is."""
        with anyio.CancelScope() as scope:
            self.scopes.add(scope)
            try:
                return await work()
            finally:
                self.scopes.discard(scope)
        raise Over("the call in which it was asked has ended")

    def end(self) -> None:
        """Nobody waits for the call any more."""
        for scope in list(self.scopes):
            scope.cancel()

"""What a tool may ask of whoever waits for its call: a question to a person. The vocabulary, and the clocks that stop.

A question comes through the call's own context, so that nobody else is asked, and nobody where the call has no one.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import anyio

from tenuto.sessions.items import JsonObject
from tenuto.sessions.questions import Question


class Action(StrEnum):
    """What a person did with a question."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Reply:
    """A person's answer. `content` is what they filled in, which may be a secret: it is neither shown nor kept."""

    action: Action
    content: JsonObject | None = field(default=None, repr=False)


CANCELLED = Reply(Action.CANCEL)

Ask = Callable[[Question], Awaitable[Reply]]
"""Asks and waits for the answer. Raises CannotAsk."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A call that goes on in another process than the one in which it asked: where it stood, and the answer."""

    state: JsonObject = field(repr=False)
    reply: Reply


class CannotAsk(Exception):
    """Nobody can be asked, person or model; the text says why, for the server that wanted to."""


@contextmanager
def stopped(clocks: Sequence[anyio.CancelScope]) -> Iterator[None]:
    """Let the time of scopes stand still for the block: how long a person or the model takes is not the tool's affair.

    One block at a time.
    """
    now = anyio.current_time()
    left = [clock.deadline - now for clock in clocks]
    for clock in clocks:
        clock.deadline = float("inf")
    try:
        yield
    finally:
        now = anyio.current_time()
        for clock, rest in zip(clocks, left, strict=True):
            clock.deadline = now + rest

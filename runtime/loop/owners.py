"""The owners of sessions: everything that changes a session goes through its owner, one command after the other.

So does every request with an Idempotency-Key, by its key: owners of keys ask those of sessions, and not the other way.

A command runs in the owner's task, so a client that leaves in the middle of one takes nothing back: what has begun
comes to its end. What its client has left before it began is not done at all.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

import anyio
from anyio.abc import TaskGroup

from tenuto.errors import Overloaded, ShuttingDown

T = TypeVar("T")

Key = tuple[str, str]
"""A principal's id and the id of one of its sessions, or one of its Idempotency-Keys."""

MOST_WAITING = 256
"""How many commands may wait for one owner."""
_RETRY_S = 1.0


@dataclass(slots=True, eq=False)
class _Command(Generic[T]):
    """A command and what became of it."""

    work: Callable[[], Awaitable[T]]
    unheard: Callable[[T], Awaitable[object]] | None
    done: anyio.Event = field(default_factory=anyio.Event)
    result: T | None = None
    error: BaseException | None = None
    is_awaited: bool = True

    async def carry_out(self) -> None:
        if not self.is_awaited:
            return
        try:
            self.result = await self.work()
            if not self.is_awaited and self.unheard is not None:
                await self.unheard(self.result)
        except Exception as error:
            self.error = error
        except BaseException:
            self.error = ShuttingDown("the server is stopping")
            raise
        finally:
            self.done.set()


class Owners:
    """One owner for each session, or whatever else is meant by `of`, that has commands; it ends with the last of them.

    Event-loop thread only. No command waits for a command of another session, so none can wait for ever.
    """

    def __init__(self, group: TaskGroup, of: str = "session") -> None:
        self._group, self._of = group, of
        self._waiting: dict[Key, deque[_Command[Any]]] = {}

    @property
    def busy(self) -> int:
        """How many of them have commands under way."""
        return len(self._waiting)

    async def ask(
        self, key: Key, work: Callable[[], Awaitable[T]], unheard: Callable[[T], Awaitable[object]] | None = None
    ) -> T:
        """Let the owner carry out a command, and give what came of it. Raises what the command raises.

        `unheard` is given the result where nobody waits for it any more.

        Raises:
            Overloaded: too many commands wait already.
            ShuttingDown: the server stopped before the command was done.
        """
        command = _Command(work, unheard)
        queue = self._waiting.get(key)
        if queue is None:
            queue = deque()
            try:
                self._group.start_soon(self._serve, key, queue)
            except RuntimeError:
                raise ShuttingDown("the server has stopped") from None
            self._waiting[key] = queue
        elif len(queue) >= MOST_WAITING:
            raise Overloaded(f"the queue of {self._of} {key[1]!r}", _RETRY_S)
        queue.append(command)
        try:
            await command.done.wait()
        except BaseException:
            command.is_awaited = False
            if command.done.is_set() and command.error is None and unheard is not None:  # it has come too late
                with anyio.CancelScope(shield=True):
                    await unheard(cast("T", command.result))
            raise
        error, command.error = command.error, None  # its traceback holds this frame, and with it the command
        if error is not None:
            try:
                raise error
            finally:
                del error
        return cast("T", command.result)

    async def _serve(self, key: Key, queue: deque[_Command[Any]]) -> None:
        try:
            while queue:
                await queue.popleft().carry_out()
        finally:
            del self._waiting[key]
            for command in queue:  # the server stops
                command.error = ShuttingDown("the server is stopping")
                command.done.set()

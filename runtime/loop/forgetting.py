"""Who waits until an engine has taken a sequence's caches off the disk. Event-loop thread only."""

import asyncio
from collections.abc import Callable

import anyio

from tenuto.errors import StoreFailed
from tenuto.runtime.engine.messages import Command, Forget, Forgotten

FORGET_S = 30.0
"""For an engine to answer."""


class Forgetting:
    """Of one engine, which `tell` reaches."""

    def __init__(self, tell: Callable[[Command], None]) -> None:
        self._tell = tell
        self._asked: dict[Forget, list[asyncio.Future[str | None]]] = {}

    async def ask(self, command: Forget) -> None:
        """Have a sequence forgotten, and wait for that.

        Raises:
            StoreFailed: something of it may still be on the disk.
        """
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(command, []).append(answer)
        self._tell(command)
        try:
            with anyio.fail_after(FORGET_S):
                error = await answer
        except TimeoutError:
            error = f"the engine has not answered within {FORGET_S:g} s"
        finally:
            left = [one for one in self._asked.pop(command, ()) if one is not answer]
            if left:
                self._asked[command] = left
        if error is not None:
            raise StoreFailed(f"the caches of a session cannot be taken off the disk: {error}")

    def hear(self, event: Forgotten) -> None:
        """What the engine has to say of it."""
        for command in [one for one in self._asked if one.sequence == event.sequence]:
            for answer in self._asked[command]:
                if not answer.done():
                    answer.set_result(event.error)

    def end(self) -> None:
        """The engine has ended, whether another is begun or not: what it has written is for the folder to forget."""
        for command in list(self._asked):
            self.hear(Forgotten(command.sequence))

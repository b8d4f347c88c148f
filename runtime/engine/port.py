"""What the loop knows of an engine: commands in, reports out, all of them values. It may live anywhere."""

from collections.abc import Callable
from typing import Protocol

from tenuto.runtime.engine.messages import Command, Report


class EnginePort(Protocol):
    """One model's engine, as the event loop on which it was begun sees it. Nothing here waits but `stop`.

    A thread, a process of its own and another machine differ in how they carry the values, and in nothing else.
    """

    def begin(
        self,
        heard: Callable[[Report], None],
        ended: Callable[[], None],
        lost: Callable[[], None],
        anew: Callable[[], None],
    ) -> None:
        """Start to report, at least once a step. `ended` is told once, and after it nothing comes. Called once.

        `lost`: the engine has ended by itself, and another one is being begun. It knows no sequence any more, drops
        every command until `anew`, or `ended`, and changes nothing on the disk meanwhile.
        """

    def tell(self, command: Command) -> None:
        """Give a command. They are taken in order; one that comes after the end is dropped."""

    def is_alive(self) -> bool:
        """Whether it has not ended. One that hangs is alive: its reports say since when it has made no step."""

    async def stop(self, timeout_s: float) -> None:
        """Cancel all rounds and end it, which may take a step. When this returns, it has ended or is given up."""

"""Work beside the event loop: a body in steps, driven by a thread of its own or by whatever is put in its place."""

import threading
from collections.abc import Callable
from enum import Enum
from typing import Protocol


class Next(Enum):
    """What a body has to do after a step."""

    MORE = "more"
    IDLE = "idle"
    """Nothing, until something comes for it."""
    ENDED = "ended"
    """Nothing any more: it is not called again."""


Body = Callable[[bool], Next]
"""One step of work. Where there is nothing to do, it waits for something if it is called with True, else returns."""


class Driver(Protocol):
    """Calls a body, one step after the other, until it has ended."""

    def wake(self) -> None:
        """Something has come for the body. Any thread; never waits."""

    def is_alive(self) -> bool:
        """Whether the body has not ended yet. Any thread."""

    def join(self, timeout: float) -> None:
        """Wait for the body's end. Blocking."""


Drive = Callable[[str, Body], Driver]
"""Begin to drive a body, under a name."""


class Thread:
    """Drives a body in a daemon thread. Whatever the body raises ends the thread."""

    def __init__(self, name: str, body: Body) -> None:
        self._body = body
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Nothing to do: a body that waits for something notices when it comes."""

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def join(self, timeout: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while self._body(True) is not Next.ENDED:
            pass

"""Who uses a loaded model: runs at work, texts under way, requests that are read. It is unloaded under nobody."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tenuto.errors import ModelNotLoaded


@dataclass(eq=False, slots=True)
class Uses:
    """How many use one loaded model now, and when the last of them began or ended. Event-loop thread only.

    `closed` names the model once it takes no more: it is being unloaded.
    """

    count: int = 0
    last: float = field(default_factory=time.monotonic)
    closed: str | None = None
    waits: set[str] = field(default_factory=set)
    """The runs that wait and had this version of the model."""
    changed: Callable[[], None] = lambda: None
    """Told when nobody uses it any more."""

    def take(self) -> None:
        """One more uses it, until `give_back`.

        Raises:
            ModelNotLoaded: it is being unloaded; nobody who begins now has begun.
        """
        if self.closed is not None:
            raise ModelNotLoaded(self.closed)
        self.count += 1
        self.last = time.monotonic()

    def give_back(self) -> None:
        """One fewer uses it."""
        assert self.count > 0, "who gives back has taken"
        self.count -= 1
        self.last = time.monotonic()
        if not self.count:
            self.changed()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Use it for the block. Raises what `take` does."""
        self.take()
        try:
            yield
        finally:
            self.give_back()

"""One model in the table of all: where it stands, who waits for it, and what it holds."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import anyio

from tenuto.errors import TenutoError
from tenuto.runtime.loop.life.loading import Available, Loaded, Memory
from tenuto.runtime.loop.life.states import ModelState, ModelTrigger, advanced
from tenuto.runtime.loop.model import AnyModel


@dataclass(eq=False, slots=True)
class Waiter:
    """A request that waits for a model."""

    done: anyio.Event = field(default_factory=anyio.Event)
    model: AnyModel | None = None
    error: TenutoError | None = None


@dataclass(eq=False, slots=True)
class Entry:
    """A model. Event-loop thread only; its owner alone changes it."""

    available: Available
    state: ModelState = ModelState.AVAILABLE
    loaded: Loaded | None = None
    waiters: list[Waiter] = field(default_factory=list)
    error: TenutoError | None = None
    since: float = field(default_factory=time.monotonic)
    """When it came into its state."""
    doing: str = ""
    """While it is loading: what, in words."""
    keep_s: float | None = None
    """How long it stays loaded without use; None: until the room is needed."""
    is_pinned: bool = False
    is_swapping: bool = False
    """Whether another version of it is being loaded."""
    retired: list[Loaded] = field(default_factory=list)
    """Versions before this one that are still in use."""
    leaving: list[Memory] = field(default_factory=list)
    """What is being freed."""
    changed: anyio.Event = field(default_factory=anyio.Event)
    """Set, and replaced, when it comes into another state."""
    named: str = field(init=False)
    """Its source at first; another one makes a version of it."""
    loads: int = 0
    unloads: int = 0

    def on(self, trigger: ModelTrigger) -> None:
        """Come into the next state. Raises IllegalModelTransition."""
        self.state = advanced(self.state, trigger)
        self.since = time.monotonic()
        changed, self.changed = self.changed, anyio.Event()
        changed.set()

    def __post_init__(self) -> None:
        self.named = self.available.source

    def leave(self, memory: Memory) -> None:
        """Let go of a version, of which nothing is left but what is to be freed."""
        if self.loaded is not None and self.loaded.memory is memory:
            self.loaded = None
        self.retired = [old for old in self.retired if old.memory is not memory]
        self.leaving.append(memory)

    def memory(self) -> list[Memory]:
        """What is held by all versions, those that are being freed among them."""
        present = [] if self.loaded is None else [self.loaded]
        return [*self.leaving, *(version.memory for version in (*self.retired, *present))]

    def follow(self, available: Available) -> None:
        """A catalogue has this of it now."""
        self.available, self.named = available, available.source

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for it."""
        return bool(self.waiters) or self.is_swapping

    @property
    def finishing(self) -> list[Loaded]:
        """The versions before this one that are kept for runs that wait, the oldest first."""
        return [old for old in self.retired if old.model.uses.closed is None]

    @property
    def may_go(self) -> bool:
        """Whether it may be unloaded without a command."""
        return self.state is ModelState.LOADED and not self.is_pinned and not self.is_swapping

    @property
    def may_go_before_its_next(self) -> bool:
        """Whether it may be unloaded although another version of it is on its way: else two that are replaced at once
        would wait for each other's room."""
        return self.state is ModelState.LOADED and not self.is_pinned and self.is_swapping

    @property
    def may_be_replaced(self) -> bool:
        """Whether another version can be loaded in its place, because there is one, and nothing on its way."""
        return self.state is ModelState.LOADED and not self.is_swapping

    @property
    def in_use(self) -> int:
        """How many use its present version."""
        return 0 if self.loaded is None else self.loaded.model.uses.count

    @property
    def last_used(self) -> float:
        """When the last use of its present version began or ended."""
        return 0.0 if self.loaded is None else self.loaded.model.uses.last

    def idle_s(self, now: float) -> float | None:
        """For how long nobody has used it; None where it is not loaded, or in use."""
        return None if self.state is not ModelState.LOADED or self.in_use else now - self.last_used


def idle(entries: Iterable[Entry], now: float) -> list[Entry]:
    """The entries that nobody has used for as long as they are kept."""
    found = ((entry, entry.idle_s(now), entry.keep_s) for entry in entries if entry.may_go)
    return [entry for entry, idle, keep in found if idle is not None and keep is not None and idle >= keep]

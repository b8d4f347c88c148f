"""What the owner of models asks of whoever can load one: values and Protocols alone."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tenuto.runtime.loop.life.accountant import Holding, Share
from tenuto.runtime.loop.model import AnyModel, Kind


@dataclass(frozen=True, slots=True)
class Available:
    """A model that can be loaded: its public id, and what `--model` would take for it."""

    id: str
    source: str
    kind: Kind = "text"
    is_named: bool = True
    """Whether it was named when the server was started."""
    version: str = ""
    """Tells versions of one model apart; empty where there is one."""
    base: str = ""
    """The id of the model that an adapter is applied to; empty where none is."""
    adapter: str = ""
    """The adapter's name. The source is the base's."""


@dataclass(frozen=True, slots=True)
class LifeSettings:
    """What all models are held to. `budget`: bytes of weights and caches together; None: no bound.

    `keep_s`: for how long a model stays loaded that nobody uses; None: until its room is needed. `wait_s`: how long a
    request waits for its model. `finishes`: whether runs that wait go on with the version that they began with.
    """

    budget: int | None = None
    keep_s: float | None = None
    wait_s: float = 300.0
    pins: frozenset[str] = frozenset()
    most_waiting: int = 256
    finishes: bool = True
    named_stay: bool = False
    """Whether no request decides how long those stay that were named at the start."""
    finish_s: float = 3600.0
    """A version that was replaced is freed after so long, if only runs that wait would need it."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model that has been found, and fetched where that was needed. `nbytes`: the most that it takes once it is
    loaded, weights and caches together, of which it `shares` what others may have in memory too. `plan` is the loader's
    own affair."""

    available: Available
    nbytes: int
    plan: Any = None
    shares: Share | None = None

    @property
    def holding(self) -> Holding:
        """What is to be held for it."""
        return holding_of(self.nbytes, self.shares)


class Stop(Protocol):
    """Ends an engine and frees its caches."""

    def __call__(self, timeout_s: float = ...) -> Coroutine[Any, Any, None]:
        """One that does not end within the time is killed, or left where it is a thread."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """What a loaded model holds, and how that is freed. Whoever has this alone keeps nothing of it alive.

    `stop` ends the engine and frees its caches; `is_freed` says whether the weights have gone too, with the last who
    held the model or read something with it.
    """

    nbytes: int
    stop: Stop
    is_freed: Callable[[], bool] = lambda: True
    shares: Share | None = None
    """What of its bytes others may hold too."""

    @property
    def holding(self) -> Holding:
        """What is held for it."""
        return holding_of(self.nbytes, self.shares)


def holding_of(nbytes: int, shares: Share | None) -> Holding:
    """So many bytes, with a share among them."""
    return Holding(nbytes if shares is None else max(0, nbytes - shares.nbytes), shares)


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A model that is loaded."""

    available: Available
    model: AnyModel
    memory: Memory


class Loads(Protocol):
    """Loads models. Event-loop thread only; what takes long happens in threads."""

    async def prepare(self, available: Available, budget: int | None) -> Prepared:
        """Find it, fetch it, and plan what it takes of a budget, read nothing of its weights yet.

        Raises:
            ModelLoadFailed: there is none, or it can never fit.
        """

    async def load(self, prepared: Prepared, loaded: int) -> Loaded:
        """Load it beside so many others.

        Raises:
            ModelLoadFailed: the text says what is wrong and what to do.
        """


class Adapting(Protocol):
    """Models that adapters make of others. Any thread; short."""

    def of(self, base: Available) -> Sequence[Available]:
        """Those of one model."""

    def find(self, base: Available, name: str) -> Available | None:
        """One of them, by the adapter's name."""


class Catalogue(Protocol):
    """Models that can be loaded without having been named at the start: a store of pulled models. Any thread; short."""

    def list(self) -> Sequence[Available]:
        """All of them."""

    def find(self, id: str) -> Available | None:
        """One of them."""

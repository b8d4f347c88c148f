"""Which models there are, and which of them are loaded: what names of models need to know, and the simplest such."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tenuto.errors import Conflict, NotFound
from tenuto.runtime.loop.model import AnyModel, Kind, Model


@dataclass(frozen=True, slots=True)
class Known:
    """A model that can be asked for. `kind` is what it makes, as far as that is known without loading it."""

    id: str
    kind: Kind = "text"
    is_named: bool = True
    """Whether it was named when the server was started."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a model stands, for those who ask. `state` is one of `ModelState`."""

    id: str
    kind: Kind
    state: str
    model: AnyModel | None = None
    nbytes: int = 0
    """What its weights and caches hold, of all versions together."""
    is_pinned: bool = False
    in_use: int = 0
    waiting: int = 0
    """How many requests wait for it."""
    idle_s: float | None = None
    """For how long nobody has used it; None where it is not loaded, or in use."""
    keep_s: float | None = None
    """How long it stays loaded without use; None: until its room is needed."""
    doing: str = ""
    """While it is being loaded: what, in words."""
    error: str | None = None
    version: str = ""
    retired: int = 0
    """How many versions before this one are still in use."""
    base: str = ""
    """The id of the model that an adapter is applied to; empty where none is."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """What all models hold together, in bytes, those on their way in or out included. `budget` None: there is no bound.

    `loads` and `unloads` count by model how often one has been loaded and freed, each version by itself.
    """

    held: int = 0
    most_held: int = 0
    """The most that was held at any moment."""
    budget: int | None = None
    loads: Mapping[str, int] = field(default_factory=dict)
    unloads: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is loaded by command. `is_swap`: anew, beside the one that is loaded; from `source`, where that is
    given, as `--model` takes it."""

    pin: bool | None = None
    keep_s: float | None = None
    is_swap: bool = False
    source: str | None = None


class Shelf(Protocol):
    """Which models there are, and which of them are loaded. Any method from any thread, but for `loaded_for`."""

    def known(self) -> Sequence[Known]:
        """All of them, those that were named first, in order."""

    def named(self) -> Sequence[Known]:
        """Those that were named when the server was started, in order. Reads nothing from the disk."""

    def find(self, id: str) -> Known | None:
        """One of them."""

    def loaded(self, id: str) -> AnyModel | None:
        """A model that is loaded and takes requests."""

    def living(self) -> Sequence[AnyModel]:
        """All versions that have an engine, also those that take no requests any more; not those that are freed now."""

    @property
    def is_freeing(self) -> bool:
        """Whether engines are being ended."""

    def standings(self) -> Sequence[Standing]:
        """Where each model stands, in the order of `known`."""

    def standing(self, id: str) -> Standing:
        """Where one stands. Raises NotFound."""

    def holdings(self) -> Holdings:
        """What all of them hold."""

    def of_run(self, run_id: str, model: Model) -> Model:
        """The version of a model with which a run goes on that waits: the present one, or one that was before it."""

    def forget_run(self, run_id: str, id: str) -> None:
        """A run of a model waits no more."""

    async def loaded_for(self, id: str, principal: str) -> AnyModel:
        """A model once it is loaded, in use until `uses.give_back`. Event-loop thread only.

        Raises:
            ModelLoadFailed: it cannot be loaded.
            NoRoomForModel: others are in use, and it waited for too long.
            Overloaded: too many wait.
        """

    async def load(self, id: str, principal: str, options: LoadOptions) -> Standing:
        """Load a model by command.

        Raises what `loaded_for` does, Conflict where it is on its way, and InvalidRequest.
        """

    async def unload(self, id: str, wait_s: float) -> Standing:
        """Unload a model by command, when nobody uses it any more; give where it stands then, or after so long.

        Raises Conflict where it is on its way.
        """

    def keep(self, id: str, keep_s: float | None) -> None:
        """Let a model stay loaded for so long without use from now on; None: until its room is needed."""


class Fixed:
    """A `Shelf` of models that are all loaded, for as long as there is a server."""

    def __init__(self, models: Sequence[AnyModel]) -> None:
        self._models = {model.id: model for model in models}
        self._known = {model.id: Known(model.id, model.kind) for model in models}

    def known(self) -> Sequence[Known]:
        """All of them."""
        return [*self._known.values()]

    def named(self) -> Sequence[Known]:
        """All of them."""
        return self.known()

    def find(self, id: str) -> Known | None:
        """One of them."""
        return self._known.get(id)

    def loaded(self, id: str) -> AnyModel | None:
        """One of them."""
        return self._models.get(id)

    def living(self) -> Sequence[AnyModel]:
        """All of them."""
        return [*self._models.values()]

    @property
    def is_freeing(self) -> bool:
        """None is freed."""
        return False

    def standings(self) -> Sequence[Standing]:
        """All of them are loaded."""
        return [self.standing(id) for id in self._models]

    def standing(self, id: str) -> Standing:
        """It is loaded."""
        model = self._models.get(id)
        if model is None:
            raise NotFound("model", id, [*self._models])
        return Standing(id, model.kind, "loaded", model, in_use=model.uses.count)

    def holdings(self) -> Holdings:
        """Nobody counts it: there is no budget."""
        return Holdings()

    def of_run(self, run_id: str, model: Model) -> Model:
        """There is one version."""
        del run_id
        return model

    def forget_run(self, run_id: str, id: str) -> None:
        """There is one version."""

    async def loaded_for(self, id: str, principal: str) -> AnyModel:
        """It is loaded."""
        del principal
        model = self._models[id]
        model.uses.take()
        return model

    async def load(self, id: str, principal: str, options: LoadOptions) -> Standing:
        """It is loaded."""
        del principal, options
        return self.standing(id)

    async def unload(self, id: str, wait_s: float) -> Standing:
        """It stays."""
        del wait_s
        raise Conflict(f"the model {id!r} is there for as long as the server")

    def keep(self, id: str, keep_s: float | None) -> None:
        """It stays."""

"""The models that are served, by the names that requests have for them.

Which are loaded is the affair of their `Shelf`; which one a name means does not depend on that.
"""

import builtins
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TypeVar

from tenuto.errors import ConfigurationError, InvalidRequest, ModelNotLoaded, NotFound
from tenuto.runtime.loop.model import AnyModel, EmbeddingModel, Kind, Model
from tenuto.runtime.loop.shelf import Known, Shelf, Standing

__all__ = ["AnyModel", "EmbeddingModel", "Model", "Models", "Names"]

T = TypeVar("T")

ADAPTED = "+"
"""Stands between a model and the adapter that is applied to it."""


@dataclass(frozen=True, slots=True)
class Names:
    """What else than its id a request may call a model: `aliases` are names or globs with the ids that they stand for,
    in order. Where it is `strict`, another name than these is not found even if there is one model alone.
    """

    aliases: tuple[tuple[str, str], ...] = ()
    strict: bool = False


class Models:
    """All of them, by the names that requests have for them. Of those that generate, and of those that embed or rank,
    the first is the default.

    What finds a model that is not loaded raises ModelNotLoaded; `with_loaded` loads it and does the work again.

    Raises:
        ConfigurationError: an alias stands for a model that there is not.
    """

    def __init__(self, shelf: Shelf, names: Names | None = None) -> None:
        self.shelf = shelf
        self._names = names = names or Names()
        for alias, id in names.aliases:
            if shelf.find(id) is None:
                raise ConfigurationError(
                    f"the alias {alias!r} stands for {id!r}, which is not served; there is {', '.join(self._ids())}"
                )

    async def with_loaded(self, work: Callable[[], Awaitable[T]], principal: str) -> T:
        """Do some work that finds its models by name. Where one is not loaded, it is loaded, and the work is done again
        while it stays so: until it has found its models, the work must change nothing. Whoever asks for this holds none
        of these models: one that is being unloaded waits until nobody does.

        Raises what the work does, and what `Shelf.loaded_for` does.
        """
        held: dict[str, AnyModel] = {}
        try:
            while True:
                try:
                    return await work()
                except ModelNotLoaded as missing:
                    id = missing.id
                if (going := held.pop(id, None)) is not None:
                    going.uses.give_back()
                    del going
                held[id] = await self.shelf.loaded_for(id, principal)
        finally:
            for model in held.values():
                model.uses.give_back()

    @asynccontextmanager
    async def using(self, name: str | None, principal: str) -> AsyncIterator[Model]:
        """The model that `find` finds, loaded and in use for the block. Raises what `find` and `with_loaded` do."""
        model = await self.with_loaded(partial(self._taken, name), principal)
        try:
            yield model
        finally:
            model.uses.give_back()

    async def _taken(self, name: str | None) -> Model:
        model = self.find(name)
        model.uses.take()
        return model

    @property
    def default(self) -> Model:
        """The first that generates. Raises InvalidRequest where there is none, and ModelNotLoaded."""
        for known in self._named("text"):
            return self._text(known)
        raise InvalidRequest(f"no model here generates text: there is {', '.join(self._ids())}", "model")

    def list(self) -> Sequence[Model]:
        """Those that generate and are loaded, in the order in which they were asked for."""
        return [model for model in self._loaded() if isinstance(model, Model)]

    def served(self) -> Sequence[AnyModel]:
        """All that are loaded: those that generate first."""
        return sorted(self._loaded(), key=lambda model: not isinstance(model, Model))

    def standings(self) -> Sequence[Standing]:
        """Where each stands, those that generate first."""
        return sorted(self.shelf.standings(), key=lambda standing: standing.kind != "text")

    def doing(self, name: str | None) -> str:
        """What becomes of a model that is asked for, in words."""
        standing = self.shelf.standing(self.meant(name).id)
        return f"the model {standing.id} is {standing.state}" + (f": {standing.doing}" if standing.doing else "")

    def is_loaded(self, name: str | None) -> bool:
        """Whether a request for a model of this name waits for no load, as far as it can be told."""
        try:
            self.any(name)
        except ModelNotLoaded:
            return False
        except (NotFound, InvalidRequest):
            return True
        return True

    def get(self, id: str) -> Model | None:
        """The model of that id that generates, and of no other name. Raises ModelNotLoaded."""
        known = self.shelf.find(id)
        if known is None or known.kind != "text":
            return None
        return self._text(known)

    def expect(self, id: str) -> Model:
        """The model of that id, which something was made with that goes on. Raises NotFound and ModelNotLoaded."""
        found = self.get(id)
        if found is None:
            raise NotFound("model", id, self._ids("text"))
        return found

    def find(self, name: str | None) -> Model:
        """A model that generates, by what a request calls it; absent or `default` means the first, and where one alone
        was named at the start it has any name that is not another model's.

        Raises:
            NotFound: there is none of that name; the text names those that there are.
            InvalidRequest: it embeds or ranks.
            ModelNotLoaded: it is not loaded now.
        """
        return self.default if name is None or name == "default" else self._text(self._means(name, "text"))

    def find_embedding(self, name: str | None, *, ranks: bool) -> EmbeddingModel:
        """A model that embeds, or one that ranks, in the same way. Raises as `find` does."""
        kind: Kind = "ranks" if ranks else "vectors"
        fitting = self._named(kind)
        if name is None or name == "default":
            known = fitting[0] if fitting else None
            named: AnyModel = self.default if known is None else self._load_state(known)
        else:
            named = self._load_state(self._means(name, kind))
        if isinstance(named, EmbeddingModel) and named.info.ranks is ranks:
            return named
        what = "rank texts" if ranks else "make vectors of texts"
        there = f"; there is {', '.join(known.id for known in fitting)}" if fitting else ""
        raise InvalidRequest(f"model {named.id!r} cannot {what}{there}", "model")

    def known(self, name: str) -> Known:
        """What has this name: as its id or an alias, with the tag `:latest` or behind a provider's (`openai/...`) too.
        Raises NotFound."""
        found = self._find(name)
        if found is None:
            raise NotFound("model", name, self._ids())
        return found

    def meant(self, name: str | None) -> Known:
        """A model of any kind, loaded or not, as `find` looks for one. Raises NotFound."""
        if name is None or name == "default":
            return self.shelf.known()[0]
        return self._means(name, "text" if self._named("text") else None)

    def any(self, name: str | None) -> AnyModel:
        """The same where it is loaded. Raises NotFound, ModelNotLoaded."""
        return self._load_state(self.meant(name))

    def _loaded(self) -> Iterator[AnyModel]:
        found = (self.shelf.loaded(known.id) for known in self.shelf.known())
        return (model for model in found if model is not None)

    def _load_state(self, known: Known) -> AnyModel:
        model = self.shelf.loaded(known.id)
        if model is None:
            raise ModelNotLoaded(known.id)
        return model

    def _text(self, known: Known) -> Model:
        found = self._load_state(known)
        if isinstance(found, EmbeddingModel):
            does = "ranks texts" if found.info.ranks else "makes vectors of texts"
            raise InvalidRequest(f"model {found.id!r} {does} and generates none; {_use(found)}", "model")
        return found

    def _named(self, kind: Kind | None) -> Sequence[Known]:
        """Those that were named at the start and make this; of any kind where it is None."""
        return [known for known in self.shelf.named() if kind in (None, known.kind)]

    def _ids(self, kind: Kind | None = None) -> "builtins.list[str]":
        """Those that generate first."""
        found = [known for known in self.shelf.known() if kind in (None, known.kind)]
        return [known.id for known in sorted(found, key=lambda known: known.kind != "text")]

    def _means(self, name: str, kind: Kind | None) -> Known:
        """The model of that name, or of any name where one alone of its kind was named at the start."""
        return self._find(name) or (None if ADAPTED in name else self._alone(kind)) or self.known(name)

    def _alone(self, kind: Kind | None) -> Known | None:
        """What has any name: the one model of its kind that was named at the start."""
        named = self._named(kind)
        return named[0] if len(named) == 1 and not self._names.strict else None

    def _find(self, name: str) -> Known | None:
        named = (self._named_so(variant) for variant in _variants(name))
        return next((known for known in named if known is not None), None)

    def _named_so(self, name: str) -> Known | None:
        if (known := self.shelf.find(name)) is not None:
            return known
        id = next((id for alias, id in self._names.aliases if name == alias), None)
        if id is None and ADAPTED in name:
            return self._adapted(name)
        if id is None:
            id = next((id for alias, id in self._names.aliases if fnmatchcase(name, alias)), None)
        return None if id is None else self.shelf.find(id)

    def _adapted(self, name: str) -> Known | None:
        """A model with an adapter: whatever its base is called, no other than this base and this adapter answers."""
        called, _, adapter = name.rpartition(ADAPTED)
        if called == "default":
            base: Known | None = self.shelf.known()[0]
        elif ADAPTED in called:
            base = self.shelf.find(called)  # a plus may be part of an id; no model has two adapters
        else:
            base = self._find(called) or self._alone("text")
        return None if base is None else self.shelf.find(f"{base.id}{ADAPTED}{adapter}")


def _use(model: EmbeddingModel) -> str:
    return "use /v1/rerank" if model.info.ranks else "use /v1/embeddings"


def _variants(name: str) -> Iterator[str]:
    """The name as it is, then without its tag, then without what stands before each slash in turn."""
    yield name
    yield (bare := name.removesuffix(":latest"))
    while "/" in bare:
        yield (bare := bare.partition("/")[2])

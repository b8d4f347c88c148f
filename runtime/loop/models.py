"""The models that are served: each with its codec and its engine, or with its encoder where it embeds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tenuto.errors import ConfigurationError, InvalidRequest, NotFound
from tenuto.pipelines.backend import BackendInfo
from tenuto.pipelines.base import Codec, ToolChoice
from tenuto.pipelines.embedding import EmbedderInfo, TextEncoder
from tenuto.runtime.loop.embedding_client import EmbeddingClient
from tenuto.runtime.loop.engine_client import EngineClient
from tenuto.sessions.items import ToolSpec


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is loaded. `created` is when that was, in seconds since the epoch."""

    id: str
    codec: Codec
    engine: EngineClient
    backend: BackendInfo
    created: float
    temperature: float
    """Where a request names none."""

    @property
    def context(self) -> int:
        """How many tokens one sequence may hold."""
        return self.backend.context

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What it can do besides completing text: `tools`, and what it reads other than text."""
        reads = sorted(self.codec.info.modalities - {"text"})
        return ("chat", "completions", *(("tools",) if _calls_tools(self.codec) else ()), *reads)


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model that is loaded and makes vectors of texts, or scores of pairs. `created` is as for others."""

    id: str
    encoder: TextEncoder
    engine: EmbeddingClient
    info: EmbedderInfo
    created: float

    @property
    def backend(self) -> BackendInfo:
        """What there is to tell of its weights; it has no slots and no cache."""
        return self.info.backend

    @property
    def context(self) -> int:
        """How many tokens one text may hold."""
        return self.info.backend.context

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What it can do."""
        return ("rerank",) if self.info.ranks else ("embeddings",)


AnyModel = Model | EmbeddingModel


def _calls_tools(codec: Codec) -> bool:
    """Whether the model has a format for tool calls: only then can one be forced."""
    try:
        codec.grammar([ToolSpec("f", "", {"type": "object"})], ToolChoice.REQUIRED, parallel=False)
    except InvalidRequest:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Names:
    """What else than its id a request may call a model: `aliases` are names or globs with the ids that they stand for,
    in order. Where it is `strict`, another name than these is not found even if there is one model alone.
    """

    aliases: tuple[tuple[str, str], ...] = ()
    strict: bool = False


class Models:
    """All of them. Of those that generate, and of those that embed or rank, the first is the default.

    Raises:
        ConfigurationError: an alias stands for a model that there is not.
    """

    def __init__(
        self, models: Sequence[Model], names: Names | None = None, embedding: Sequence[EmbeddingModel] = ()
    ) -> None:
        self._models = {model.id: model for model in models}
        self._embedding = {model.id: model for model in embedding}
        self._served: dict[str, AnyModel] = {**self._models, **self._embedding}
        self._names = names = names or Names()
        for alias, id in names.aliases:
            if id not in self._served:
                raise ConfigurationError(
                    f"the alias {alias!r} stands for {id!r}, which is not served; there is {', '.join(self._served)}"
                )

    @property
    def default(self) -> Model:
        """The first that generates. Raises InvalidRequest where there is none."""
        for model in self._models.values():
            return model
        raise InvalidRequest(f"no model here generates text: there is {', '.join(self._embedding)}", "model")

    def list(self) -> Sequence[Model]:
        """Those that generate, in the order in which they were asked for."""
        return [*self._models.values()]

    def served(self) -> Sequence[AnyModel]:
        """All of them: those that generate first."""
        return [*self._served.values()]

    def get(self, id: str) -> Model | None:
        """The model of that id that generates, and of no other name."""
        return self._models.get(id)

    def expect(self, id: str) -> Model:
        """The model of that id, which something was made with that goes on. Raises NotFound."""
        try:
            return self._models[id]
        except KeyError:
            raise NotFound("model", id, [*self._models]) from None

    def find(self, name: str | None) -> Model:
        """A model that generates, by what a request calls it; absent or `default` means the first, and where there is
        one alone it has any name that is not another model's.

        Raises:
            NotFound: there is none of that name; the text names those that there are.
            InvalidRequest: it embeds or ranks.
        """
        if name is None or name == "default":
            return self.default
        found = self._means(name, self._models)
        if isinstance(found, EmbeddingModel):
            does = "ranks texts" if found.info.ranks else "makes vectors of texts"
            raise InvalidRequest(f"model {found.id!r} {does} and generates none; {_use(found)}", "model")
        return found

    def find_embedding(self, name: str | None, *, ranks: bool) -> EmbeddingModel:
        """A model that embeds, or one that ranks, in the same way. Raises as `find` does."""
        fitting = {id: model for id, model in self._embedding.items() if model.info.ranks is ranks}
        if (name is None or name == "default") and fitting:
            return next(iter(fitting.values()))
        named = self.default if name is None or name == "default" else self._means(name, fitting)
        if isinstance(named, EmbeddingModel) and named.info.ranks is ranks:
            return named
        what = "rank texts" if ranks else "make vectors of texts"
        there = f"; there is {', '.join(fitting)}" if fitting else ""
        raise InvalidRequest(f"model {named.id!r} cannot {what}{there}", "model")

    def known(self, name: str) -> AnyModel:
        """The model that has this name: as its id or an alias, with the tag `:latest` or behind a provider's
        (`openai/...`) too. Raises NotFound."""
        found = self._find(name)
        if found is None:
            raise NotFound("model", name, [*self._served])
        return found

    def any(self, name: str | None) -> AnyModel:
        """A model of either kind, as `find` looks for one."""
        if name is None or name == "default":
            return next(iter(self._served.values()))
        return self._means(name, self._models or self._served)

    def _means(self, name: str, fitting: Mapping[str, AnyModel]) -> AnyModel:
        """The model of that name, or of any name where one alone is fitting."""
        found = self._find(name)
        if found is None and not self._names.strict and len(fitting) == 1:
            return next(iter(fitting.values()))
        return found or self.known(name)

    def _find(self, name: str) -> AnyModel | None:
        named = (self._named(variant) for variant in _variants(name))
        return next((model for model in named if model is not None), None)

    def _named(self, name: str) -> AnyModel | None:
        if name in self._served:
            return self._served[name]
        patterns = (id for alias, id in self._names.aliases if fnmatchcase(name, alias))
        exact = (id for alias, id in self._names.aliases if name == alias)
        id = next(exact, None) or next(patterns, None)
        return None if id is None else self._served[id]


def _use(model: EmbeddingModel) -> str:
    return "use /v1/rerank" if model.info.ranks else "use /v1/embeddings"


def _variants(name: str) -> Iterator[str]:
    """The name as it is, then without its tag, then without what stands before each slash in turn."""
    yield name
    yield (bare := name.removesuffix(":latest"))
    while "/" in bare:
        yield (bare := bare.partition("/")[2])

"""The models that are served: each with its codec and its engine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tenuto.errors import ConfigurationError, InvalidRequest, NotFound
from tenuto.pipelines.backend import BackendInfo
from tenuto.pipelines.base import Codec, ToolChoice
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
    """All of them; the first is the default.

    Raises:
        ConfigurationError: an alias stands for a model that there is not.
    """

    def __init__(self, models: Sequence[Model], names: Names | None = None) -> None:
        self._models = {model.id: model for model in models}
        self._names = names = names or Names()
        self.default = models[0]
        for alias, id in names.aliases:
            if id not in self._models:
                raise ConfigurationError(
                    f"the alias {alias!r} stands for {id!r}, which is not served; there is {', '.join(self._models)}"
                )

    def list(self) -> list[Model]:
        """In the order in which they were asked for."""
        return [*self._models.values()]

    def get(self, id: str) -> Model | None:
        """The model of that id, and of no other name."""
        return self._models.get(id)

    def expect(self, id: str) -> Model:
        """The model of that id, which something was made with that goes on. Raises NotFound."""
        try:
            return self._models[id]
        except KeyError:
            raise NotFound("model", id, list(self._models)) from None

    def find(self, name: str | None) -> Model:
        """A model by what a request calls it; absent or `default` means the first, and a single one has any name.

        Raises:
            NotFound: there is none of that name; the text names those that there are.
        """
        if name is None or name == "default" or (len(self._models) == 1 and not self._names.strict):
            return self.default
        return self.known(name)

    def known(self, name: str) -> Model:
        """The model that has this name: as its id or an alias, with the tag `:latest` or behind a provider's
        (`openai/...`) too. Raises NotFound."""
        named = (self._named(variant) for variant in _variants(name))
        return next((model for model in named if model is not None), None) or self.expect(name)

    def _named(self, name: str) -> Model | None:
        if name in self._models:
            return self._models[name]
        patterns = (id for alias, id in self._names.aliases if fnmatchcase(name, alias))
        exact = (id for alias, id in self._names.aliases if name == alias)
        id = next(exact, None) or next(patterns, None)
        return None if id is None else self._models[id]


def _variants(name: str) -> Iterator[str]:
    """The name as it is, then without its tag, then without what stands before each slash in turn."""
    yield name
    yield (bare := name.removesuffix(":latest"))
    while "/" in bare:
        yield (bare := bare.partition("/")[2])

"""The models that are served: each with its codec and its engine."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.errors import InvalidRequest, NotFound
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


class Models:
    """All of them; the first is the default."""

    def __init__(self, models: Sequence[Model]) -> None:
        self._models = {model.id: model for model in models}
        self.default = models[0]

    def list(self) -> list[Model]:
        """In the order in which they were asked for."""
        return [*self._models.values()]

    def get(self, id: str) -> Model | None:
        """The model of that id."""
        return self._models.get(id)

    def find(self, name: str | None) -> Model:
        """A model by its id; absent or `default` means the first.

        Raises:
            NotFound: there is none of that id; the text names those that there are.
        """
        if name is None or name == "default":
            return self.default
        try:
            return self._models[name]
        except KeyError:
            raise NotFound("model", name, list(self._models)) from None

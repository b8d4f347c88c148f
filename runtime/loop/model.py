"""A model that is loaded: its codec and its engine, or its encoder and its engine where it embeds."""

from dataclasses import dataclass, field
from typing import Literal

from tenuto.errors import InvalidRequest
from tenuto.pipelines.backend import BackendInfo
from tenuto.pipelines.base import Codec, ToolChoice
from tenuto.pipelines.embedding import EmbedderInfo, TextEncoder
from tenuto.pipelines.sampling_defaults import SamplingDefaults
from tenuto.runtime.loop.embedding_client import EmbeddingClient
from tenuto.runtime.loop.engine_client import EngineClient
from tenuto.runtime.loop.uses import Uses
from tenuto.sessions.items import ToolSpec

Kind = Literal["text", "vectors", "ranks"]
"""What a model makes."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is loaded. `created` is when that was, in seconds since the epoch."""

    id: str
    codec: Codec
    engine: EngineClient
    backend: BackendInfo
    created: float
    defaults: SamplingDefaults
    """How tokens are chosen where a request does not say."""
    uses: Uses = field(default_factory=Uses, compare=False)

    @property
    def kind(self) -> Kind:
        """What it makes."""
        return "text"

    @property
    def context(self) -> int:
        """How many tokens one sequence may hold."""
        return self.backend.context

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What it can do besides completing text: `tools`, `infill`, and what it reads other than text."""
        reads = sorted(self.codec.info.modalities - {"text"})
        calls = ("tools",) if _calls_tools(self.codec) else ()
        fills = ("infill",) if self.codec.info.infill is not None else ()
        return ("chat", "completions", *calls, *fills, *reads)


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model that is loaded and makes vectors of texts, or scores of pairs. `created` is as for others."""

    id: str
    encoder: TextEncoder
    engine: EmbeddingClient
    info: EmbedderInfo
    created: float
    uses: Uses = field(default_factory=Uses, compare=False)

    @property
    def kind(self) -> Kind:
        """What it makes."""
        return "ranks" if self.info.ranks else "vectors"

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

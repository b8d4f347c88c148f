"""Models as Tenuto shows them, alike in every front end."""

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field

from tenuto.runtime.http.shape import Shape
from tenuto.runtime.loop.models import AnyModel, EmbeddingModel


class CacheAnswer(Shape):
    """A model's KV cache."""

    capacity_bytes: int = Field(description="Cache size when every slot is full.")
    used_bytes: dict[str, int] = Field(description="Bytes in use, by place: `device`, `host`.")


class ModelAnswer(Shape):
    """A model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    context_length: int = Field(description="Most tokens a conversation can have.")
    description: str
    backend: str = Field(description="What runs the model.")
    can_batch: bool = Field(description="Whether requests are computed in batches, or one at a time.")
    capabilities: list[str] = Field(
        description="`chat`, `completions`, `tools`, and what the model reads besides text; `embeddings`; `rerank`."
    )
    dimensions: int | None = Field(default=None, description="How many numbers an embedding has.")
    slots: int = Field(description="Conversations kept on the device and worked on at a time.")
    cache: CacheAnswer


class ModelsAnswer(Shape):
    """List models, the default first."""

    object: Literal["list"]
    data: list[ModelAnswer]


def model_answer(model: AnyModel) -> ModelAnswer:
    """A model that is served: what it is, what it has room for, and how much of that is in use."""
    backend, status = model.backend, model.engine.status
    more: dict[str, Any] = {}
    if isinstance(model, EmbeddingModel) and not model.info.ranks:
        more["dimensions"] = model.info.width
    return ModelAnswer(
        id=model.id,
        object="model",
        created=int(model.created),
        owned_by="tenuto",
        context_length=model.context,
        description=backend.description,
        backend=backend.runs_on,
        can_batch=backend.can_batch,
        capabilities=list(model.capabilities),
        slots=backend.slots,
        **more,
        cache=CacheAnswer(
            capacity_bytes=backend.slots * backend.cells * backend.bytes_per_token,
            used_bytes={place.value: count for place, count in status.cache_bytes.items()},
        ),
    )


def models_answer(models: Iterable[AnyModel]) -> ModelsAnswer:
    """All of them."""
    return ModelsAnswer(object="list", data=[model_answer(model) for model in models])

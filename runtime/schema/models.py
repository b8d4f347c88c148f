"""Models as Tenuto shows them, alike in every front end."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Literal

from pydantic import Field

from tenuto.runtime.engine.counts import Family, families
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.loop.models import Model
from tenuto.runtime.loop.shelf import Standing

_EPOCH = time.time() - time.monotonic()

StateName = Literal["available", "loading", "loaded", "unloading", "failed"]


class CacheAnswer(Shape):
    """A model's KV cache."""

    capacity_bytes: int = Field(description="Cache size when every slot is full.")
    used_bytes: dict[str, int] = Field(description="Bytes in use, by place: `device`, `host`, `disk`.")
    moves: dict[str, int] = Field(description="How often caches of paused conversations moved, by where from and to.")
    saved_tokens: dict[str, int] = Field(
        description="Tokens of prompts that were not computed, by what had their cache: `device`, `host`, `disk`, or"
        " `shared`, another conversation."
    )
    snapshots: dict[str, int] = Field(description="What became of caches on disk.")


class SamplingAnswer(Shape):
    """How tokens are chosen."""

    temperature: float
    top_k: int = Field(description="0: all tokens.")
    top_p: float
    min_p: float
    repetition_penalty: float


class ModelAnswer(Shape):
    """A model that can be asked for. What only a loaded model tells is left out of others."""

    id: str
    object: Literal["model"]
    created: int = Field(description="When it was loaded; 0 if it is not.")
    owned_by: str
    state: StateName = Field(description="`available` and `failed` models are loaded by the next request for them.")
    pinned: bool = Field(description="Whether it is never unloaded by itself.")
    in_use: int = Field(description="How many requests and runs use it now.")
    waiting: int = Field(description="How many requests wait for it.")
    bytes: int = Field(description="What its weights and caches hold.")
    last_used: int | None = Field(default=None, description="When it was used last; left out while it is in use.")
    keep_loaded_s: float | None = Field(
        default=None, description="Seconds it stays loaded without use; left out: until its room is needed."
    )
    doing: str | None = Field(default=None, description="While it is `loading`: what, in words.")
    error: str | None = Field(default=None, description="Why its last load failed.")
    version: str | None = Field(default=None, description="Which version of it is served, where there are several.")
    base: str | None = Field(default=None, description="The model that an adapter is applied to, where one is.")
    old_versions: int | None = Field(default=None, description="How many versions before it are still in use.")
    context_length: int | None = Field(default=None, description="Most tokens a conversation can have.")
    description: str | None = None
    backend: str | None = Field(default=None, description="What runs the model.")
    can_batch: bool | None = Field(
        default=None, description="Whether requests are computed in batches, or one at a time."
    )
    capabilities: list[str] | None = Field(
        default=None,
        description="`chat`, `completions`, `tools`, `infill`, what it reads besides text; `embeddings`; `rerank`.",
    )
    tool_format: str | None = Field(
        default=None, description="How it writes calls, by the name that settings use, and why that was chosen."
    )
    dimensions: int | None = Field(default=None, description="How many numbers an embedding has.")
    sampling: SamplingAnswer | None = Field(
        default=None, description="How tokens are chosen where a request is silent."
    )
    slots: int | None = Field(default=None, description="Conversations kept on the device and worked on at a time.")
    threads: int | None = Field(
        default=None, description="Threads of its next step: fewer while other programs want the processors."
    )
    cache: CacheAnswer | None = None


class ModelsAnswer(Shape):
    """List models, the default first."""

    object: Literal["list"]
    data: list[ModelAnswer]


def model_answer(standing: Standing) -> ModelAnswer:
    """A model: where it stands; of one that is loaded what it is, what it has room for, and how much is used."""
    model = standing.model
    optional = {
        "last_used": None if standing.idle_s is None or model is None else int(_EPOCH + model.uses.last),
        "keep_loaded_s": standing.keep_s,
        "doing": standing.doing or None,
        "error": standing.error,
        "version": standing.version or None,
        "base": standing.base or None,
        "old_versions": standing.retired or None,
    }
    return ModelAnswer.model_validate(
        {
            "id": standing.id,
            "object": "model",
            "created": 0 if model is None else int(model.created),
            "owned_by": "tenuto",
            "state": standing.state,
            "pinned": standing.is_pinned,
            "in_use": standing.in_use,
            "waiting": standing.waiting,
            "bytes": standing.nbytes,
            **{name: value for name, value in optional.items() if value is not None},
            **_loaded(standing),
        }
    )


def models_answer(standings: Iterable[Standing]) -> ModelsAnswer:
    """All of them."""
    return ModelsAnswer(object="list", data=[model_answer(standing) for standing in standings])


def _loaded(standing: Standing) -> dict[str, Any]:
    model = standing.model
    if model is None:
        return {}
    backend, status = model.backend, model.engine.status
    more: dict[str, Any] = {}
    if isinstance(model, Model):
        more["sampling"] = asdict(model.defaults)
        more["tool_format"] = model.codec.info.tool_format
    elif not model.info.ranks:
        more["dimensions"] = model.info.width
    if status.threads:
        more["threads"] = status.threads
    counted = families(status.counts)
    return {
        "context_length": model.context,
        "description": backend.description,
        "backend": backend.runs_on,
        "can_batch": backend.can_batch,
        "capabilities": list(model.capabilities),
        "slots": backend.slots,
        **more,
        "cache": {
            "capacity_bytes": backend.slots * backend.cells * backend.bytes_per_token,
            "used_bytes": {place.value: count for place, count in status.cache_bytes.items()},
            "moves": counted[Family.MOVES],
            "saved_tokens": counted[Family.SAVED_TOKENS],
            "snapshots": _snapshots(counted),
        },
    }


def _snapshots(counted: Mapping[Family, Mapping[str, int]]) -> dict[str, int]:
    """With all causes together."""
    causes = {"refused": Family.REFUSED, "ignored": Family.IGNORED}
    return {**counted[Family.SNAPSHOTS], **{name: sum(counted[family].values()) for name, family in causes.items()}}

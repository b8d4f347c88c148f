"""Loads models for their owner: finds and sizes one, opens its pipeline in a thread, and begins its engine."""

import os
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from tenuto.errors import ConfigurationError, ModelLoadFailed, NotFound
from tenuto.pipelines.backend import BackendInfo
from tenuto.pipelines.backends import import_llama
from tenuto.pipelines.base import Codec
from tenuto.pipelines.embedding import EmbeddingPipeline
from tenuto.pipelines.finding import model_id
from tenuto.pipelines.fit import Plan
from tenuto.pipelines.kinds import makes
from tenuto.pipelines.loader import LoadSettings, found, layout_of, load_any, load_codec
from tenuto.pipelines.sampling_defaults import SamplingDefaults
from tenuto.pipelines.sizes import size_of
from tenuto.runtime.adapted_models import MARK, Adapters
from tenuto.runtime.config import Settings
from tenuto.runtime.engine.engine import DiskSettings, Engine, EngineSettings
from tenuto.runtime.engine.messages import RoundUsage
from tenuto.runtime.engine.own_process import EngineProcess, NotForText, Order
from tenuto.runtime.engine.port import EnginePort
from tenuto.runtime.engine.snapshots import Limits
from tenuto.runtime.loop.embedding_client import EmbeddingClient
from tenuto.runtime.loop.engine_client import REMEMBERED_TOKENS, EngineClient, QueueLimits
from tenuto.runtime.loop.life.accountant import Share
from tenuto.runtime.loop.life.loading import Available, Loaded, Memory, Prepared
from tenuto.runtime.loop.model import AnyModel, EmbeddingModel, Model
from tenuto.runtime.loop.warm_up import warm_up
from tenuto.runtime.metrics import Metrics
from tenuto.sessions.items import ToolSpec

NO_ADAPTERS = Adapters({})


def available(names: Sequence[str], adapters: Adapters = NO_ADAPTERS) -> list[Available]:
    """What `--model` names, each by its id; `MODEL+NAME` is one with an adapter. Nothing is loaded.

    Raises:
        ConfigurationError: two would have one id, and nobody could ask for the second.
    """
    by_id: dict[str, str] = {}
    found = []
    for model in names:
        source, adapter = adapters.split(model)
        base = model_id(source)
        id = f"{base}{MARK}{adapter}" if adapter else base
        if id in by_id:
            raise ConfigurationError(f"--model {by_id[id]} and --model {model} would both be {id!r}; rename a file")
        by_id[id] = model
        found.append(Available(id, source, makes(source), base=base if adapter else "", adapter=adapter))
    return found


def available_cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_LOAD_S, _BYTES_A_SECOND = 120.0, 20 << 20
"""A hundredfold of what a small file takes, as a machine may be busy, and what a slow disk takes for a large one."""
_QUEUE_BYTES = 256 << 20
"""Of snapshots that wait to be written."""
SNAPSHOTS = "caches"
"""Their folder, in the data folder."""
_CACHE_BYTES = 1 << 30
"""For the cache where nothing is set, and a model is not planned or shares a budget."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a model is to be loaded, and what names the file that was measured."""

    source: str
    """As `--model` takes it. Of a stored model the version that was found: another may be current when its engine is
    begun again."""
    settings: LoadSettings
    stamp: tuple[object, ...]
    host_cache_bytes: int
    is_apart: bool
    """Whether its engine may be in a process of its own."""
    nbytes: int
    """Of its weights."""

    @property
    def seconds(self) -> float:
        """The most that its load may take in a process of its own."""
        return 2 * (_LOAD_S + self.nbytes / _BYTES_A_SECOND)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A model that generates, open, with the engine that has it; `begin` it is given its limits."""

    codec: Codec
    backend: BackendInfo
    defaults: SamplingDefaults
    layout: Plan | None
    engine: Callable[[EngineSettings], EnginePort]
    weights: weakref.ref[Any] | None = None


class Loader:
    """Loads models by the settings of a server. `together`: among how many models threads are divided at least.
    `tools`: those that conversations have by default now."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        together: int,
        tools: Callable[[], Sequence[ToolSpec]] = lambda: (),
        adapters: Adapters = NO_ADAPTERS,
    ) -> None:
        self._settings, self._metrics, self._together, self._tools = settings, metrics, max(1, together), tools
        self._adapters = adapters
        self._measured: dict[tuple[object, ...], int] = {}
        """What files took when they were loaded, by where they lie and when they were changed."""

    async def prepare(self, available: Available, budget: int | None) -> Prepared:
        """Find a model, fetch it, and bound what it will take."""
        return await anyio.to_thread.run_sync(self._prepare, available, budget, abandon_on_cancel=True)

    async def load(self, prepared: Prepared, loaded: int) -> Loaded:
        """Open its pipeline in a thread, begin its engine, and let it warm up."""
        plan: _Plan = prepared.plan
        threads = (self._settings.threads or available_cores()) // max(self._together, loaded + 1)
        fitting = replace(plan.settings, threads=max(1, threads))
        opened = await self._open(prepared.available, fitting, plan)
        model, engine_bytes = self._model(prepared.available.id, opened, plan)
        nbytes = _bytes(opened, model) + engine_bytes
        self._measured[plan.stamp] = nbytes
        memory = Memory(nbytes, model.engine.stop, partial(_is_gone, opened.weights), prepared.shares)
        try:
            if isinstance(model, Model):
                await warm_up(model, self._tools())
        except BaseException:
            with anyio.CancelScope(shield=True):
                await memory.stop()
            raise
        return Loaded(prepared.available, model, memory)

    async def _open(self, available: Available, fitting: LoadSettings, plan: _Plan) -> _Opened | EmbeddingPipeline:
        if plan.is_apart:
            with suppress(NotForText):
                return await self._open_apart(fitting, plan)
        pipeline = await anyio.to_thread.run_sync(load_any, available.source, fitting, abandon_on_cancel=True)
        if isinstance(pipeline, EmbeddingPipeline):
            return pipeline
        info, weights = pipeline.backend.info, pipeline.weights
        engine = partial(Engine, pipeline)
        return _Opened(pipeline.codec, info, pipeline.defaults, pipeline.layout, engine, weights)

    async def _open_apart(self, fitting: LoadSettings, plan: _Plan) -> _Opened:
        """Raises NotForText."""
        order = Order(plan.source, fitting, plan.seconds, self._settings.log_level)
        process = await EngineProcess.open(order)
        try:
            # Not before: what a file does to the library is found out in processes of their own.
            codec = await anyio.to_thread.run_sync(load_codec, plan.source, fitting, abandon_on_cancel=True)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await process.stop(0.0)
            raise
        assert codec is not None, "what is apart has a codec of its own"
        told = process.opened
        return _Opened(
            codec, told.backend, told.defaults, told.layout, partial(process.limited, vocabulary=codec.info.vocabulary)
        )

    def _wished(self, available: Available) -> LoadSettings:
        settings = self._settings
        projector = settings.mmproj if available.source == self._adapters.split(settings.model[0])[0] else None
        return LoadSettings(
            slots=settings.slots,
            cells=settings.context,
            cache_type=settings.cache_type,
            drafts=settings.drafts,
            gpu_layers=settings.gpu_layers,
            cache_bytes=settings.cache_bytes,
            host_cache_bytes=settings.host_cache_bytes,
            among=self._together,
            projector=projector,
            tool_formats=settings.tool_format,
            adapter=self._adapters.get(available.adapter),
        )

    def _prepare(self, available: Available, budget: int | None) -> Prepared:
        settings = self._settings
        try:
            source, fitting = found(available.source, self._wished(available))
            size = size_of(source)
        except (OSError, NotFound) as error:
            raise ModelLoadFailed(f"{available.source}: {error}") from error
        named = available.source if source.stored is None else source.stored.reference
        weights = size.weights
        is_gguf = source.kind == "gguf"
        is_apart = settings.engine == "process" and is_gguf and source.projector is None and not self._adapters
        # llama.cpp has the weights of a file in memory once, whoever uses them in this process.
        is_shared = is_gguf and not (is_apart and import_llama().can_offload())
        shares = Share(size.stamp, weights) if is_shared else None
        host = int(settings.host_cache_bytes)
        if budget is not None:
            room = budget - weights
            if room <= 0:
                raise ModelLoadFailed(
                    f"{available.id} has {weights} bytes of weights, and the budget of all models (--model-memory) is"
                    f" {budget}"
                )
            # What it may keep in host memory is as much as on the device, so that both together are within the room.
            cache = max(min(fitting.cache_bytes or _CACHE_BYTES, room - min(host, room // 2)), 1)
            host = min(host, room - cache)
            fitting = replace(fitting, cache_bytes=cache, host_cache_bytes=host, budget=budget)
            layout = layout_of(source, fitting, is_alone=True)
            if layout is not None:
                fitting = replace(fitting, budget=layout.total)
                return Prepared(
                    available,
                    layout.total,
                    _Plan(named, fitting, size.stamp, host, is_apart, weights),
                    Share(size.stamp, layout.weights) if is_shared else None,
                )
        cache = fitting.cache_bytes or _CACHE_BYTES
        plan = _Plan(named, fitting, (*size.stamp, available.adapter, cache), host, is_apart, weights)
        known = self._measured.get(plan.stamp)
        if size.cache is not None:
            known = weights + size.cache + (0 if budget is None else min(host, size.cache))
        return Prepared(available, weights + cache + host if known is None else known, plan, shares)

    def _model(self, id: str, opened: _Opened | EmbeddingPipeline, plan: _Plan) -> tuple[AnyModel, int]:
        """The model with its engine, and what the engine may keep in host memory."""
        settings, meter = self._settings, partial(_meter, self._metrics, id)
        if isinstance(opened, EmbeddingPipeline):
            info = opened.embedder.info
            embedding = EmbeddingClient(id, info, Engine(opened), QueueLimits(settings.queue_limit), meter)
            return EmbeddingModel(id, opened.encoder, embedding, info, time.time()), 0
        backend = opened.backend
        limits = QueueLimits(settings.queue_limit, max(REMEMBERED_TOKENS, 2 * backend.slots * backend.cells))
        host = plan.host_cache_bytes if opened.layout is None else opened.layout.host_cache_bytes
        if settings.model_memory is not None:
            host = min(host, backend.slots * backend.cells * backend.bytes_per_token)
        held_to = EngineSettings(
            host_cache_bytes=host,
            disk=disk_of(settings),
            lends_all=settings.shared_prefixes == "all",
            prefill_slowdown=settings.prefill_slowdown,
        )
        port = opened.engine(held_to)
        engine = EngineClient(id, backend.slots, port, limits, meter)
        defaults = opened.defaults
        if settings.temperature is not None:
            defaults = replace(defaults, temperature=settings.temperature)
        return Model(id, opened.codec, engine, backend, time.time(), defaults), host


def disk_of(settings: Settings) -> DiskSettings | None:
    """Where engines keep caches over restarts."""
    nbytes = int(settings.disk_cache_bytes)
    if not nbytes:
        return None
    limits = Limits(nbytes, min(_QUEUE_BYTES, nbytes), settings.disk_cache_s)
    return DiskSettings(settings.data_dir / SNAPSHOTS, limits)


def _bytes(opened: _Opened | EmbeddingPipeline, model: AnyModel) -> int:
    """All but what is kept of paused sequences."""
    if isinstance(opened, _Opened) and opened.layout is not None:
        return opened.layout.total - opened.layout.host_cache_bytes
    backend = model.backend
    return backend.weights.nbytes + backend.slots * backend.cells * backend.bytes_per_token


def _is_gone(weights: weakref.ref[Any] | None) -> bool:
    """Whether nobody holds these weights any more."""
    return weights is None or weights() is None


def _meter(metrics: Metrics, model: str, usage: RoundUsage) -> None:
    metrics.round(model, computed=usage.computed, cached=usage.cached, sampled=usage.sampled)

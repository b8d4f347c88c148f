"""What the doctor sees of models: what each says of itself, and how fast the embedded one runs here."""

from collections.abc import Sequence
from typing import Any

import anyio

from tenuto.errors import TenutoError
from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.embedding import EmbeddingPipeline
from tenuto.pipelines.finding import is_embedded, model_id
from tenuto.pipelines.fit import Plan
from tenuto.pipelines.loader import LoadSettings, load_any
from tenuto.runtime.adapted_models import Adapters, misfit
from tenuto.runtime.config import Settings
from tenuto.runtime.engine.engine import Engine
from tenuto.runtime.engine.messages import EngineStatus, Failed, Round, RoundUsage, Stopped
from tenuto.runtime.loop.engine_client import EngineClient
from tenuto.runtime.loop.models import Model
from tenuto.runtime.model_loading import available_cores
from tenuto.runtime.terminal.client import Remote
from tenuto.runtime.terminal.report import Section, bytes_text
from tenuto.sessions.principal import LOCAL

EMBEDDED = "embedded"
PROMPT_TOKENS, DECODE_TOKENS = 256, 64
MEASURE_S = 60.0
_TEXT = "The quick brown fox jumps over the lazy dog. "


def served(remote: Remote) -> list[Section]:
    """The models of a running server."""
    sections = []
    for model in remote.get("/v1/models")["data"]:
        section = Section(f"model {model['id']}")
        section.facts["model"] = model.get("description") or "unknown"
        section.facts["backend"] = model.get("backend") or "unknown"
        section.facts["requests"] = _served(model.get("can_batch", True))
        section.facts["context"] = f"{model.get('context_length')} tokens"
        section.facts["can"] = model.get("capabilities", [])
        if "tool_format" in model:
            section.facts["tool-call format"] = model["tool_format"]
        section.facts |= _at_work(model)
        sections.append(section)
    return sections


def _at_work(model: dict[str, Any]) -> dict[str, Any]:
    """What a model that is loaded does with its threads and caches."""
    facts: dict[str, Any] = {}
    if "threads" in model:
        facts["threads now"] = model["threads"]
    cache = model.get("cache")
    if cache is not None:
        used = cache.get("used_bytes", {})
        facts["caches now"] = ", ".join(f"{place} {bytes_text(nbytes)}" for place, nbytes in used.items())
        named = {
            "caches moved": "moves",
            "tokens saved by caches": "saved_tokens",
            "caches on disk": "snapshots",
        }
        for name, key in named.items():
            told = [f"{label.replace('_', ' ')} {number}" for label, number in cache.get(key, {}).items() if number]
            facts[name] = ", ".join(told) or "none"
    return facts


def adapters(settings: Settings, names: Sequence[str]) -> list[Section]:
    """Which models each adapter fits, and why not the others."""
    known, sections = Adapters(dict(settings.lora)), []
    for name, adapter in settings.lora:
        section = Section(f"adapter {name}", {"file": str(adapter.path), "scale": f"{adapter.scale:g}"})
        whys = {model: misfit(known.split(model)[0], adapter) for model in names}
        section.facts["fits"] = [model for model, why in whys.items() if why is None]
        if not section.facts["fits"]:
            section.wrong(next((why for why in whys.values() if why), ""), "name the model that it was trained for")
        sections.append(section)
    return sections


def fitted(settings: Settings, *, is_first: bool, adapter: str = "") -> LoadSettings:
    """What a model may take by the settings, as a server would load it. The projector goes with the first one."""
    return LoadSettings(
        slots=settings.slots,
        cells=settings.context,
        cache_type=settings.cache_type,
        gpu_layers=settings.gpu_layers,
        cache_bytes=settings.cache_bytes,
        host_cache_bytes=settings.host_cache_bytes,
        threads=settings.threads or available_cores(),
        projector=settings.mmproj if is_first else None,
        tool_formats=settings.tool_format,
        adapter=dict(settings.lora).get(adapter),
    )


async def loaded(name: str, fitting: LoadSettings, title: str = "") -> Section:
    """A model that is loaded for the question, and measured if it is the embedded one."""
    section = Section(f"model {title or model_id(name)}")
    try:
        pipeline = await anyio.to_thread.run_sync(load_any, name, fitting)
    except TenutoError as exc:
        section.wrong(str(exc), _remedy(name, str(exc)))
        return section
    if isinstance(pipeline, EmbeddingPipeline):
        _describe_embedding(section, pipeline)
        pipeline.embedder.close()
        return section
    engine = EngineClient(pipeline.codec.info.model, pipeline.backend.info.slots, Engine(pipeline))
    try:
        _describe(section, pipeline, engine)
        if is_embedded(name):
            await _measure(section, pipeline, engine)
    finally:
        await engine.stop()
    return section


async def speed() -> Section:
    """How fast the embedded model runs in this process."""
    section = await loaded(EMBEDDED, LoadSettings(slots=1, cells=1024, threads=available_cores()))
    section.title = "speed of the embedded model"
    return section


def _describe(section: Section, pipeline: Pipeline, engine: EngineClient) -> None:
    info, codec = pipeline.backend.info, pipeline.codec
    model = Model(codec.info.model, codec, engine, info, 0.0, pipeline.defaults)
    calls = "tools" in model.capabilities
    section.facts |= {
        "model": info.description or "unknown",
        "backend": info.runs_on or "unknown",
        "requests": _served(info.can_batch),
        "context": f"{info.context} tokens",
        "slots": f"{info.slots} of {info.cells} tokens",
        "cache": f"{bytes_text(info.slots * info.cells * info.bytes_per_token)}, {info.bytes_per_token} bytes a token",
        "vocabulary": codec.info.vocabulary,
        "reads": sorted(codec.info.modalities),
        "tool calls": calls,
        "tool-call format": codec.info.tool_format,
        "a turn renders": _rendered(codec.looks_back),
    }
    section.facts |= _laid_out(pipeline.layout)
    section.facts |= dict(info.further)
    section.facts["trial"] = pipeline.trial
    if not calls:
        section.wrong(
            "no known tool-call format is set or found, so it cannot call tools",
            "set --tool-format generic, with which any model is told in words how to call tools",
            broken=False,
        )


def _laid_out(layout: Plan | None) -> dict[str, object]:
    """How a model was fitted into memory, and what gave way for it."""
    if layout is None:
        return {}
    facts: dict[str, object] = {
        "type of the cache": layout.cache_type,
        "planned memory": f"{bytes_text(layout.total)}: weights {bytes_text(layout.weights)}, cache"
        f" {bytes_text(layout.cache)}, steps {bytes_text(layout.step)}, paused sequences"
        f" {bytes_text(layout.host_cache_bytes)}",
    }
    if layout.on_each:
        facts["layers on devices"] = f"{layout.gpu_layers} of {layout.of_layers + 1}"
    facts["less than with more memory"] = list(layout.gave_way)
    return facts


def _describe_embedding(section: Section, pipeline: EmbeddingPipeline) -> None:
    info = pipeline.embedder.info
    section.facts |= {
        "model": info.backend.description or "unknown",
        "backend": info.backend.runs_on or "unknown",
        "can": ["rerank" if info.ranks else "embeddings"],
        "longest text": f"{info.backend.context} tokens",
        "a step": f"up to {info.texts} texts of {info.backend.batch_tokens} tokens together",
        "vocabulary": pipeline.encoder.info.vocabulary,
    }
    if not info.ranks:
        section.facts["dimensions"] = info.width
    section.facts |= dict(info.backend.further)
    section.facts["trial"] = pipeline.trial


def _rendered(looks_back: str | None) -> str:
    return "what is new" if looks_back is None else f"the whole conversation, in a worker thread: {looks_back}"


def _served(can_batch: bool) -> str:
    return "computed together" if can_batch else "served one at a time: this model's cache cannot be batched"


async def _measure(section: Section, pipeline: Pipeline, engine: EngineClient) -> None:
    tokens = (pipeline.codec.tokenize(_TEXT) * PROMPT_TOKENS)[:PROMPT_TOKENS]
    try:
        with anyio.fail_after(MEASURE_S):
            usage = await _round(engine, tokens)
    except (TimeoutError, TenutoError) as exc:
        section.wrong(
            f"it did not answer: {str(exc) or f'not within {MEASURE_S:g} s'}",
            "stop what keeps the CPU busy; if nothing does, rebuild llama-cpp-python for this machine",
        )
        return
    _tell_guesses(section, engine.status)
    first_s = max(usage.first_token_s or usage.total_s, 1e-9)
    rest_s = max(usage.total_s - first_s, 1e-9)
    section.facts["prefill"] = f"{usage.computed / first_s:.0f} tokens/s ({usage.computed} tokens)"
    section.facts["decode"] = f"{(usage.sampled - 1) / rest_s:.0f} tokens/s ({usage.sampled} tokens)"


def _tell_guesses(section: Section, status: EngineStatus) -> None:
    if status.drafted:
        section.facts["guessed tokens"] = f"{status.accepted} of {status.drafted} were right, each a step saved"


async def _round(engine: EngineClient, tokens: list[int]) -> RoundUsage:
    # Nothing ends it but its length, so that the figure is one of steps.
    held_to = Round(DECODE_TOKENS, Sampling(), frozenset())
    async for event in engine.submit("doctor", tokens, held_to, principal=LOCAL.id):
        match event:
            case Stopped():
                return event.usage
            case Failed():
                raise TenutoError(event.error)
    raise TenutoError("the engine has stopped")


def _remedy(name: str, text: str) -> str:
    if "pip install" in text:
        return "install it as shown, or choose another --model"
    if "does not fit into memory" in text:
        return "set less (--context, --slots, --cache-type), free memory, or choose a smaller quantisation"
    if name.startswith("hf:"):
        return "check the name OWNER/REPO[:QUANT] on huggingface.co and the network, or give a file or folder"
    whole = "a whole GGUF file or MLX folder (fetch it again if it is cut off)"
    return f"give --model {whole}, hf:OWNER/REPO[:QUANT] or embedded"

"""From what a user writes after `--model` to a pipeline: find the model, fetch it, check it, and fit it into memory.

Importing this loads no backend.
"""

import logging
import os
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.adapters import fitting
from tenuto.pipelines.backends import import_llama, import_mlx
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.embedding import EmbeddingPipeline
from tenuto.pipelines.finding import Source, is_embedded, located, user_cache
from tenuto.pipelines.fit import Memory, Plan
from tenuto.pipelines.images import ImageReader
from tenuto.pipelines.infill import InfillTokens
from tenuto.pipelines.load_settings import LoadSettings
from tenuto.pipelines.planning import planned, planned_into
from tenuto.pipelines.projector_files import projector_beside
from tenuto.pipelines.sampling_defaults import GREEDY
from tenuto.pipelines.tokenizer import Tokenizer
from tenuto.pipelines.trial import Trial
from tenuto.pipelines.trial import require as trial_of

if TYPE_CHECKING:
    from tenuto.pipelines.llama_cpp import LlamaSettings, Model

__all__ = ["LoadSettings", "find", "fit", "found", "layout_of", "load", "load_any", "load_source"]

logger = logging.getLogger(__name__)

_BY_DEFAULT = LoadSettings()
_SLOTS_OF_A_CORE = 4
_CELL_STEP = 256
_CACHE_BYTES = 1 << 30
"""For what is not planned: embedding models, and those of MLX."""
_turns: "WeakValueDictionary[str, Lock]" = WeakValueDictionary()
_turns_lock = Lock()
_CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"""


def find(model: str, settings: LoadSettings = _BY_DEFAULT) -> Source:
    """Find the file or folder of a model, and fetch it if it is somewhere else and not stored yet.

    Raises:
        ModelLoadFailed: there is none, or it is not a model.
    """
    return located(model, settings.downloads)


def load(model: str, settings: LoadSettings = _BY_DEFAULT) -> Pipeline:
    """Load a model that generates, as `load_any` does.

    Raises:
        ModelLoadFailed: the text says what is wrong and what to do.
    """
    pipeline = load_any(model, settings)
    if isinstance(pipeline, EmbeddingPipeline):
        pipeline.embedder.close()
        raise ModelLoadFailed(f"{model} makes vectors or scores of texts, and generates none")
    return pipeline


def load_any(model: str, settings: LoadSettings = _BY_DEFAULT) -> Pipeline | EmbeddingPipeline:
    """Load a model, whether it generates or embeds.

    It is `embedded`, a GGUF file, an MLX folder, `hf:OWNER/REPO[:QUANT]`, `scripted:FILE`, or the name of a stored
    model.

    What others have made is tried in a process of its own first, a file or a folder. The embedded model is there in two
    forms, `embedded:gguf` and `embedded:mlx`; `embedded` is the one that suits the machine.

    Raises:
        ModelLoadFailed: the text says what is wrong and what to do.
    """
    source, settings = found(model, settings)
    with _turn(source):
        return _opened(model, source, settings)


@contextmanager
def _turn(source: Source) -> Iterator[None]:
    """One load of a file at a time: the next one is planned when the weights are there, which both then share."""
    with _turns_lock:
        turn = _turns.setdefault(str(source.path), Lock())
    with turn:
        yield


def _opened(model: str, source: Source, settings: LoadSettings) -> Pipeline | EmbeddingPipeline:
    if source.kind != "gguf" and settings.adapter is not None:
        raise ModelLoadFailed(
            f"{settings.adapter.path} cannot be applied to {source.path}: adapters are for GGUF models; `mlx_lm.fuse`"
            " makes a model of its own of an MLX model and an adapter"
        )
    if is_embedded(model):
        # Ours needs no trial; an adapter to it is somebody else's.
        embedded = load_source(source, settings) if settings.adapter is None else _tried(source, settings)
        assert isinstance(embedded, Pipeline)
        # The small default model says one thing well; chance only harms it.
        return replace(embedded, defaults=GREEDY)
    if source.kind == "scripted":
        return load_source(source, settings)
    if source.kind != "gguf" and settings.projector is not None:
        raise ModelLoadFailed(f"{source.path} is no GGUF file, and only those have a projector")
    if settings.projector is not None and not settings.projector.is_file():
        raise ModelLoadFailed(f"there is no projector {settings.projector}")
    try:
        return _tried(source, settings)
    except ModelLoadFailed as error:
        if source.projector is None or settings.projector is not None:
            raise
        logger.warning("%s reads no images, although %s lies beside it: %s", source.id, source.projector, error)
        return _tried(replace(source, projector=None), settings)


def found(model: str, settings: LoadSettings) -> tuple[Source, LoadSettings]:
    """Find a model with its projector, and what it may take.

    Raises:
        ModelLoadFailed: there is none, or it is not a model.
    """
    source = find(model, settings)
    if is_embedded(model):
        # More of its short conversations at a time than four a core gain nothing.
        return source, replace(settings, most_slots=min(settings.most_slots, _SLOTS_OF_A_CORE * _cores()))
    beside = projector_beside(source.path) if source.kind == "gguf" else None
    return replace(source, projector=settings.projector or source.projector or beside), settings


def _tried(source: Source, settings: LoadSettings) -> Pipeline | EmbeddingPipeline:
    assert source.kind != "scripted", "nobody tries a script"
    projector = "" if source.projector is None else str(source.projector)
    settings = replace(settings, layout=layout_of(source, settings))
    layers, cache_type = _on_devices(settings), settings.layout.cache_type if settings.layout else "f16"
    trial = Trial(source.kind, str(source.path), layers, settings.threads or _cores(), projector, cache_type)
    if settings.adapter is not None:
        trial = replace(trial, adapter=str(settings.adapter.path), scale=settings.adapter.scale)
    passed = trial_of(trial, settings.verdicts or user_cache() / "verdicts")
    return replace(load_source(source, settings), trial=passed)


def load_source(source: Source, settings: LoadSettings) -> Pipeline | EmbeddingPipeline:
    """Load a model that was found, into this process. What its file makes a native library do happens here.

    A version of the store is held until its backend is gone: nobody can remove it meanwhile.

    Raises:
        ModelLoadFailed: the text says what is wrong and what to do.
    """
    if source.stored is None:
        return _loaded(source, settings)
    held = source.stored.hold()
    if held is None:
        raise ModelLoadFailed(f"{source.stored.reference} has been removed")
    try:
        pipeline = _loaded(source, settings)
    except BaseException:
        held.release()
        raise
    weakref.finalize(pipeline.backend if isinstance(pipeline, Pipeline) else pipeline.embedder, held.release)
    return pipeline


def _loaded(source: Source, settings: LoadSettings) -> Pipeline | EmbeddingPipeline:
    match source.kind:
        case "scripted":
            return _load_script(source)
        case "gguf":
            return _load_gguf(source, settings)
        case "mlx":
            return _load_mlx(source, settings)


def fit(training_context: int, bytes_per_token: int, settings: LoadSettings) -> tuple[int, int]:
    """Choose slots and cells so that the cache keeps within its bytes; one slot of 256 cells at least."""
    budget = (settings.cache_bytes or _CACHE_BYTES) // bytes_per_token
    cells = settings.cells
    if cells is None:
        wanted = min(training_context or settings.most_cells, settings.most_cells)
        affordable = budget // (settings.slots or 1)
        cells = max(_CELL_STEP, min(wanted, affordable) // _CELL_STEP * _CELL_STEP)
    # The library rounds every slot up to whole steps.
    room = -(-cells // _CELL_STEP) * _CELL_STEP
    slots = settings.slots or max(1, min(settings.most_slots, budget // room))
    return slots, cells


def layout_of(source: Source, settings: LoadSettings, *, is_alone: bool = False) -> Plan | None:
    """Plan a model that was found, without loading it. None: it is none of GGUF, or it keeps no cache, for it embeds.

    `is_alone`: as if nothing else used the machine.

    Raises:
        ModelLoadFailed: it does not fit into memory, or not as it was set; or a file is damaged.
    """
    if source.kind != "gguf":
        return None
    llama = import_llama()
    wishes, devices = settings.wishes(source.projector), llama.devices(are_empty=is_alone)
    if is_alone:
        return planned_into(source.path, wishes, Memory(None, devices, settings.budget), settings.adapter)
    there = llama.placement_of(source.path) if source.path.exists() else None
    if there is not None and there.on_each and wishes.gpu_layers in (None, -1, there.gpu_layers):
        wishes = replace(wishes, gpu_layers=there.gpu_layers, on_each=there.on_each)
    return planned(source.path, wishes, devices, settings.budget, settings.adapter)


def _on_devices(settings: LoadSettings) -> int:
    """For the library: how many layers lie on accelerators; below 0: all."""
    if settings.layout is None:
        return -1 if settings.gpu_layers is None else settings.gpu_layers
    return settings.layout.gpu_layers


def _load_script(source: Source) -> Pipeline | EmbeddingPipeline:
    from tenuto.pipelines import scripted

    script = scripted.read_script(source.path)
    if script.embeds is not None:
        return EmbeddingPipeline(scripted.ScriptedTextEncoder(source.id), scripted.ScriptedEmbedder(script))
    backend = scripted.ScriptedBackend(script)
    template = scripted.SWITCHED_TEMPLATE if script.switches_reasoning else scripted.TEMPLATE
    made = TemplateCodec if script.holds_calls else scripted.LooseCodec
    codec = made(source.id, scripted.ScriptedTokenizer(), template)
    return Pipeline(codec, backend, GREEDY)


def _load_gguf(source: Source, settings: LoadSettings) -> Pipeline | EmbeddingPipeline:
    llama = import_llama()
    if settings.layout is None:
        settings = replace(settings, layout=layout_of(source, settings))
    on_each = settings.layout.on_each if settings.layout else ()
    model = llama.Model(source.path, gpu_layers=_on_devices(settings), on_each=on_each)
    if model.embeds:
        encoder = llama.LlamaTextEncoder(source.id, model)
        embedder = llama.LlamaEmbedder(model, _embedder_settings(llama, model, settings))
        return EmbeddingPipeline(encoder, embedder, weights=weakref.ref(model))
    layout = settings.layout
    assert layout is not None, "what generates was planned"
    chosen, projector = _llama_settings(llama, settings, layout), None
    if source.projector is not None:
        projector = llama.Projector(source.projector, model, threads=chosen.threads)
    codec = _codec(source, settings, llama.LlamaTokenizer(model), model.chat_template, model.infill, projector)
    adapter = None if settings.adapter is None else fitting(settings.adapter, source.path)
    backend = llama.LlamaBackend(model, chosen, projector, adapter)
    defaults = model.sampling_defaults
    return Pipeline(codec, backend, defaults, images=projector, weights=weakref.ref(model), layout=layout)


def _load_mlx(source: Source, settings: LoadSettings) -> Pipeline:
    def load_and_leave() -> Pipeline:
        mlx = import_mlx()
        try:
            return _make_mlx(mlx, source, settings)
        finally:
            mlx.leave_thread()

    # A thread that has imported or used MLX must end in order, and the caller's may end while Python exits.
    with ThreadPoolExecutor(1, "mlx-load") as thread:
        return thread.submit(load_and_leave).result()


def _make_mlx(mlx: ModuleType, source: Source, settings: LoadSettings) -> Pipeline:
    mlx.require_tokenizer(source.path)  # before gigabytes are read
    model = mlx.Model(source.path)
    tokenizer = mlx.MlxTokenizer(source.path, model.vocabulary)
    codec = _codec(source, settings, tokenizer, tokenizer.chat_template)
    slots, cells = fit(model.training_context, model.bytes_per_token, settings)
    chosen = mlx.MlxSettings(slots=slots, cells=cells, batch_tokens=settings.batch_tokens)
    defaults = mlx.read_folder(source.path).sampling_defaults
    return Pipeline(codec, mlx.MlxBackend(model, chosen), defaults, weights=weakref.ref(model))


def _codec(
    source: Source,
    settings: LoadSettings,
    tokenizer: Tokenizer,
    template: str | None,
    infill: InfillTokens | None = None,
    images: ImageReader | None = None,
) -> TemplateCodec:
    wanted = next((form for name, form in settings.tool_formats if fnmatchcase(source.id, name)), None)
    codec = TemplateCodec(source.id, tokenizer, template or _CHATML, wanted, infill=infill, images=images)
    if template is None:
        calls = "it is told in words how to call tools" if codec.tool_format.form.calls else "it will call no tools"
        logger.warning("%s has no chat template; ChatML is used, and %s", source.path, calls)
    if codec.looks_back is not None:  # found out here, before anybody waits for it
        logger.info("%s: whole conversations are rendered at each turn: %s", source.id, codec.looks_back)
    return codec


def _llama_settings(llama: ModuleType, settings: LoadSettings, layout: Plan) -> "LlamaSettings":
    chosen: LlamaSettings = llama.LlamaSettings(
        slots=layout.slots,
        cells=layout.context,
        threads=settings.threads or _cores(),
        batch_tokens=settings.batch_tokens,
        cache_type=layout.cache_type,
    )
    return chosen


def _embedder_settings(llama: ModuleType, model: "Model", settings: LoadSettings) -> "LlamaSettings":
    """A text may be as long as the model was made for, as far as a step of it keeps within the bytes for caches."""
    affordable = llama.longest_text(model, settings.cache_bytes or _CACHE_BYTES) // _CELL_STEP * _CELL_STEP
    chosen: LlamaSettings = llama.LlamaSettings(
        slots=0,
        cells=settings.cells or max(_CELL_STEP, min(settings.most_cells, affordable)),
        threads=settings.threads or _cores(),
        batch_tokens=settings.batch_tokens,
    )
    return chosen


def _cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""From a model that was found to a pipeline in this process: its file is read, and laid out in memory.

Importing this loads no backend.
"""

import logging
import os
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.adapters import fitting
from tenuto.pipelines.backends import import_llama, import_mlx
from tenuto.pipelines.base import Codec, Pipeline
from tenuto.pipelines.cache_identity import cache_identity
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.embedding import EmbeddingPipeline
from tenuto.pipelines.finding import Source
from tenuto.pipelines.fit import Memory, Plan
from tenuto.pipelines.images import ImageReader
from tenuto.pipelines.infill import InfillTokens
from tenuto.pipelines.load_settings import LoadSettings
from tenuto.pipelines.model_facts import gguf_parts
from tenuto.pipelines.planning import planned, planned_into
from tenuto.pipelines.sampling_defaults import GREEDY
from tenuto.pipelines.tokenizer import Tokenizer

if TYPE_CHECKING:
    from tenuto.pipelines.llama_cpp import LlamaSettings, Model

logger = logging.getLogger(__name__)

Made = TypeVar("Made")

_CELL_STEP = 256
_CACHE_BYTES = 1 << 30
"""For what is not planned: embedding models, and those of MLX."""
_CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"""


def load_source(source: Source, settings: LoadSettings) -> Pipeline | EmbeddingPipeline:
    """Load a model that was found, into this process. What its file makes a native library do happens here.

    A version of the store is held until its backend is gone: nobody can remove it meanwhile.

    Raises:
        ModelLoadFailed: the text says what is wrong and what to do.
    """
    return _held(source, lambda: _loaded(source, settings))


def load_source_codec(source: Source, settings: LoadSettings) -> Codec | None:
    """Load the codec alone of a model that was found and generates; None where it needs the weights too.

    A version of the store is held until the codec is gone.

    Raises:
        ModelLoadFailed: the text says what is wrong and what to do.
    """
    if source.kind == "mlx" or source.projector is not None or settings.adapter is not None:
        return None
    return _held(source, lambda: _load_codec(source, settings))


def _held(source: Source, make: Callable[[], Made]) -> Made:
    """What is made of a model, which is held until that is gone."""
    if source.stored is None:
        return make()
    held = source.stored.hold()
    if held is None:
        raise ModelLoadFailed(f"{source.stored.reference} has been removed")
    try:
        made = make()
    except BaseException:
        held.release()
        raise
    holder: object = made
    if isinstance(made, Pipeline):
        holder = made.backend
    elif isinstance(made, EmbeddingPipeline):
        holder = made.embedder
    weakref.finalize(holder, held.release)
    return made


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
    wishes = replace(settings.wishes(source.projector), prefers_plain=llama.prefers_plain())
    devices = llama.devices(are_empty=is_alone)
    if is_alone:
        return planned_into(source.path, wishes, Memory(None, devices, settings.budget), settings.adapter)
    there = llama.placement_of(source.path) if source.path.exists() else None
    if there is not None and there.on_each and wishes.gpu_layers in (None, -1, there.gpu_layers):
        wishes = replace(wishes, gpu_layers=there.gpu_layers, on_each=there.on_each)
    return planned(source.path, wishes, devices, settings.budget, settings.adapter)


def on_devices(settings: LoadSettings) -> int:
    """For the library: how many layers lie on accelerators; below 0: all."""
    if settings.layout is None:
        return -1 if settings.gpu_layers is None else settings.gpu_layers
    return settings.layout.gpu_layers


def _load_codec(source: Source, settings: LoadSettings) -> Codec | None:
    if source.kind == "scripted":
        return _script_codec(source)
    llama = import_llama()
    model = llama.Model(source.path, vocabulary_only=True)
    if model.embeds:
        return None
    return _codec(source, settings, llama.LlamaTokenizer(model), model.chat_template, model.infill)


def _load_script(source: Source) -> Pipeline | EmbeddingPipeline:
    from tenuto.pipelines import scripted

    script, codec = scripted.read_script(source.path), _script_codec(source)
    if codec is None:
        return EmbeddingPipeline(scripted.ScriptedTextEncoder(source.id), scripted.ScriptedEmbedder(script))
    identity = cache_identity([source.path], ("scripted",))
    return Pipeline(codec, scripted.ScriptedBackend(script), GREEDY, cache_identity=identity)


def _script_codec(source: Source) -> TemplateCodec | None:
    from tenuto.pipelines import scripted

    script = scripted.read_script(source.path)
    if script.embeds is not None:
        return None
    template = scripted.SWITCHED_TEMPLATE if script.switches_reasoning else scripted.TEMPLATE
    made = TemplateCodec if script.holds_calls else scripted.LooseCodec
    return made(source.id, scripted.ScriptedTokenizer(), template)


def _load_gguf(source: Source, settings: LoadSettings) -> Pipeline | EmbeddingPipeline:
    llama = import_llama()
    if settings.layout is None:
        settings = replace(settings, layout=layout_of(source, settings))
    on_each = settings.layout.on_each if settings.layout else ()
    model = llama.Model(source.path, gpu_layers=on_devices(settings), on_each=on_each)
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
    return Pipeline(
        codec,
        backend,
        model.sampling_defaults,
        images=projector,
        weights=weakref.ref(model),
        layout=layout,
        # What it looks at and what is applied to it are files of their own.
        cache_identity="" if projector or adapter else _identity(llama, source, layout),
    )


def _identity(llama: ModuleType, source: Source, layout: Plan) -> str:
    made_by = (llama.version(), layout.cache_type, layout.gpu_layers, layout.is_plain)
    try:
        return cache_identity(gguf_parts(source.path.resolve()), made_by)
    except OSError:
        return ""


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
        threads=settings.threads or cores(),
        batch_tokens=settings.batch_tokens,
        drafts=settings.drafts,
        is_plain=layout.is_plain,
        cache_type=layout.cache_type,
    )
    return chosen


def _embedder_settings(llama: ModuleType, model: "Model", settings: LoadSettings) -> "LlamaSettings":
    """A text may be as long as the model was made for, as far as a step of it keeps within the bytes for caches."""
    affordable = llama.longest_text(model, settings.cache_bytes or _CACHE_BYTES) // _CELL_STEP * _CELL_STEP
    chosen: LlamaSettings = llama.LlamaSettings(
        slots=0,
        cells=settings.cells or max(_CELL_STEP, min(settings.most_cells, affordable)),
        threads=settings.threads or cores(),
        batch_tokens=settings.batch_tokens,
    )
    return chosen


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

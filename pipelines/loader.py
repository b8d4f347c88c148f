"""From what a user writes after `--model` to a pipeline: find the model, fetch it, check it, and fit it into memory.

Importing this loads no backend.
"""

import logging
import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.embedding import EmbeddingPipeline
from tenuto.pipelines.finding import NO_MLX, Source, has_mlx, is_embedded, located, user_cache
from tenuto.pipelines.images import ImageReader
from tenuto.pipelines.infill import InfillTokens
from tenuto.pipelines.projector_files import projector_beside
from tenuto.pipelines.sampling_defaults import GREEDY
from tenuto.pipelines.tokenizer import Tokenizer
from tenuto.pipelines.trial import Trial
from tenuto.pipelines.trial import require as trial_of

if TYPE_CHECKING:
    from tenuto.pipelines.llama_cpp import LlamaSettings, Model

logger = logging.getLogger(__name__)

_MOST_SLOTS = 16
_SLOTS_OF_A_CORE = 4
_CELL_STEP = 256
_CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"""


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """What a model may take. None: fitted to the model and the machine.

    `cache_bytes` bounds the cache on the device where `slots` or `cells` are left open; `most_cells` bounds what is
    chosen for `cells`, the tokens that one sequence may hold. `gpu_layers` below 0: all.
    """

    slots: int | None = None
    cells: int | None = None
    cache_bytes: int = 1 << 30
    most_cells: int = 8192
    threads: int | None = None
    batch_tokens: int = 512
    gpu_layers: int = -1
    tool_formats: tuple[tuple[str, str], ...] = ()
    """Which models, by their ids or globs, speak which tool-call format; of others it is found out."""
    downloads: Path | None = None
    """Where fetched models are kept; by default the user's cache folder."""
    verdicts: Path | None = None
    """Where it is kept which models have passed a trial; by default beside these."""
    projector: Path | None = None
    """The part of a GGUF model that reads images; by default one that lies beside it."""


def find(model: str, settings: LoadSettings = LoadSettings()) -> Source:
    """Find the file or folder of a model, and fetch it if it is somewhere else and not stored yet.

    Raises:
        ModelLoadFailed: there is none, or it is not a model.
    """
    return located(model, settings.downloads)


def load(model: str, settings: LoadSettings = LoadSettings()) -> Pipeline:
    """Load a model that generates, as `load_any` does.

    Raises:
        ModelLoadFailed: the text says what is wrong and what to do.
    """
    pipeline = load_any(model, settings)
    if isinstance(pipeline, EmbeddingPipeline):
        pipeline.embedder.close()
        raise ModelLoadFailed(f"{model} makes vectors or scores of texts, and generates none")
    return pipeline


def load_any(model: str, settings: LoadSettings = LoadSettings()) -> Pipeline | EmbeddingPipeline:
    """Load a model, whether it generates or embeds.

    It is `embedded`, a GGUF file, an MLX folder, `hf:OWNER/REPO[:QUANT]`, `scripted:FILE`, or the name of a stored
    model.

    What others have made is tried in a process of its own first, a file or a folder. The embedded model is there in two
    forms, `embedded:gguf` and `embedded:mlx`; `embedded` is the one that suits the machine.

    Raises:
        ModelLoadFailed: the text says what is wrong and what to do.
    """
    source = find(model, settings)
    if is_embedded(model):
        # The small default model says one thing well; chance only harms it.
        # More of its short conversations at a time than four a core gain nothing, and each takes its cache's memory.
        slots = settings.slots or min(_MOST_SLOTS, _SLOTS_OF_A_CORE * _cores())
        embedded = load_source(source, replace(settings, slots=slots))
        assert isinstance(embedded, Pipeline)
        return replace(embedded, defaults=GREEDY)
    if source.kind == "scripted":
        return load_source(source, settings)
    if source.kind != "gguf" and settings.projector is not None:
        raise ModelLoadFailed(f"{source.path} is no GGUF file, and only those have a projector")
    if settings.projector is not None and not settings.projector.is_file():
        raise ModelLoadFailed(f"there is no projector {settings.projector}")
    projector = settings.projector or (projector_beside(source.path) if source.kind == "gguf" else None)
    if projector is None:
        return _tried(source, settings)
    try:
        return _tried(replace(source, projector=projector), settings)
    except ModelLoadFailed as error:
        if settings.projector is not None:
            raise
        logger.warning("%s reads no images, although %s lies beside it: %s", source.id, projector, error)
        return _tried(source, settings)


def _tried(source: Source, settings: LoadSettings) -> Pipeline | EmbeddingPipeline:
    assert source.kind != "scripted", "nobody tries a script"
    projector = "" if source.projector is None else str(source.projector)
    trial = Trial(source.kind, str(source.path), settings.gpu_layers, settings.threads or _cores(), projector)
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
    budget = settings.cache_bytes // bytes_per_token
    cells = settings.cells
    if cells is None:
        wanted = min(training_context or settings.most_cells, settings.most_cells)
        affordable = budget // (settings.slots or 1)
        cells = max(_CELL_STEP, min(wanted, affordable) // _CELL_STEP * _CELL_STEP)
    # The library rounds every slot up to whole steps.
    room = -(-cells // _CELL_STEP) * _CELL_STEP
    slots = settings.slots or max(1, min(_MOST_SLOTS, budget // room))
    return slots, cells


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
    llama = _import_llama()
    model = llama.Model(source.path, gpu_layers=settings.gpu_layers)
    if model.embeds:
        encoder = llama.LlamaTextEncoder(source.id, model)
        embedder = llama.LlamaEmbedder(model, _embedder_settings(llama, model, settings))
        return EmbeddingPipeline(encoder, embedder, weights=weakref.ref(model))
    chosen, projector = _llama_settings(llama, model, settings), None
    if source.projector is not None:
        projector = llama.Projector(source.projector, model, threads=chosen.threads)
    codec = _codec(source, settings, llama.LlamaTokenizer(model), model.chat_template, model.infill, projector)
    backend = llama.LlamaBackend(model, chosen, projector)
    return Pipeline(codec, backend, model.sampling_defaults, images=projector, weights=weakref.ref(model))


def _load_mlx(source: Source, settings: LoadSettings) -> Pipeline:
    def load_and_leave() -> Pipeline:
        mlx = _import_mlx()
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


def _llama_settings(llama: ModuleType, model: "Model", settings: LoadSettings) -> "LlamaSettings":
    threads = settings.threads or _cores()
    slots, cells = fit(model.training_context, llama.bytes_per_token(model, threads), settings)
    chosen: LlamaSettings = llama.LlamaSettings(
        slots=slots,
        cells=cells,
        threads=threads,
        batch_tokens=settings.batch_tokens,
        gpu_layers=settings.gpu_layers,
    )
    return chosen


def _embedder_settings(llama: ModuleType, model: "Model", settings: LoadSettings) -> "LlamaSettings":
    """A text may be as long as the model was made for, as far as a step of it keeps within the bytes for caches."""
    affordable = llama.longest_text(model, settings.cache_bytes) // _CELL_STEP * _CELL_STEP
    chosen: LlamaSettings = llama.LlamaSettings(
        slots=0,
        cells=settings.cells or max(_CELL_STEP, min(settings.most_cells, affordable)),
        threads=settings.threads or _cores(),
        batch_tokens=settings.batch_tokens,
        gpu_layers=settings.gpu_layers,
    )
    return chosen


def _import_llama() -> ModuleType:
    try:
        from tenuto.pipelines import llama_cpp
    except ModuleNotFoundError as error:
        if error.name != "llama_cpp":
            raise
        raise ModelLoadFailed("GGUF models need llama-cpp-python: pip install 'tenuto[llama]'") from error
    except (OSError, RuntimeError) as error:
        raise ModelLoadFailed(f"llama-cpp-python is installed, but its library cannot be loaded: {error}") from error
    return llama_cpp


def _import_mlx() -> ModuleType:
    if not has_mlx():
        raise ModelLoadFailed(NO_MLX)
    try:
        from tenuto.pipelines import mlx
    except (ImportError, OSError, RuntimeError) as error:
        if isinstance(error, ImportError) and (error.name or "").startswith("tenuto"):
            raise
        raise ModelLoadFailed(
            f"mlx is installed, but cannot be loaded: {error}; pip install 'tenuto[mlx]' brings all that it needs"
        ) from error
    return mlx


def _cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

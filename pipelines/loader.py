"""From what a user writes after `--model` to a pipeline: find the model, fetch it, check it, and fit it into memory.

Importing this loads no backend.
"""

import importlib.util
import logging
import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import platformdirs

from tenuto.errors import ModelLoadFailed
from tenuto.paths import expanded
from tenuto.pipelines import hub
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.codec import TemplateCodec, Tokenizer
from tenuto.pipelines.embedding import EmbeddingPipeline
from tenuto.pipelines.trial import Trial
from tenuto.pipelines.trial import require as trial_of

if TYPE_CHECKING:
    from tenuto.pipelines.llama_cpp import LlamaSettings, Model

logger = logging.getLogger(__name__)

_EMBEDDED = Path(__file__).parent / "embedded"
_NO_MLX = "MLX models need mlx and mlx-lm: pip install 'tenuto[mlx]'"
_MOST_SLOTS = 16
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
    downloads: Path | None = None
    """Where fetched models are kept; by default the user's cache folder."""
    verdicts: Path | None = None
    """Where it is kept which models have passed a trial; by default beside these."""


@dataclass(frozen=True, slots=True)
class Source:
    """A model that was found: its public id, its kind, and its file or folder."""

    id: str
    kind: Literal["gguf", "mlx", "scripted"]
    path: Path


def model_id(model: str) -> str:
    """Give the public id of what `--model` names; nothing is looked up."""
    if model.startswith("hf:"):
        return model.removeprefix("hf:")
    if is_embedded(model):
        return "embedded"
    if model.startswith("scripted:"):
        return Path(model.removeprefix("scripted:")).stem
    path = Path(model)
    # A folder's name may have points in it, as in Qwen3-0.6B-4bit.
    return path.stem if path.suffix.lower() == ".gguf" else path.name or path.resolve().name


def is_embedded(model: str) -> bool:
    """Whether `--model` names the embedded model, in whichever form."""
    return model in ("embedded", "embedded:gguf", "embedded:mlx")


def find(model: str, settings: LoadSettings = LoadSettings()) -> Source:
    """Find the file or folder of a model, and fetch it if it is on the Hub.

    Raises:
        ModelLoadFailed: there is none, or it is not a model.
    """
    if model.startswith("scripted:"):
        return Source(model_id(model), "scripted", _path(model.removeprefix("scripted:")))
    if is_embedded(model):
        path = _embedded(model)
    elif model.startswith("hf:"):
        repository, _, quant = model.removeprefix("hf:").partition(":")
        downloads = settings.downloads or _downloads()
        found = hub.look(repository, quant or None, downloads)
        if found.kind == "mlx" and not has_mlx():
            raise ModelLoadFailed(_NO_MLX)  # before gigabytes have come
        path = hub.fetch(found, downloads)
    else:
        path = _path(model)
    return Source(model_id(model), _kind(path), path)


def _path(named: str) -> Path:
    try:
        return expanded(named)
    except ValueError as error:
        raise ModelLoadFailed(f"{named}: {error}") from None


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

    It is `embedded`, a GGUF file, an MLX folder, `hf:OWNER/REPO[:QUANT]` or `scripted:FILE`.

    What others have made is tried in a process of its own first, a file or a folder. The embedded model is there in two
    forms, `embedded:gguf` and `embedded:mlx`; `embedded` is the one that suits the machine.

    Raises:
        ModelLoadFailed: the text says what is wrong and what to do.
    """
    source = find(model, settings)
    if is_embedded(model):
        # The small default model says one thing well; chance only harms it.
        embedded = load_source(source, settings)
        assert isinstance(embedded, Pipeline)
        return replace(embedded, temperature=0.0)
    if source.kind == "scripted":
        return load_source(source, settings)
    trial = Trial(source.kind, str(source.path), settings.gpu_layers, settings.threads or _cores())
    passed = trial_of(trial, settings.verdicts or _cache() / "verdicts")
    return replace(load_source(source, settings), trial=passed)


def load_source(source: Source, settings: LoadSettings) -> Pipeline | EmbeddingPipeline:
    """Load a model that was found, into this process. What its file makes a native library do happens here.

    Raises:
        ModelLoadFailed: the text says what is wrong and what to do.
    """
    match source.kind:
        case "scripted":
            return _load_script(source)
        case "gguf":
            return _load_gguf(source, settings)
        case "mlx":
            return _load_mlx(source, settings)


def has_mlx() -> bool:
    """Whether the packages for MLX models are installed; nothing is imported."""
    return all(importlib.util.find_spec(name) is not None for name in ("mlx", "mlx_lm"))


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
    codec = _codec(source, scripted.ScriptedTokenizer(), scripted.TEMPLATE)
    return Pipeline(codec, backend, temperature=0.0)


def _load_gguf(source: Source, settings: LoadSettings) -> Pipeline | EmbeddingPipeline:
    llama = _import_llama()
    model = llama.Model(source.path, gpu_layers=settings.gpu_layers)
    if model.embeds:
        encoder = llama.LlamaTextEncoder(source.id, model)
        return EmbeddingPipeline(encoder, llama.LlamaEmbedder(model, _embedder_settings(llama, model, settings)))
    codec = _codec(source, llama.LlamaTokenizer(model), model.chat_template)
    return Pipeline(codec, llama.LlamaBackend(model, _llama_settings(llama, model, settings)))


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
    codec = _codec(source, tokenizer, tokenizer.chat_template)
    slots, cells = fit(model.training_context, model.bytes_per_token, settings)
    chosen = mlx.MlxSettings(slots=slots, cells=cells, batch_tokens=settings.batch_tokens)
    return Pipeline(codec, mlx.MlxBackend(model, chosen))


def _codec(source: Source, tokenizer: Tokenizer, template: str | None) -> TemplateCodec:
    if template is None:
        logger.warning("%s has no chat template; ChatML is used, and it will call no tools", source.path)
    codec = TemplateCodec(model=source.id, tokenizer=tokenizer, template=template or _CHATML)
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
        raise ModelLoadFailed(_NO_MLX)
    try:
        from tenuto.pipelines import mlx
    except (ImportError, OSError, RuntimeError) as error:
        if isinstance(error, ImportError) and (error.name or "").startswith("tenuto"):
            raise
        raise ModelLoadFailed(
            f"mlx is installed, but cannot be loaded: {error}; pip install 'tenuto[mlx]' brings all that it needs"
        ) from error
    return mlx


def _embedded(model: str) -> Path:
    """The form that was asked for; without one MLX on Apple Silicon, where it is installed, and else GGUF."""
    _, _, form = model.partition(":")
    apple = sys.platform == "darwin" and platform.machine() == "arm64"
    if form == "mlx" or (not form and apple and has_mlx()):
        return _EMBEDDED / "mlx"
    return _EMBEDDED / "tenuto-embedded.gguf"


def _kind(path: Path) -> Literal["gguf", "mlx"]:
    """What a file or folder is.

    Raises:
        ModelLoadFailed: it is no model.
    """
    if path.is_dir():
        if (path / "config.json").exists():
            return "mlx"
        raise ModelLoadFailed(
            f"{path} is a folder without a model: it has no config.json; give a GGUF file or the folder of an MLX model"
        )
    if path.exists() and not path.is_file():
        raise ModelLoadFailed(f"{path} is neither a file nor a folder")  # to open a pipe would wait for a writer
    if path.suffix == ".safetensors" and path.exists():
        raise ModelLoadFailed(f"{path} is one file of an MLX model; give its folder, {path.parent}")
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError as error:
        raise ModelLoadFailed(f"there is no model file {path}") from error
    except OSError as error:
        raise ModelLoadFailed(f"the model file {path} cannot be read: {error.strerror}") from error
    if magic != b"GGUF":
        raise ModelLoadFailed(f"{path} is not a GGUF file")
    return "gguf"


def _downloads() -> Path:
    return _cache() / "models"


def _cache() -> Path:
    """The user's folder for what can be fetched or found out again."""
    return platformdirs.user_cache_path("tenuto", appauthor=False)


def _cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""From what a user writes after `--model` to a pipeline: find the model, fetch it, check it, and fit it into memory.

Importing this loads no backend.
"""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines import hub
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.codec import TemplateCodec

if TYPE_CHECKING:
    from tenuto.pipelines.llama_cpp import LlamaSettings, Model

logger = logging.getLogger(__name__)

_EMBEDDED = Path(__file__).parent / "embedded" / "tenuto-standin-q8_0.gguf"
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


@dataclass(frozen=True, slots=True)
class Source:
    """A model that was found: its public id, its kind and its file."""

    id: str
    kind: Literal["gguf", "scripted"]
    path: Path


def model_id(model: str) -> str:
    """Give the public id of what `--model` names; nothing is looked up."""
    if model.startswith("hf:"):
        return model.removeprefix("hf:")
    return model if model == "embedded" else Path(model.removeprefix("scripted:")).stem


def find(model: str, settings: LoadSettings = LoadSettings()) -> Source:
    """Find the file of a model, and fetch it if it is on the Hub.

    Raises:
        ModelLoadFailed: there is none, or it is not a model.
    """
    if model.startswith("scripted:"):
        return Source(model_id(model), "scripted", Path(model.removeprefix("scripted:")).expanduser())
    if model == "embedded":
        path = _EMBEDDED
    elif model.startswith("hf:"):
        repository, _, quant = model.removeprefix("hf:").partition(":")
        path = hub.fetch(repository, quant or None, settings.downloads or _downloads())
    else:
        path = Path(model).expanduser()
    _require_gguf(path)
    return Source(model_id(model), "gguf", path)


def load(model: str, settings: LoadSettings = LoadSettings()) -> Pipeline:
    """Load a model: `embedded`, a GGUF file, `hf:OWNER/REPO[:QUANT]` or `scripted:FILE`.

    Raises:
        ModelLoadFailed: the text says what is wrong and what to do.
    """
    source = find(model, settings)
    return _load_script(source) if source.kind == "scripted" else _load_gguf(source, settings)


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


def _load_script(source: Source) -> Pipeline:
    from tenuto.pipelines import scripted

    backend = scripted.ScriptedBackend(scripted.read_script(source.path))
    codec = TemplateCodec(model=source.id, tokenizer=scripted.ScriptedTokenizer(), template=scripted.TEMPLATE)
    return Pipeline(codec, backend, temperature=0.0)


def _load_gguf(source: Source, settings: LoadSettings) -> Pipeline:
    llama = _import_llama()
    model = llama.Model(source.path, gpu_layers=settings.gpu_layers)
    if model.chat_template is None:
        logger.warning("%s has no chat template; ChatML is used, and it will call no tools", source.path)
    codec = TemplateCodec(
        model=source.id, tokenizer=llama.LlamaTokenizer(model), template=model.chat_template or _CHATML
    )
    backend = llama.LlamaBackend(model, _llama_settings(llama, model, settings))
    # The small default model says one thing well; chance only harms it.
    return Pipeline(codec, backend, temperature=0.0) if source.path == _EMBEDDED else Pipeline(codec, backend)


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


def _require_gguf(path: Path) -> None:
    if path.is_dir():
        raise ModelLoadFailed(
            f"{path} is a folder: MLX models are not supported yet; give a GGUF file"
            if (path / "config.json").exists()
            else f"{path} is a folder without a model; give a GGUF file"
        )
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError as error:
        raise ModelLoadFailed(f"there is no model file {path}") from error
    except OSError as error:
        raise ModelLoadFailed(f"the model file {path} cannot be read: {error.strerror}") from error
    if magic != b"GGUF":
        raise ModelLoadFailed(f"{path} is not a GGUF file")


def _downloads() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tenuto" / "models"


def _cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""From what a user writes after `--model` to the file or folder of a model, fetched if it is somewhere else.

Importing this loads no backend.
"""

import importlib.util
import logging
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs

from tenuto.errors import ModelLoadFailed, NotFound
from tenuto.paths import expanded
from tenuto.pipelines.model_store import ModelStore, Offer, Progress, StoredModel, ensure, is_name, is_remote, source_of

logger = logging.getLogger(__name__)

NO_MLX = "MLX models need mlx and mlx-lm: pip install 'tenuto[mlx]'"
_EMBEDDED = Path(__file__).parent / "embedded"


@dataclass(frozen=True, slots=True)
class Source:
    """A model that was found: its public id, its kind, and its file or folder; `stored` where it is of the store."""

    id: str
    kind: Literal["gguf", "mlx", "scripted"]
    path: Path
    stored: StoredModel | None = None
    projector: Path | None = None
    """The file of the part that reads images, where it came with one or has one beside its weights."""


def model_id(model: str) -> str:
    """Give the public id of what `--model` names; nothing is looked up."""
    if model.startswith("hf:"):
        return model.removeprefix("hf:")
    if is_embedded(model):
        return "embedded"
    if model.startswith("scripted:"):
        return Path(model.removeprefix("scripted:")).stem
    if is_remote(model):
        return source_of(model, store_folder(None)).name
    path = Path(model)
    if not _looks_like_a_path(model, path):
        return model
    # A folder's name may have points in it, as in Qwen3-0.6B-4bit.
    return path.stem if path.suffix.lower() == ".gguf" else path.name or path.resolve().name


def is_embedded(model: str) -> bool:
    """Whether `--model` names the embedded model, in whichever form."""
    return model in ("embedded", "embedded:gguf", "embedded:mlx")


def located(model: str, downloads: Path | None) -> Source:
    """Find the file or folder of a model; what is stored under its name serves, and what is not there is fetched.

    Raises:
        ModelLoadFailed: there is none, or it is not a model.
        NotFound: there is no such version of it.
    """
    if model.startswith("scripted:"):
        return Source(model_id(model), "scripted", _path(model.removeprefix("scripted:")))
    if is_embedded(model):
        path = _embedded(model)
        return Source(model_id(model), kind_of(path), path)
    store = model_store(downloads)
    if is_remote(model):
        return of_store(ensure(store, source_of(model, store.root), accept=_loadable, tell=_Logged()), model_id(model))
    path = _path(model)
    if not path.exists() and not model.lower().endswith((".gguf", ".safetensors")) and is_name(model.partition("@")[0]):
        stored = store.find(model)
        if stored is not None:
            return of_store(stored, model_id(model))
    return Source(model_id(model), kind_of(path), path)


def of_store(stored: StoredModel, id: str | None = None) -> Source:
    """A stored model as one that can be loaded.

    Raises:
        ModelLoadFailed: a file of it is gone or has not its size.
    """
    if gone := stored.missing():
        raise ModelLoadFailed(
            f"{stored.reference} is damaged: {', '.join(gone)} is gone or cut off; `tenuto models pull {stored.name}`"
            " fetches it again"
        )
    return Source(id or stored.name, stored.kind, stored.path, stored, stored.projector)


def available(downloads: Path | None = None) -> list[StoredModel]:
    """The models that are stored on this machine, each in its current version, by name. Reads the disk."""
    return model_store(downloads).available()


def resolve(name: str, downloads: Path | None = None) -> Source | None:
    """The stored model that `NAME` or `NAME@VERSION` means, without fetching anything; None where there is none.

    Raises:
        ModelLoadFailed: it is damaged.
    """
    if not is_name(name.partition("@")[0]):
        return None
    try:
        stored = model_store(downloads).find(name)
    except NotFound:
        return None
    return None if stored is None else of_store(stored)


def model_store(downloads: Path | None = None) -> ModelStore:
    """The store in a folder; by default in the user's cache."""
    return ModelStore(store_folder(downloads))


def store_folder(downloads: Path | None) -> Path:
    """Where fetched models are kept."""
    return downloads or user_cache() / "models"


def user_cache() -> Path:
    """The user's folder for what can be fetched or found out again."""
    return platformdirs.user_cache_path("tenuto", appauthor=False)


def has_mlx() -> bool:
    """Whether the packages for MLX models are installed; nothing is imported."""
    return all(importlib.util.find_spec(name) is not None for name in ("mlx", "mlx_lm"))


def kind_of(path: Path) -> Literal["gguf", "mlx"]:
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
        raise ModelLoadFailed(
            f"there is no model file {path}, and no stored model of that name; `tenuto models list` shows those that"
            " there are"
        ) from error
    except OSError as error:
        raise ModelLoadFailed(f"the model file {path} cannot be read: {error.strerror}") from error
    if magic != b"GGUF":
        raise ModelLoadFailed(f"{path} is not a GGUF file")
    return "gguf"


class _Logged:
    """Writes to the log with each tenth of a file that has come: a server that starts has no bar to show."""

    def __init__(self) -> None:
        self._last = ("", 0)

    def __call__(self, progress: Progress) -> None:
        """So much has come."""
        if progress.phase == "fetching" and progress.file is not None and progress.total:
            now = (progress.file.path, 10 * progress.done // progress.total)
            if now != self._last:
                self._last = now
                logger.info("%s: %d %% of %.1f MB", now[0], 10 * now[1], progress.total / 1e6)


def _loadable(offer: Offer) -> None:
    """Found out before gigabytes have come."""
    if offer.kind == "mlx" and not has_mlx():
        raise ModelLoadFailed(NO_MLX)


def _looks_like_a_path(model: str, path: Path) -> bool:
    return path.exists() or path.suffix.lower() == ".gguf" or not is_name(model.partition("@")[0])


def _path(named: str) -> Path:
    try:
        return expanded(named)
    except ValueError as error:
        raise ModelLoadFailed(f"{named}: {error}") from None


def _embedded(model: str) -> Path:
    """The form that was asked for; without one MLX on Apple Silicon, where it is installed, and else GGUF."""
    _, _, form = model.partition(":")
    apple = sys.platform == "darwin" and platform.machine() == "arm64"
    if form == "mlx" or (not form and apple and has_mlx()):
        return _EMBEDDED / "mlx"
    return _EMBEDDED / "tenuto-embedded.gguf"

"""Models' files from the Hugging Face Hub, by its own library, in a folder. Which files make a model: `hub_files`.

A file is downloaded beside its place, resumed where it broke off, checked by size and SHA-256, and then moved there:
what lies in the folder under its own name is whole. HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE and the library's other
variables are heeded.
"""

import hashlib
import logging
import os
import re
import shutil
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from tenuto import __version__
from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.hub_files import ModelFiles, RemoteFile, model_files

if TYPE_CHECKING:
    from huggingface_hub import HfApi

logger = logging.getLogger(__name__)

_TIMEOUT_S = 30.0
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_ARRIVING = ".arriving"
"""The folder beside a model's files where the library keeps what is under way."""


def look(repository: str, quant: str | None, folder: Path) -> ModelFiles:
    """Choose a repository's model, as `model_files` says. Where the Hub cannot be reached, what was downloaded before
    serves.

    Raises:
        ModelLoadFailed: there is no such model or quantisation.
    """
    if not _REPOSITORY.fullmatch(repository):
        raise ModelLoadFailed(f"hf:{repository} is not of the form hf:OWNER/REPO or hf:OWNER/REPO:QUANT")
    try:
        revision, files = _listed(repository)
    except _Unreachable as error:
        local = _downloaded(_place(repository, folder))
        if not local:
            raise ModelLoadFailed(f"hf:{repository} cannot be listed: {error}") from error
        logger.warning("%s; using what was downloaded before", error)
        return model_files(local, quant, repository, None)
    return model_files(files, quant, repository, revision)


def fetch(model: ModelFiles, folder: Path) -> Path:
    """Download what is not there yet; the path of the first GGUF file, or the folder of an MLX model.

    Raises:
        ModelLoadFailed: the download failed, or what came is broken.
    """
    place = _place(model.repository, folder)
    if any(not _is_there(file, place) for file in model.files):
        place.mkdir(parents=True, exist_ok=True)
        with FileLock(place.with_name(f"{place.name}.lock")):
            for file in model.files:
                if not _is_there(file, place):
                    _bring(model, file, place)
            shutil.rmtree(place / _ARRIVING, ignore_errors=True)
    return place / model.files[0].path if model.kind == "gguf" else place


class _Unreachable(Exception):
    """The Hub gave no answer, or one that is no list."""


def _place(repository: str, folder: Path) -> Path:
    return folder / repository.replace("/", "--")


def _downloaded(place: Path) -> list[RemoteFile]:
    paths = [path for path in place.rglob("*") if path.is_file() and path.suffix not in (".part", ".lock")]
    return [
        RemoteFile(str(path.relative_to(place)), path.stat().st_size) for path in paths if _ARRIVING not in path.parts
    ]


def _is_there(file: RemoteFile, place: Path) -> bool:
    target = place / file.path
    return target.is_file() and target.stat().st_size == file.size


def _api() -> "HfApi":
    from huggingface_hub import HfApi  # which takes half a second, and is needed for models of the Hub alone

    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="tenuto", library_version=__version__)


def _listed(repository: str) -> tuple[str, list[RemoteFile]]:
    """The commit that a repository is at, and its files.

    Raises:
        ModelLoadFailed: the Hub does not have it, or not for us.
    """
    from httpx2 import HTTPError
    from huggingface_hub.errors import HfHubHTTPError

    api = _api()
    try:
        found = api.model_info(repository, files_metadata=True, timeout=_TIMEOUT_S)
        files = [_remote_file(each) for each in found.siblings or ()]
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403, 404):
            hint = "there is no such model, or it needs HF_TOKEN to be set"
            raise ModelLoadFailed(f"hf:{repository}: {hint} (status {status})") from error
        raise _Unreachable(f"the Hub at {api.endpoint} answered {status}") from error
    except (OSError, HTTPError, ValueError, KeyError, TypeError) as error:
        raise _Unreachable(f"the Hub at {api.endpoint} gave no list: {error}") from error
    if not found.sha:
        raise _Unreachable(f"the Hub at {api.endpoint} does not say which commit it is at")
    return found.sha, [file for file in files if _stays_inside(file)]


def _remote_file(sibling: Any) -> RemoteFile:
    return RemoteFile(sibling.rfilename, int(sibling.size), sibling.lfs.sha256 if sibling.lfs else None)


def _stays_inside(file: RemoteFile) -> bool:
    path = PurePosixPath(file.path)
    return not path.is_absolute() and ".." not in path.parts


def _bring(model: ModelFiles, file: RemoteFile, place: Path) -> None:
    from httpx2 import HTTPError

    if model.revision is None:
        raise ModelLoadFailed(f"{file.path} of hf:{model.repository} is gone from {place}")
    arriving = place / _ARRIVING
    _require_room(file, arriving)
    logger.info("downloading %s of %s, %.1f MB", file.path, model.repository, file.size / 1e6)
    try:
        arrived = Path(
            _api().hf_hub_download(
                model.repository, file.path, revision=model.revision, local_dir=arriving, tqdm_class=_bar()
            )
        )
        size = arrived.stat().st_size
    except (OSError, HTTPError, ValueError) as error:
        raise ModelLoadFailed(f"{file.path} of hf:{model.repository} broke off and can be resumed: {error}") from error
    if size != file.size or file.sha256 not in (None, _sha256(arrived)):
        shutil.rmtree(arriving)  # the library would take it for whole
        what = "size" if size != file.size else "SHA-256"
        raise ModelLoadFailed(f"{file.path} of hf:{model.repository} came broken: its {what} is not the listed one")
    target = place / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    arrived.replace(target)


def _require_room(file: RemoteFile, arriving: Path) -> None:
    partial = sum(path.stat().st_size for path in arriving.rglob("*.incomplete"))
    missing, free = file.size - partial, shutil.disk_usage(arriving.parent).free
    if missing > free:
        raise ModelLoadFailed(
            f"{file.path} needs {missing / 1e9:.1f} GB more in {arriving.parent}; {free / 1e9:.1f} are free"
        )


def _sha256(path: Path) -> str:
    with path.open("r+b") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    return digest


def _bar() -> type[Any]:
    """A progress bar for a person at a terminal, and nothing in a log."""
    from huggingface_hub.utils.tqdm import tqdm

    class Bar(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": not sys.stderr.isatty()})  # type: ignore[no-untyped-call]

    return Bar

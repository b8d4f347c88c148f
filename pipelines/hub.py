"""Models' files from the Hugging Face Hub, over plain HTTP into a cache folder. Knows files, no models.

A file is written beside its place, resumed where it broke off, checked by size and SHA-256, and then moved there: what
lies in the folder under its own name is whole.
"""

import hashlib
import json
import logging
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import quote, urljoin, urlsplit

from filelock import FileLock

from tenuto.errors import ModelLoadFailed

logger = logging.getLogger(__name__)

ENDPOINT = "https://huggingface.co"
_TIMEOUT_S = 30
_CHUNK = 1 << 20
_MOST_PAGES = 50
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})$")
_QUANT = re.compile(r"(?:^|[-._/])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|BF16|F16|F32))$", re.IGNORECASE)
_PREFERRED = ("Q4_K_M", "Q8_0")
_MLX = "MLX"
# What lies in the folder of an MLX model, without its subfolders. Code that a repository brings is not fetched.
_MLX_WEIGHTS = re.compile(r"model[^/]*\.safetensors")
_MLX_FILES = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|chat_template|model[^/]*\.index)\.json"
    rf"|chat_template\.jinja|additional_chat_templates/[^/]+\.jinja|{_MLX_WEIGHTS.pattern}"
)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository. `sha256` is known for the large ones."""

    path: str
    size: int
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The files of one model in a repository, not fetched yet, and the folder that they come to."""

    repository: str
    kind: Literal["gguf", "mlx"]
    files: tuple[RemoteFile, ...]
    place: Path


def look(repository: str, quant: str | None, folder: Path) -> Choice:
    """Choose a repository's model in a quantisation: GGUF where there is any, else safetensors, for MLX.

    `mlx` in place of a quantisation asks for safetensors. Without one: Q4_K_M, else Q8_0, else the only one.
    HF_ENDPOINT and HF_TOKEN are heeded. Where the Hub cannot be reached, what was downloaded before serves.

    Raises:
        ModelLoadFailed: there is no such model or quantisation.
    """
    if not _REPOSITORY.fullmatch(repository):
        raise ModelLoadFailed(f"hf:{repository} is not of the form hf:OWNER/REPO or hf:OWNER/REPO:QUANT")
    place = folder / repository.replace("/", "--")
    try:
        return _choice(_hub().files(repository), quant, repository, place)
    except _Unreachable as error:
        paths = [path for path in place.rglob("*") if path.suffix not in (".part", ".lock") and path.is_file()]
        local = [RemoteFile(str(path.relative_to(place)), path.stat().st_size) for path in paths]
        if not local:
            raise ModelLoadFailed(f"hf:{repository} cannot be listed: {error}") from error
        logger.warning("%s; using what was downloaded before", error)
        return _choice(local, quant, repository, place)


def fetch(choice: Choice) -> Path:
    """Download what is not there yet; the path of the first GGUF file, or the folder of an MLX model.

    Raises:
        ModelLoadFailed: the download failed, or what came is broken.
    """
    hub = _hub()
    for file in choice.files:
        _bring(hub, choice.repository, file, choice.place)
    return choice.place / choice.files[0].path if choice.kind == "gguf" else choice.place


def _choice(files: Sequence[RemoteFile], quant: str | None, repository: str, place: Path) -> Choice:
    weights = [file for file in files if _MLX_WEIGHTS.fullmatch(file.path)]
    if (quant or "").upper() == _MLX or (quant is None and weights and not any(map(_is_gguf, files))):
        return Choice(repository, "mlx", tuple(choose_mlx(files, repository)), place)
    return Choice(repository, "gguf", tuple(choose(files, quant, repository)), place)


def choose_mlx(files: Sequence[RemoteFile], repository: str) -> list[RemoteFile]:
    """Give the files of the MLX model, the small ones first.

    Raises:
        ModelLoadFailed: there is none, or a part of it is missing.
    """
    found = sorted((file for file in files if _MLX_FILES.fullmatch(file.path)), key=lambda file: (file.size, file.path))
    names = {file.path for file in found}
    if not any(_MLX_WEIGHTS.fullmatch(name) for name in names):
        raise ModelLoadFailed(f"hf:{repository} has no model*.safetensors for MLX")
    for name in ("config.json", "tokenizer.json"):
        if name not in names:
            raise ModelLoadFailed(f"hf:{repository} has safetensors and no {name}; it is no model that MLX can load")
    return found


def choose(files: Sequence[RemoteFile], quant: str | None, repository: str) -> list[RemoteFile]:
    """Give the files of one quantisation, the parts of a split one in order.

    Raises:
        ModelLoadFailed: none fits; the text names those that are there.
    """
    found: dict[str, list[RemoteFile]] = {}
    for file in sorted(files, key=lambda file: file.path):
        if _is_gguf(file):
            stem = _SPLIT.sub("", file.path[: -len(".gguf")])
            match = _QUANT.search(stem)
            found.setdefault(match[1].upper() if match else stem, []).append(file)
    wanted = [quant.upper()] if quant else [*_PREFERRED, *(list(found) if len(found) == 1 else [])]
    for name in wanted:
        if name in found:
            return _one_set(found[name])
    what = (
        f"no quantisation {quant}"
        if quant
        else "several quantisations; name one"
        if found
        else "no GGUF file and no safetensors"
    )
    raise ModelLoadFailed(f"hf:{repository} has {what}; there are: {', '.join(sorted(found)) or 'none'}")


def _is_gguf(file: RemoteFile) -> bool:
    """Whether it is a model, and not what reads pictures for one."""
    name = PurePosixPath(file.path).name.lower()
    return name.endswith(".gguf") and "mmproj" not in name


def _one_set(files: list[RemoteFile]) -> list[RemoteFile]:
    """A repository may hold a quantisation under two names: take the first, with all of its parts."""
    stem = _SPLIT.sub("", files[0].path[: -len(".gguf")])
    return [file for file in files if _SPLIT.sub("", file.path[: -len(".gguf")]) == stem]


def _hub() -> "_Hub":
    return _Hub(os.environ.get("HF_ENDPOINT") or ENDPOINT, os.environ.get("HF_TOKEN"))


class _Unreachable(Exception):
    """The Hub gave no answer, or one that is no list."""


class _NoTokenElsewhere(urllib.request.HTTPRedirectHandler):
    """Follows redirects to the Hub's file servers, without the token."""

    def redirect_request(self, req: urllib.request.Request, *args: Any) -> urllib.request.Request | None:
        request = super().redirect_request(req, *args)
        if request is not None and urlsplit(request.full_url).netloc != urlsplit(req.full_url).netloc:
            request.remove_header("Authorization")
        return request


class _Hub:
    def __init__(self, endpoint: str, token: str | None) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._headers = {"User-Agent": "tenuto"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._opener = urllib.request.build_opener(_NoTokenElsewhere)

    def files(self, repository: str) -> list[RemoteFile]:
        url: str | None = f"{self._endpoint}/api/models/{repository}/tree/main?recursive=true"
        files: list[RemoteFile] = []
        try:
            for _ in range(_MOST_PAGES):
                if url is None:
                    break
                with self.get(url) as answer:
                    files += _listed(json.load(answer))
                    url = _next_page(url, answer.headers.get("Link", ""))
        except urllib.error.HTTPError as error:
            if error.code in (401, 403, 404):
                hint = "there is no such model, or it needs HF_TOKEN to be set"
                raise ModelLoadFailed(f"hf:{repository}: {hint} (status {error.code})") from error
            raise _Unreachable(f"the Hub answered {error.code} for {url}") from error
        except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
            raise _Unreachable(f"the Hub at {self._endpoint} gave no list: {error}") from error
        return files

    def get(self, url: str, offset: int = 0) -> Any:
        headers = self._headers | ({"Range": f"bytes={offset}-"} if offset else {})
        return self._opener.open(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_S)

    def file_url(self, repository: str, path: str) -> str:
        return f"{self._endpoint}/{repository}/resolve/main/{quote(path)}"


def _listed(entries: list[dict[str, Any]]) -> Iterator[RemoteFile]:
    for entry in entries:
        path = PurePosixPath(entry["path"])
        if entry.get("type") == "file" and not path.is_absolute() and ".." not in path.parts:
            large = entry.get("lfs") or {}
            yield RemoteFile(str(path), int(large.get("size", entry["size"])), large.get("oid"))


def _next_page(url: str, links: str) -> str | None:
    match = re.search(r'<([^>]+)>;\s*rel="next"', links)
    return urljoin(url, match[1]) if match else None


def _bring(hub: _Hub, repository: str, file: RemoteFile, place: Path) -> None:
    target = place / file.path
    if target.exists() and target.stat().st_size == file.size:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    with FileLock(target.with_name(target.name + ".lock")):
        if target.exists() and target.stat().st_size == file.size:
            return
        _require_room(file, part)
        logger.info("downloading %s of %s, %.1f MB", file.path, repository, file.size / 1e6)
        try:
            digest = _download(hub, hub.file_url(repository, file.path), part, file.size)
        except (OSError, HTTPException) as error:
            raise ModelLoadFailed(f"{file.path} of hf:{repository} broke off and can be resumed: {error}") from error
        if file.sha256 not in (None, digest):
            part.unlink()
            raise ModelLoadFailed(f"{file.path} of hf:{repository} came broken: its SHA-256 is not the listed one")
        part.replace(target)


def _require_room(file: RemoteFile, part: Path) -> None:
    missing = file.size - (part.stat().st_size if part.exists() else 0)
    free = shutil.disk_usage(part.parent).free
    if missing > free:
        raise ModelLoadFailed(
            f"{file.path} needs {missing / 1e9:.1f} GB more in {part.parent}; {free / 1e9:.1f} are free"
        )


def _download(hub: _Hub, url: str, part: Path, size: int) -> str:
    """Complete the file and give its SHA-256. Raises OSError where it breaks off or has another size."""
    if part.exists() and part.stat().st_size > size:
        part.unlink()
    with part.open("ab") as _:
        pass
    digest = hashlib.sha256()
    with part.open("r+b") as file:
        while block := file.read(_CHUNK):
            digest.update(block)
        if file.tell() < size:
            with hub.get(url, file.tell()) as answer:
                if file.tell() and answer.status != 206:  # the server sends all of it again
                    file.seek(0)
                    file.truncate()
                    digest = hashlib.sha256()
                while block := answer.read(_CHUNK):
                    digest.update(block)
                    file.write(block)
        if file.tell() != size:
            raise OSError(f"{file.tell()} of {size} bytes came")
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()

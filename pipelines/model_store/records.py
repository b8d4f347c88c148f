"""What is kept beside the files of a stored model: its lock file with their digests, and which version is current.

No I/O. The lock file of a version is also what a mirror publishes, so what it says is checked as a stranger's word.
"""

import hashlib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from tenuto.errors import ModelLoadFailed

Kind = Literal["gguf", "mlx"]

T = TypeVar("T")

_ID_DIGITS = 12
_MOST_FILES = 4096
_MOST_BYTES = 1 << 50
_LONGEST_PART = 255


def stays_inside(path: str) -> bool:
    """Whether a path, with / between its parts, leads to a file inside of a folder on every platform, and can be shown
    to a person as it is."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or {".", ".."} & set(parts) or set("\\:\0") & set(path):
        return False
    return path.isprintable() and all(len(part.encode()) <= _LONGEST_PART for part in parts)


def _inside(path: str) -> str:
    if not stays_inside(path):
        raise ValueError(f"{path!r} leads out of the model's folder, or is no name of a file")
    return path


def _distinct(files: "tuple[StoredFile, ...]") -> "tuple[StoredFile, ...]":
    """No two files have one place, on systems too that tell no case and no forms of a letter apart."""
    seen: set[str] = set()
    for path in sorted(unicodedata.normalize("NFC", file.path).casefold() for file in files):
        if path in seen or not seen.isdisjoint(map(str, PurePosixPath(path).parents)):
            raise ValueError(f"{path!r} is the place of two files")
        seen.add(path)
    return files


Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a version: its path inside the model's folder, its size in bytes and its SHA-256."""

    path: Annotated[str, Field(min_length=1, max_length=512), AfterValidator(_inside)]
    size: Annotated[int, Field(ge=0, le=_MOST_BYTES)]
    sha256: Digest


StoredFiles = Annotated[tuple[StoredFile, ...], Field(min_length=1, max_length=_MOST_FILES), AfterValidator(_distinct)]


@dataclass(frozen=True, slots=True)
class Version:
    """One state of a model's files. The first of a GGUF model's is the one that is opened.

    `source` is where they came from, as `tenuto models pull` takes it; `revision` is what the source calls this state.
    `created` is when they came, in seconds since the epoch.
    """

    kind: Kind
    files: StoredFiles
    source: str
    revision: str | None = None
    created: float = 0.0

    @property
    def digest(self) -> str:
        """The SHA-256 of all that it consists of: the same files are the same version, whencesoever they came."""
        lines = sorted(f"{file.path}\0{file.sha256}\n" for file in self.files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def id(self) -> str:
        """What people call it: the beginning of its digest."""
        return self.digest[:_ID_DIGITS]

    @property
    def bytes(self) -> int:
        """What its files take."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Pointer:
    """Which version of a model is current, and which were before it, the last one last. `name` is as it was given."""

    name: str
    current: str
    before: tuple[str, ...] = ()

    def switched(self, version: str) -> "Pointer":
        """The pointer after a version became current. One that returns is no longer one of those before."""
        if version == self.current:
            return self
        return Pointer(self.name, version, (*(each for each in self.before if each != version), self.current))

    def without(self, version: str) -> "Pointer":
        """The pointer after a version that is not current has gone."""
        return Pointer(self.name, self.current, tuple(each for each in self.before if each != version))


_VERSIONS, _POINTERS, _FILES = TypeAdapter(Version), TypeAdapter(Pointer), TypeAdapter(StoredFiles)


def dumped(record: Version | Pointer) -> bytes:
    """A record as JSON for people and programs."""
    text = (
        _VERSIONS.dump_json(record, indent=2) if isinstance(record, Version) else _POINTERS.dump_json(record, indent=2)
    )
    return text + b"\n"


def read_version(text: bytes, where: str) -> Version:
    """Read the lock file of a version. Raises ModelLoadFailed where it is none."""
    return _read(_VERSIONS, text, where)


def read_pointer(text: bytes, where: str) -> Pointer:
    """Read which version is current. Raises ModelLoadFailed where it cannot be read."""
    return _read(_POINTERS, text, where)


def require_files(files: Iterable[tuple[str, int, str]], where: str) -> None:
    """Raise ModelLoadFailed where paths, sizes and digests are not those of files that could be stored together."""
    try:
        _FILES.validate_python([{"path": path, "size": size, "sha256": digest} for path, size, digest in files])
    except ValidationError as error:
        raise ModelLoadFailed(f"{where} lists what cannot be stored: {_first(error)}") from error


def _read(adapter: TypeAdapter[T], text: bytes, where: str) -> T:
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        raise ModelLoadFailed(f"{where} is damaged: {_first(error)}") from error


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"


def file_of(files: Iterable[StoredFile], path: str) -> StoredFile | None:
    """The file of that path."""
    return next((file for file in files if file.path == path), None)

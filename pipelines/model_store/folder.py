"""The folder of one stored model: its versions, which of them is current, and the changes of that.

    current.json                  which version is current, and which were before it
    versions/ID/version.json      the lock file of a version: its files with their digests, and where it is from
    versions/ID/files/            its files; they never change
    arriving/                     the version that is being fetched

A version appears by the renaming of its whole folder, and becomes current by the replacing of one small file, so that a
process that ends anywhere leaves what was there or what was to be. Whoever changes something has the model's lock.
"""

import logging
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from tenuto.errors import Conflict, ModelLoadFailed, NotFound
from tenuto.pipelines.model_store import disk, holds, parts
from tenuto.pipelines.model_store.records import Kind, Pointer, StoredFile, Version, dumped, read_pointer, read_version

logger = logging.getLogger(__name__)

_LOCK_FILE = "version.json"
_CURRENT = "current.json"
_ID = re.compile(r"[0-9a-f]{4,64}")


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A version of a model that is stored. `is_current`: it is the one that the bare name means."""

    name: str
    version: Version
    folder: Path
    is_current: bool

    @property
    def kind(self) -> Kind:
        """What loads it."""
        return self.version.kind

    @property
    def files(self) -> Path:
        """The folder of its files."""
        return self.folder / "files"

    @property
    def path(self) -> Path:
        """What is loaded: the first GGUF file, or the folder of an MLX model."""
        return self.files / self.version.files[0].path if self.kind == "gguf" else self.files

    @property
    def projector(self) -> Path | None:
        """The part that reads images, where it came with the model."""
        found = [file.path for file in self.version.files if self.kind == "gguf" and parts.is_projector(file.path)]
        return self.files / found[0] if found else None

    @property
    def not_used(self) -> dict[str, str]:
        """The files that are kept beside it only, each with the reason."""
        return parts.not_used(self.version.files) if self.kind == "gguf" else {}

    @property
    def reference(self) -> str:
        """What names this version, now and later."""
        return f"{self.name}@{self.version.id}"

    def missing(self) -> list[str]:
        """The files that are gone or have not their size; found without reading them."""
        return [file.path for file in self.version.files if _size(self.files / file.path) != file.size]

    def hold(self) -> holds.Hold | None:
        """Keep it from being removed; None where it has been."""
        return holds.hold(self.folder / _LOCK_FILE)


class ModelFolder:
    """One model's folder. Any thread may read; `add`, `switch`, `rollback` and `remove` need the model's lock."""

    def __init__(self, place: Path, leaving: Path) -> None:
        self._place, self._leaving = place, leaving

    @property
    def arriving(self) -> Path:
        """The folder of the version that is being fetched. What an earlier process has left there goes on."""
        return self._place / "arriving"

    @property
    def name(self) -> str:
        """What the model is called, as far as it can be told."""
        try:
            pointer = self.pointer()
        except ModelLoadFailed:
            pointer = None
        return unquote(self._place.name) if pointer is None else pointer.name

    @property
    def key(self) -> str:
        """The folder's own name, which no other model's has."""
        return self._place.name

    def state(self) -> tuple[int, int]:
        """Another value whenever another version becomes current: the file that says so is replaced each time."""
        try:
            stat = (self._place / _CURRENT).stat()
        except OSError:
            return (0, 0)
        return (stat.st_ino, stat.st_mtime_ns)

    def exists(self) -> bool:
        """Whether there is anything of the model, be it damaged or not whole."""
        return self._place.is_dir()

    def come(self) -> int:
        """How many bytes there are of a version that is on its way."""
        return sum(_size(path) or 0 for path in self.arriving.rglob("*") if path.is_file())

    def pointer(self) -> Pointer | None:
        """Which version is current; None where no model is stored here. Raises ModelLoadFailed where it is damaged."""
        path = self._place / _CURRENT
        try:
            return read_pointer(path.read_bytes(), str(path))
        except FileNotFoundError:
            return None
        except ModelLoadFailed as error:
            raise ModelLoadFailed(f"{error}; pull the model again from its source, or remove it") from error
        except OSError as error:
            raise ModelLoadFailed(f"{path} cannot be read: {error.strerror}") from error

    def current(self) -> StoredModel | None:
        """The current version; None where no model is stored here. Raises ModelLoadFailed where it is damaged."""
        pointer = self.pointer()
        return None if pointer is None else self._stored(pointer, pointer.current)

    def version(self, beginning: str) -> StoredModel | None:
        """The version whose id begins so; None where no model is stored here.

        Raises:
            NotFound: there is none, or several.
            ModelLoadFailed: its records are damaged.
        """
        pointer = self.pointer()
        if pointer is None:
            return None
        found = [id for id in self._ids() if id.startswith(beginning[: len(id)])]
        if len(found) != 1:
            raise NotFound(f"version of the stored model {pointer.name}", beginning, self._ids())
        return self._stored(pointer, found[0])

    def versions(self) -> list[StoredModel]:
        """All versions that are whole, in the order in which they came, those too that never became current."""
        pointer = self.pointer() or Pointer("", "")
        return sorted(self._all(pointer), key=lambda model: model.version.created)

    def forget_damaged(self) -> None:
        """Take away what says which version is current where it cannot be read, so that it can be written anew."""
        try:
            self.pointer()
        except ModelLoadFailed as error:
            logger.warning("%s", error)
            (self._place / _CURRENT).unlink()

    def add(self, name: str, version: Version) -> StoredModel:
        """Make what has arrived the current version. Its files lie in `arriving`/files, whole and checked."""
        place = self._place / "versions" / version.id
        try:
            there = read_version((place / _LOCK_FILE).read_bytes(), str(place))
        except (OSError, ModelLoadFailed):
            there = None
        if there is not None:
            for file in version.files:
                if not _is_whole(place / "files" / file.path, file):
                    disk.move(self.arriving / "files" / file.path, place / "files" / file.path)
            disk.remove_folder(self.arriving, self._leaving)
        else:
            if place.exists():  # its lock file is damaged
                disk.remove_folder(place, self._leaving)
            record = replace(version, created=time.time())
            disk.write_whole(self.arriving / _LOCK_FILE, dumped(record))
            disk.sync_tree(self.arriving)
            disk.move(self.arriving, place)
        return self.switch(name, version.id)

    def switch(self, name: str, id: str) -> StoredModel:
        """Make a version current. The first one gives the model its name."""
        pointer = self.pointer()
        pointer = Pointer(name, id) if pointer is None else pointer.switched(id)
        return self._point(pointer)

    def rollback(self) -> StoredModel:
        """Make the version before the current one current again. Raises Conflict where there was none."""
        pointer, there = self.pointer(), set(self._ids())
        assert pointer is not None
        before = [id for id in pointer.before if id in there]
        if not before:
            raise Conflict(f"{pointer.name} has no version before {pointer.current} to go back to")
        return self._point(Pointer(pointer.name, before[-1], tuple(before[:-1])))

    def remove(self, model: StoredModel) -> None:
        """Remove a version that is not current. Raises Conflict where something has loaded it."""
        with _claimed([model]):
            pointer = self.pointer()
            assert pointer is not None
            self._point(pointer.without(model.version.id))
            disk.remove_folder(model.folder, self._leaving)

    def remove_all(self) -> list[StoredModel]:
        """Remove the model with all of its versions; gives those. Raises Conflict where something has loaded one."""
        try:
            pointer = self.pointer() or Pointer(self.name, "")
        except ModelLoadFailed:
            pointer = Pointer(self.name, "")
        versions = sorted(self._all(pointer), key=lambda model: model.version.created)
        with _claimed(versions):
            disk.remove_folder(self._place, self._leaving)
        return versions

    def _point(self, pointer: Pointer) -> StoredModel:
        disk.write_whole(self._place / _CURRENT, dumped(pointer))
        return self._stored(pointer, pointer.current)

    def _ids(self) -> list[str]:
        folder = self._place / "versions"
        return sorted(path.name for path in folder.iterdir() if _ID.fullmatch(path.name)) if folder.is_dir() else []

    def _all(self, pointer: Pointer) -> Iterator[StoredModel]:
        for id in self._ids():
            try:
                yield self._stored(pointer, id)
            except ModelLoadFailed as error:
                logger.warning("%s", error)

    def _stored(self, pointer: Pointer, id: str) -> StoredModel:
        folder = self._place / "versions" / id
        path = folder / _LOCK_FILE
        try:
            version = read_version(path.read_bytes(), str(path))
        except OSError as error:
            raise ModelLoadFailed(
                f"{path} cannot be read: {error.strerror}; `tenuto models pull` fetches {pointer.name} again"
            ) from error
        return StoredModel(pointer.name, version, folder, id == pointer.current)


@contextmanager
def _claimed(models: Iterable[StoredModel]) -> Iterator[None]:
    """Have versions alone for a moment. Raises Conflict where something has loaded one."""
    claims: list[holds.Hold] = []
    try:
        for model in models:
            claim = holds.claim(model.folder / _LOCK_FILE)
            if claim is None:
                raise Conflict(
                    f"{model.reference} is loaded by a server or another process; unload it or stop that first"
                )
            claims.append(claim)
        yield
    finally:
        for claim in claims:
            claim.release()


def _is_whole(path: Path, file: StoredFile) -> bool:
    return _size(path) == file.size and disk.sha256(path) == file.sha256


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None

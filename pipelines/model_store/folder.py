"""The folder of one stored model: its versions, which of them is current, and the changes of that.

    current.json                  which version is current, and which were before it
    versions/ID/version.json      the lock file of a version: its files with their digests, and where it is from
    versions/ID/files/            its files; they never change
    arriving/                     the version that is being fetched

A version appears by the renaming of its whole folder, and becomes current by the replacing of one small file, so that a
process that ends anywhere leaves what was there or what was to be. Whoever changes something has the model's lock.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tenuto.errors import Conflict, ModelLoadFailed, NotFound
from tenuto.pipelines.model_store import disk, holds
from tenuto.pipelines.model_store.records import Kind, Pointer, Version, dumped, read_pointer, read_version

logger = logging.getLogger(__name__)

_LOCK_FILE = "version.json"
_CURRENT = "current.json"


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

    def pointer(self) -> Pointer | None:
        """Which version is current; None where no model is stored here. Raises ModelLoadFailed where it is damaged."""
        path = self._place / _CURRENT
        try:
            return read_pointer(path.read_bytes(), str(path))
        except FileNotFoundError:
            return None
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

    def add(self, name: str, version: Version) -> StoredModel:
        """Make what has arrived the current version. Its files lie in `arriving`/files, whole and checked."""
        place = self._place / "versions" / version.id
        if place.exists():
            disk.remove_folder(self.arriving, self._leaving)
        else:
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

    def remove_all(self) -> None:
        """Remove the model with all of its versions. Raises Conflict where something has loaded one."""
        with _claimed(self.versions()):
            disk.remove_folder(self._place, self._leaving)

    def _point(self, pointer: Pointer) -> StoredModel:
        disk.write_whole(self._place / _CURRENT, dumped(pointer))
        return self._stored(pointer, pointer.current)

    def _ids(self) -> list[str]:
        folder = self._place / "versions"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

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


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None

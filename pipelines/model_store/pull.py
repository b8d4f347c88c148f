"""Bringing a model from its source into the store: looked at, fetched, checked, and made current; or nothing changed.

It can end anywhere: what has come is kept in the model's `arriving` folder, and the next pull goes on from there.
"""

import json
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tenuto.errors import Conflict, ModelLoadFailed
from tenuto.pipelines.model_store import disk, names
from tenuto.pipelines.model_store.folder import ModelFolder, StoredModel
from tenuto.pipelines.model_store.records import StoredFile, Version, file_of
from tenuto.pipelines.model_store.sources import (
    ModelSource,
    Offer,
    Progress,
    RemoteFile,
    Tell,
    is_same,
    require_sound,
)
from tenuto.pipelines.model_store.store import ModelStore

logger = logging.getLogger(__name__)

WAIT_S = 3600.0
"""How long a pull waits for another process that fetches the same model."""


def _silent(progress: Progress) -> None:
    del progress


def _any(offer: Offer) -> None:
    del offer


def pull(
    store: ModelStore,
    source: ModelSource,
    name: str | None = None,
    *,
    tell: Tell = _silent,
    accept: Callable[[Offer], None] = _any,
    wait_s: float = WAIT_S,
) -> StoredModel:
    """Make what a source has now the current version of a model. `accept` may refuse it before anything is fetched.

    If it is stored already, its files are read and those that are damaged are fetched again.

    Raises:
        ModelLoadFailed: there is no such model, it broke off, or what came is not what was listed; nothing changed.
        Conflict: another process was changing the model all the time, or the name is that of another source's model.
    """
    is_own_name, name = name is None, names.require(name or source.name)
    with store.changing(name, wait_s) as folder:
        folder.forget_damaged()
        if is_own_name:
            _require_same_source(folder, source)
        return _pulled(store, folder, name, source, tell, accept)


def ensure(
    store: ModelStore,
    source: ModelSource,
    *,
    tell: Tell = _silent,
    accept: Callable[[Offer], None] = _any,
    wait_s: float = WAIT_S,
) -> StoredModel:
    """Give the model that is stored under the name of a source, and fetch it where there is none, or not a whole one.

    Raises: as `pull`.
    """
    name = names.require(source.name)
    found = _whole(store, name)
    if found is not None:
        return found
    with store.changing(name, wait_s) as folder:
        found = _whole(store, name)  # another process may have brought it meanwhile
        if found is not None:
            return found
        _require_same_source(folder, source)
        return _pulled(store, folder, name, source, tell, accept)


def _require_same_source(folder: ModelFolder, source: ModelSource) -> None:
    """Two models of one name by chance are not versions of each other."""
    sources = [each.version.source for each in folder.versions()]
    if sources and source.source not in sources:
        raise Conflict(
            f"{source.name} is stored already, from {sources[-1]}; give this one another name with --as, or the same"
            " one to make it a version of that"
        )


def _whole(store: ModelStore, name: str) -> StoredModel | None:
    found = store.find(name)
    return None if found is None or found.missing() else found


def _pulled(
    store: ModelStore,
    folder: ModelFolder,
    name: str,
    source: ModelSource,
    tell: Tell,
    accept: Callable[[Offer], None],
) -> StoredModel:
    tell(Progress("looking"))
    offer = source.look()
    require_sound(offer)
    accept(offer)
    arrival = _Arrival(store, folder, source, offer, tell)
    there = next((each for each in folder.versions() if offer.is_of(each.version)), None)
    if there is None:
        version = arrival.come()
        tell(Progress("storing"))
        return folder.add(name, version)
    arrival.mend(there)
    tell(Progress("storing"))
    return folder.switch(name, there.version.id)


class _Arrival:
    """The files of one offer on their way."""

    def __init__(self, store: ModelStore, folder: ModelFolder, source: ModelSource, offer: Offer, tell: Tell) -> None:
        self._store, self._folder, self._source, self._offer, self._tell = store, folder, source, offer, tell
        self._partial, self._whole = folder.arriving / "partial", folder.arriving / "files"

    def come(self) -> Version:
        """Have all files whole and checked in the arriving folder."""
        self._begin_anew_where_it_changed()
        there = {file.path: self._there(file) for file in self._offer.files}
        self._require_room([file for file in self._offer.files if there[file.path] is None])
        files = [there[file.path] or self._fetched(file) for file in self._offer.files]
        if self._offer.kind == "gguf":
            self._require_gguf(self._whole / files[0].path)
        shutil.rmtree(self._partial, ignore_errors=True)
        (self._folder.arriving / "offer.json").unlink(missing_ok=True)
        for stray in [path for path in self._whole.rglob("*") if path.is_file()]:
            if file_of(files, stray.relative_to(self._whole).as_posix()) is None:
                stray.unlink()
        return Version(self._offer.kind, tuple(files), self._offer.source, self._offer.revision)

    def mend(self, stored: StoredModel) -> None:
        """Fetch those files of a stored version again that are damaged."""
        for file in self._offer.files:
            listed = file_of(stored.version.files, file.path)
            assert listed is not None
            place = stored.files / file.path
            if not (
                place.is_file() and place.stat().st_size == file.size and self._digest(file, place) == listed.sha256
            ):
                logger.warning("%s of %s is damaged and is fetched again", file.path, stored.reference)
                checked = RemoteFile(file.path, file.size, listed.sha256)
                if self._there(checked) is None:
                    self._require_room([checked])
                    self._fetched(checked)
                disk.move(self._whole / file.path, place)
        shutil.rmtree(self._folder.arriving, ignore_errors=True)

    def _begin_anew_where_it_changed(self) -> None:
        """Whole files of an earlier try go on to serve where their digests are known; else only in the same state."""
        record = self._folder.arriving / "offer.json"
        state = json.dumps([self._offer.source, self._offer.revision])
        try:
            is_same_state = self._offer.revision is not None and record.read_text() == state
        except OSError:
            is_same_state = False
        if not is_same_state:
            for file in self._offer.files:
                if file.sha256 is None:
                    (self._whole / file.path).unlink(missing_ok=True)
            self._folder.arriving.mkdir(parents=True, exist_ok=True)
            disk.write_whole(record, state.encode())

    def _there(self, file: RemoteFile) -> StoredFile | None:
        """The file where it has come already, or is stored under another name; None where it must be fetched."""
        target = self._whole / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_file() and (checked := self._checked(file, target)):
            return checked
        target.unlink(missing_ok=True)
        if self._link(file, target) and (checked := self._checked(file, target)):
            return checked
        target.unlink(missing_ok=True)
        return None

    def _fetched(self, file: RemoteFile) -> StoredFile:
        self._tell(Progress("fetching", file))
        arrived = self._source.bring(
            self._offer, file, self._partial, lambda done: self._tell(Progress("fetching", file, min(done, file.size)))
        )
        checked = self._checked(file, arrived)
        if checked is None:
            what = "size" if arrived.stat().st_size != file.size else "SHA-256"
            shutil.rmtree(self._partial, ignore_errors=True)  # what is under way must not go on from it
            raise ModelLoadFailed(
                f"{file.path} of {self._offer.source} came broken: its {what} is not the listed one; nothing changed"
            )
        arrived.replace(self._whole / file.path)
        return checked

    def _link(self, file: RemoteFile, target: Path) -> bool:
        """Take a file that is stored already, in another version or under another name."""
        if file.sha256 is None:
            return False
        for model in [*self._folder.versions(), *self._store.available()]:
            for stored in model.version.files:
                if is_same(file, StoredFile(file.path, stored.size, stored.sha256), same_state=False):
                    try:
                        os.link(model.files / stored.path, target)
                    except OSError:  # the disk has no links, or the file is gone
                        continue
                    return True
        return False

    def _checked(self, file: RemoteFile, path: Path) -> StoredFile | None:
        """The file with its digest; None where it is not the one that was listed."""
        if path.stat().st_size != file.size:
            return None
        digest = self._digest(file, path)
        return StoredFile(file.path, file.size, digest) if file.sha256 in (None, digest) else None

    def _digest(self, file: RemoteFile, path: Path) -> str:
        done = 0

        def told(count: int) -> None:
            nonlocal done
            done += count
            self._tell(Progress("checking", file, done))

        return disk.sha256(path, told)

    def _require_room(self, files: Sequence[RemoteFile]) -> None:
        """Found out before anything comes, for all that is to come."""
        there = sum(path.stat().st_size for path in self._partial.rglob("*") if path.is_file())
        missing = sum(file.size for file in files) - there
        free = shutil.disk_usage(self._folder.arriving).free
        if self._offer.takes_room and missing > free:
            raise ModelLoadFailed(
                f"{self._offer.source} needs {missing / 1e9:.1f} GB more in {self._store.root};"
                f" {free / 1e9:.1f} are free"
            )

    def _require_gguf(self, path: Path) -> None:
        with path.open("rb") as file:
            if file.read(4) == b"GGUF":
                return
        shutil.rmtree(self._folder.arriving, ignore_errors=True)
        raise ModelLoadFailed(f"{path.name} of {self._offer.source} is not a GGUF file; nothing changed")

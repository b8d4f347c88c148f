"""All stored models: what is there by which name, and the one process at a time that may change a model."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from tenuto.errors import Conflict, ModelLoadFailed, NotFound
from tenuto.pipelines.model_store import disk, names
from tenuto.pipelines.model_store.folder import ModelFolder, StoredModel

logger = logging.getLogger(__name__)

WAIT_S = 10.0


class ModelStore:
    """The models below a folder. Any thread and any process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        """Also where earlier versions of Tenuto have put what they fetched."""
        store = root / "store"
        self._models, self._leaving, self._locks = store / "models", store / "leaving", store / "locks"

    def available(self) -> list[StoredModel]:
        """The current version of each model, by name. One whose records are damaged is left out, with a warning."""
        found = []
        for folder in self._folders():
            try:
                model = folder.current()
            except ModelLoadFailed as error:
                logger.warning("%s", error)
            else:
                found += [] if model is None else [model]
        return found

    def state(self) -> tuple[tuple[str, int, int], ...]:
        """Another value whenever a model has come or gone, or another version of one is current. Reads no file."""
        return tuple(sorted((folder.key, *folder.state()) for folder in self._folders()))

    def unfinished(self) -> list[tuple[str, int]]:
        """The names of the models of which a version is on its way, or was when its pull ended, and what has come of it
        in bytes."""
        return [(folder.name, come) for folder in self._folders() if (come := folder.come())]

    def find(self, model: str) -> StoredModel | None:
        """The stored model that `NAME` or `NAME@VERSION` means; None where nothing of that name is stored.

        Raises:
            NotFound: there is the model, and not this version of it.
            ModelLoadFailed: it can be no name, or its records are damaged.
        """
        wanted = names.reference(model)
        folder = self._folder(wanted.name)
        return folder.current() if wanted.version is None else folder.version(wanted.version)

    def expect(self, model: str) -> StoredModel:
        """The same. Raises NotFound where nothing of that name is stored."""
        found = self.find(model)
        if found is None:
            raise NotFound("stored model", model, [each.name for each in self.available()])
        return found

    def versions(self, name: str) -> list[StoredModel]:
        """All versions of a model, in the order in which they came. Raises NotFound where there is none."""
        self.expect(name)
        return self._folder(name).versions()

    @contextmanager
    def changing(self, name: str, wait_s: float = WAIT_S) -> Iterator[ModelFolder]:
        """Change a model, alone among all processes.

        Raises:
            Conflict: another process has been changing it for `wait_s` seconds.
            ModelLoadFailed: the disk is full, or takes nothing for another reason.
        """
        try:
            with self._locked(name, wait_s):
                disk.free(self._leaving)
                yield self._folder(name)
        except OSError as error:
            place = error.filename or self.root
            raise ModelLoadFailed(
                f"{name} cannot be changed on the disk: {error.strerror or error} ({place}); what was stored is as it"
                " was"
            ) from error

    @contextmanager
    def _locked(self, name: str, wait_s: float) -> Iterator[None]:
        self._locks.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self._locks / f"{names.key(name)}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            logger.info("waiting for another process that is fetching or changing %s", name)
            try:
                lock.acquire(timeout=wait_s)
            except Timeout:
                raise Conflict(f"another process is fetching or changing {name}; try again when it is done") from None
        try:
            yield
        finally:
            lock.release()

    def rollback(self, name: str, to: str | None = None) -> StoredModel:
        """Make the version before the current one current again, or the one that is named.

        Raises:
            NotFound: there is no such model or version.
            Conflict: there was none before it, or another process is changing the model.
        """
        with self.changing(name) as folder:
            self.expect(name)
            return folder.rollback() if to is None else folder.switch(name, self.expect(f"{name}@{to}").version.id)

    def remove(self, model: str) -> list[StoredModel]:
        """Remove a model, or one of its versions that is not current; gives what was there and could be read. With a
        model goes what has come of a version that is not whole.

        Raises:
            NotFound: there is none.
            Conflict: it is current and not the only one, it is loaded somewhere, or another process is changing it.
        """
        wanted = names.reference(model)
        with self.changing(wanted.name) as folder:
            if wanted.version is None:
                if not folder.exists():
                    self.expect(model)
                return folder.remove_all()
            meant, all_of_them = self.expect(model), folder.versions()
            if all_of_them == [meant]:
                return folder.remove_all()
            if meant.is_current:
                raise Conflict(
                    f"{meant.reference} is the current version; `tenuto models rollback {meant.name}` goes back to the"
                    " one before it"
                )
            folder.remove(meant)
            return [meant]

    def has(self, model: str) -> bool:
        """Whether there is anything of a model, be it damaged or not whole. Raises what `find` does for a version."""
        wanted = names.reference(model)
        return self._folder(wanted.name).exists() if wanted.version is None else self.find(model) is not None

    def _folders(self) -> list[ModelFolder]:
        places = sorted(self._models.iterdir()) if self._models.is_dir() else []
        return [ModelFolder(place, self._leaving) for place in places if place.is_dir()]

    def _folder(self, name: str) -> ModelFolder:
        return ModelFolder(self._models / names.key(name), self._leaving)

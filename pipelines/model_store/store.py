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
        for place in sorted(self._models.iterdir()) if self._models.is_dir() else ():
            try:
                model = ModelFolder(place, self._leaving).current()
            except ModelLoadFailed as error:
                logger.warning("%s", error)
            else:
                found += [] if model is None else [model]
        return found

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
        """
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
            disk.free(self._leaving)
            yield self._folder(name)
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
        """Remove a model, or one of its versions that is not current; gives what was there.

        Raises:
            NotFound: there is none.
            Conflict: it is current and not the only one, it is loaded somewhere, or another process is changing it.
        """
        wanted = names.reference(model)
        with self.changing(wanted.name) as folder:
            meant, all_of_them = self.expect(model), folder.versions()
            if wanted.version is None or all_of_them == [meant]:
                folder.remove_all()
                return all_of_them
            if meant.is_current:
                raise Conflict(
                    f"{meant.reference} is the current version; `tenuto models rollback {meant.name}` goes back to the"
                    " one before it"
                )
            folder.remove(meant)
            return [meant]

    def _folder(self, name: str) -> ModelFolder:
        return ModelFolder(self._models / names.key(name), self._leaving)

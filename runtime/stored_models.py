"""The models of the store on this machine, as the owner of models asks for them: those that could be loaded."""

import threading
from collections.abc import Sequence

from tenuto.errors import ModelLoadFailed, NotFound
from tenuto.pipelines import finding
from tenuto.pipelines.kinds import makes
from tenuto.pipelines.model_store import names
from tenuto.runtime.loop.life.loading import Available


class StoredModels:
    """A `Catalogue`. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[str, Available] = {}
        self._read_in: object = None
        """In which state the store was when it was read."""

    def list(self) -> Sequence[Available]:
        """All of them, each in its current version."""
        return [*self._fresh().values()]

    def find(self, id: str) -> Available | None:
        """One of them by its name, or by its name and version: `NAME@VERSION`. A version has one id, by however many of
        its digits it is named.

        Raises:
            ModelLoadFailed: the records of that version are damaged.
        """
        name, at, _ = id.partition("@")
        found = self._fresh().get(name)
        if not at or found is None:
            return found
        try:
            names.reference(id)
        except ModelLoadFailed:  # what stands after the @ names no version
            return None
        try:
            stored = finding.model_store().find(id)
        except NotFound:
            return None
        if stored is None:
            return None
        return Available(stored.reference, stored.reference, found.kind, is_named=False, version=stored.version.id)

    def _fresh(self) -> dict[str, Available]:
        with self._lock:
            state = finding.model_store().state()
            if state != self._read_in:
                before, self._read = self._read, {}
                for stored in finding.available():
                    old = before.get(stored.name)
                    if old is None or old.version != stored.version.id:
                        kind = makes(str(stored.path))
                        old = Available(stored.name, stored.name, kind, is_named=False, version=stored.version.id)
                    self._read[stored.name] = old
                self._read_in = state
            return self._read

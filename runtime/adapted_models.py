"""The LoRA adapters that were named at the start, and the models that each makes of others: `BASE+NAME`."""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tenuto.errors import ConfigurationError, ModelLoadFailed, NotFound
from tenuto.pipelines.adapters import Adapter, fitting
from tenuto.pipelines.finding import is_embedded, located
from tenuto.pipelines.model_store import is_remote
from tenuto.runtime.loop.life.loading import Available

logger = logging.getLogger(__name__)

MARK = "+"


class Adapters:
    """Which of them fits which model is read from the heads of files, once for each version of a model, in a thread.

    Any thread. Nothing here waits for the disk, but for `check`.
    """

    def __init__(self, named: Mapping[str, Adapter]) -> None:
        self._named = dict(named)
        self._lock = threading.Lock()
        self._misfits: dict[tuple[str, str], Mapping[str, str]] = {}
        """Of each source and version that has been looked at, why adapters do not fit, by their names."""
        self._looking: set[tuple[str, str]] = set()

    def __len__(self) -> int:
        return len(self._named)

    def get(self, name: str) -> Adapter | None:
        """One of them, for what `Available` calls its adapter; none for a model without."""
        return self._named.get(name)

    def split(self, model: str) -> tuple[str, str]:
        """What `--model` takes for a base, and the name of the adapter behind it; empty where there is none."""
        base, mark, name = model.rpartition(MARK)
        return (base, name) if mark and name in self._named else (model, "")

    def of(self, base: Available) -> Sequence[Available]:
        """The models that adapters make of this one. A model that has just come is looked at meanwhile."""
        misfits = self._known_misfits(base) if self._named else None
        return [] if misfits is None else [_adapted(base, name) for name in self._named if name not in misfits]

    def find(self, base: Available, name: str) -> Available | None:
        """One of these; also where it has not been found out yet whether it fits: its load says so."""
        if name not in self._named or base.adapter or name in (self._known_misfits(base) or {}):
            return None
        return _adapted(base, name)

    def check(self, bases: Sequence[Available]) -> None:
        """Look at all of these. Reads the disk.

        Raises:
            ConfigurationError: an adapter fits none of them; the text says why.
        """
        if not self._named:
            return
        bases = [base for base in bases if not base.adapter]
        found = [self._look(base) for base in bases]
        for name in self._named:
            if found and all(name in misfits for misfits in found):
                raise ConfigurationError(f"the adapter {name!r} fits no model here: {found[0][name]}")

    def _known_misfits(self, base: Available) -> Mapping[str, str] | None:
        """None: it is not known yet; then somebody begins to look."""
        version = (base.source, base.version)
        with self._lock:
            known = self._misfits.get(version)
            if known is not None or version in self._looking:
                return known
            self._looking.add(version)
        threading.Thread(target=self._look, args=(base,), name="adapters", daemon=True).start()
        return None

    def _look(self, base: Available) -> Mapping[str, str]:
        found = {name: why for name, adapter in self._named.items() if (why := misfit(base.source, adapter))}
        with self._lock:
            self._misfits[base.source, base.version] = found
            self._looking.discard((base.source, base.version))
        return found


def misfit(model: str, adapter: Adapter) -> str | None:
    """Why an adapter does not fit what `--model` names, in words; None where it fits, or where that is told by the load
    alone, as what is somewhere else has to be fetched first. Reads the disk."""
    if is_remote(model):
        return None
    try:
        source = located("embedded:gguf" if is_embedded(model) and model != "embedded:mlx" else model, None)
        if source.kind != "gguf":
            return f"{model} is no GGUF model, and adapters are for those"
        fitting(adapter, source.path)
    except (ModelLoadFailed, NotFound, OSError) as error:
        return str(error)
    return None


def _adapted(base: Available, name: str) -> Available:
    return replace(base, id=f"{base.id}{MARK}{name}", base=base.id, adapter=name, is_named=False)

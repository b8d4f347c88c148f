"""The table of all models: which there are, which are loaded, where each stands. It changes nothing of them."""

import time
from collections.abc import Sequence

from tenuto.errors import NotFound
from tenuto.runtime.loop.life.accountant import Accountant
from tenuto.runtime.loop.life.entry import Entry
from tenuto.runtime.loop.life.loading import Adapting, Available, Catalogue, LifeSettings, Loaded
from tenuto.runtime.loop.life.states import ModelState
from tenuto.runtime.loop.model import AnyModel, Model
from tenuto.runtime.loop.shelf import Holdings, Known, Standing


class Table:
    """Those that were named at the start, then those of a catalogue. Its methods may be called from any thread."""

    def __init__(
        self,
        available: Sequence[Available],
        settings: LifeSettings,
        catalogue: Catalogue | None,
        adapters: Adapting | None = None,
    ) -> None:
        self._adapters = adapters
        self.settings = settings
        self.accountant = Accountant(settings.budget)
        self._catalogue = catalogue
        self._entries = {one.id: self._made(one) for one in available}

    def known(self) -> Sequence[Known]:
        """All models."""
        own = self._own()
        more = () if self._catalogue is None else self._catalogue.list()
        found = [*own.values(), *(one for one in more if one.id not in own)]
        if self._adapters is not None:
            adapted = [one for base in found if not base.adapter for one in self._adapters.of(base)]
            found += [one for one in adapted if one.id not in own]
        return [_known(one) for one in found]

    def named(self) -> Sequence[Known]:
        """Those that were named at the start, of which no catalogue has any and no adapter makes one."""
        return [_known(one) for one in self._own().values() if one.is_named]

    def _own(self) -> dict[str, Available]:
        return {id: entry.available for id, entry in list(self._entries.items()) if not _follows(entry)}

    def find(self, id: str) -> Known | None:
        """One of them."""
        found = self._available(id)
        return None if found is None else _known(found)

    def _available(self, id: str) -> Available | None:
        """What would be loaded, or is. A catalogue may have another version of what it had, or have it no more."""
        return self._unadapted(id) or self._adapted(id)

    def _adapted(self, id: str) -> Available | None:
        name, mark, adapter = id.rpartition("+")
        base = self._unadapted(name) if mark and self._adapters is not None else None
        return None if base is None or self._adapters is None else self._adapters.find(base, adapter)

    def _unadapted(self, id: str) -> Available | None:
        entry = self._entries.get(id)
        if entry is not None and not _follows(entry):
            return entry.available
        return None if self._catalogue is None else self._catalogue.find(id)

    def loaded(self, id: str) -> AnyModel | None:
        """A model that is loaded and takes requests."""
        entry = self._entries.get(id)
        if entry is None or entry.state is not ModelState.LOADED or entry.loaded is None:
            return None
        return entry.loaded.model

    def living(self) -> Sequence[AnyModel]:
        """All versions that have an engine, also those that take no requests any more; not those that are freed now."""
        versions = [one for entry in list(self._entries.values()) for one in (entry.loaded, *entry.retired)]
        return [one.model for one in versions if one is not None]

    @property
    def is_freeing(self) -> bool:
        """Whether engines are being ended."""
        return any(entry.leaving for entry in list(self._entries.values()))

    def of_run(self, run_id: str, model: Model) -> Model:
        """The version with which a run goes on that waits."""
        entry = self._entries.get(model.id)
        for old in () if entry is None else entry.retired:
            uses = old.model.uses
            if isinstance(old.model, Model) and uses.closed is None and run_id in uses.waits:
                return old.model
        return model

    def forget_run(self, run_id: str, id: str) -> None:
        """A run waits no more."""
        entry = self._entries.get(id)
        for version in () if entry is None else _versions(entry):
            version.model.uses.waits.discard(run_id)

    def standings(self) -> list[Standing]:
        """Where each model stands, in the order of `known`. Event-loop thread only."""
        return [self.standing(known.id) for known in self.known()]

    def standing(self, id: str) -> Standing:
        """Where one stands. Event-loop thread only. Raises NotFound."""
        entry = self._entries.get(id)
        available = self._found(id) if entry is None else self._available(id) or entry.available
        entry, known = entry or self._made(available), _known(available)
        return Standing(
            known.id,
            known.kind,
            entry.state.value,
            None if entry.loaded is None else entry.loaded.model,
            sum(memory.nbytes for memory in entry.memory()),
            entry.is_pinned,
            entry.in_use,
            len(entry.waiters),
            entry.idle_s(time.monotonic()),
            entry.keep_s,
            entry.doing if entry.state is ModelState.LOADING else "",
            None if entry.error is None else str(entry.error),
            available.version,
            len(entry.retired),
            available.base,
        )

    def holdings(self) -> Holdings:
        """What all of them hold. Event-loop thread only."""
        accountant, entries = self.accountant, self._entries
        return Holdings(
            accountant.used,
            accountant.high_water,
            accountant.budget,
            {id: entry.loads for id, entry in entries.items()},
            {id: entry.unloads for id, entry in entries.items()},
        )

    def _made(self, available: Available) -> Entry:
        return Entry(available, keep_s=self.settings.keep_s, is_pinned=available.id in self.settings.pins)

    def _entry(self, id: str) -> Entry:
        """The entry of a model; one of the catalogue gets one now, or its present version. Raises NotFound."""
        found = self._found(id)
        entry = self._entries.setdefault(found.id, self._made(found))
        if _follows(entry):
            entry.follow(found)
        return entry

    def _found(self, id: str) -> Available:
        found = self._available(id)
        if found is None:
            raise NotFound("model", id, [known.id for known in self.known()])
        return found


def _follows(entry: Entry) -> bool:
    """Whether a catalogue says what is loaded next: where it is not loaded, and nothing else was put in its place."""
    available, rests = entry.available, entry.state in (ModelState.AVAILABLE, ModelState.FAILED)
    return rests and not available.is_named and available.source == entry.named


def _versions(entry: Entry) -> list[Loaded]:
    return [*entry.retired, *([] if entry.loaded is None else [entry.loaded])]


def _known(available: Available) -> Known:
    return Known(available.id, available.kind, available.is_named)

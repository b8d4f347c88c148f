"""What the files of stored models say of them, for those who ask without loading one. Reads the disk."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines import finding
from tenuto.pipelines.model_facts import ModelFacts, read_facts
from tenuto.pipelines.model_store import StoredModel

_MOST_KEPT = 256


@dataclass(frozen=True, slots=True)
class StoredCard:
    """A stored model in its current version, and what its files say; None where they are damaged or not supported."""

    stored: StoredModel
    facts: ModelFacts | None


class StoredFacts:
    """The cards of stored models. Any thread; the files of a version are read once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, ModelFacts | None] = OrderedDict()

    def card(self, id: str) -> StoredCard | None:
        """One model; None where none of that name is stored. Raises ModelLoadFailed where its records are damaged."""
        source = finding.resolve(id)
        return None if source is None or source.stored is None else StoredCard(source.stored, self._of(source.stored))

    def cards(self, ids: Sequence[str]) -> dict[str, StoredCard]:
        """Those of these that are stored and whole."""
        found = {}
        for id in ids:
            try:
                card = self.card(id)
            except ModelLoadFailed:
                continue
            if card is not None:
                found[id] = card
        return found

    def _of(self, stored: StoredModel) -> ModelFacts | None:
        key = str(stored.folder)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        try:
            facts = read_facts(stored.kind, stored.path)
        except ModelLoadFailed:
            facts = None
        with self._lock:
            self._kept[key] = facts
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return facts

"""Caches of sequences on disk: a file each, which a later process restores, or ignores where it is not whole."""

from tenuto.runtime.engine.snapshots.figures import Figures, Refusal
from tenuto.runtime.engine.snapshots.file import Flaw
from tenuto.runtime.engine.snapshots.folder import expire, forget
from tenuto.runtime.engine.snapshots.index import Found
from tenuto.runtime.engine.snapshots.state import Limits, Restored
from tenuto.runtime.engine.snapshots.store import SnapshotStore

__all__ = ["Figures", "Flaw", "Found", "Limits", "Refusal", "Restored", "SnapshotStore", "expire", "forget"]

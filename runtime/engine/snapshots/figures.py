"""What became of snapshots, counted since the store was opened."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tenuto.runtime.engine.snapshots.file import Flaw


class Refusal(StrEnum):
    """Why a snapshot was not written."""

    QUEUE = "queue"
    """Too many bytes waited to be written: it found no room among them, or gave way to another."""
    BUDGET = "budget"
    """It is larger than what may give way to it on disk."""
    DISK = "disk"
    """The disk has too little room left."""
    FAILED = "failed"
    """The system could not write it."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one store. The first four are what there is now, all others count since it was opened."""

    files: int
    nbytes: int
    waiting: int
    waiting_bytes: int
    kept: int
    kept_bytes: int
    restored: int
    restored_bytes: int
    gave_way: int
    """For others, as the budget was full."""
    expired: int
    refused: Mapping[Refusal, int]
    ignored: Mapping[Flaw, int]
    """Files that were not used, and removed."""

"""What an engine counts of its caches: moves, what was not computed thanks to them, and what became of snapshots.

A count has a family and a label, and its place in a tuple, so that a status carries all of them as numbers.
"""

from collections.abc import Iterator
from enum import StrEnum

from tenuto.runtime.engine.snapshots import Figures, Flaw, Refusal


class Family(StrEnum):
    """What is counted, by label."""

    MOVES = "moves"
    """Caches that went from one place to another."""
    MOVED_BYTES = "moved_bytes"
    SAVED_TOKENS = "saved_tokens"
    """Tokens of prompts that were not computed, by what had their cache."""
    SNAPSHOTS = "snapshots"
    SNAPSHOT_BYTES = "snapshot_bytes"
    REFUSED = "snapshots_refused"
    """By why they were not written."""
    IGNORED = "snapshots_ignored"
    """By why they were not used."""


class Move(StrEnum):
    """From where to where. What is copied to the disk and stays is a snapshot that is kept, and no move."""

    DEVICE_HOST = "device_host"
    HOST_DEVICE = "host_device"
    DEVICE_DISK = "device_disk"
    HOST_DISK = "host_disk"
    DISK_HOST = "disk_host"
    DROPPED = "dropped"


class Saver(StrEnum):
    """What had the cache of tokens that were not computed."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"
    SHARED = "shared"
    """Another sequence."""


_SNAPSHOTS = ("kept", "restored", "gave_way", "expired")
COUNTED: tuple[tuple[Family, str], ...] = (
    *((Family.MOVES, move.value) for move in Move),
    *((Family.MOVED_BYTES, move.value) for move in Move),
    *((Family.SAVED_TOKENS, saver.value) for saver in Saver),
    *((Family.SNAPSHOTS, name) for name in _SNAPSHOTS),
    *((Family.SNAPSHOT_BYTES, name) for name in _SNAPSHOTS[:2]),
    *((Family.REFUSED, refusal.value) for refusal in Refusal),
    *((Family.IGNORED, flaw.value) for flaw in Flaw),
)
"""What each number of a `Counts` is."""
_AT = {counted: place for place, counted in enumerate(COUNTED)}
_OWN = _AT[Family.SNAPSHOTS, "kept"]
"""So many are counted by the engine itself, those after them by its store of snapshots."""

Counts = tuple[int, ...]
"""A number for each of `COUNTED`."""
NOTHING: Counts = (0,) * len(COUNTED)


class Tally:
    """The counts of one engine. Engine thread only."""

    def __init__(self) -> None:
        self._own = [0] * _OWN
        self._snapshots: Figures | None = None
        self._told = NOTHING
        self._is_told = True

    def moved(self, move: Move, nbytes: int) -> None:
        """A cache of so many bytes has gone from one place to another."""
        self._own[_AT[Family.MOVES, move]] += 1
        self._own[_AT[Family.MOVED_BYTES, move]] += nbytes
        self._is_told = False

    def saved(self, saver: Saver, tokens: int) -> None:
        """So many tokens were not computed."""
        if tokens:
            self._own[_AT[Family.SAVED_TOKENS, saver]] += tokens
            self._is_told = False

    def counts(self, snapshots: Figures | None) -> Counts:
        """All of it, the same object while nothing has changed."""
        if not (self._is_told and snapshots is self._snapshots):
            self._told = (*self._own, *_of_store(snapshots))
            self._snapshots, self._is_told = snapshots, True
        return self._told


def _of_store(figures: Figures | None) -> Iterator[int]:
    if figures is None:
        yield from NOTHING[_OWN:]
        return
    yield from (figures.kept, figures.restored, figures.gave_way, figures.expired)
    yield from (figures.kept_bytes, figures.restored_bytes)
    yield from (figures.refused.get(refusal, 0) for refusal in Refusal)
    yield from (figures.ignored.get(flaw, 0) for flaw in Flaw)


def together(one: Counts, other: Counts) -> Counts:
    """What both have counted."""
    return tuple(map(sum, zip(one, other, strict=True))) if any(one) else other


def families(counts: Counts) -> dict[Family, dict[str, int]]:
    """The numbers by their families and labels."""
    found: dict[Family, dict[str, int]] = {family: {} for family in Family}
    for (family, label), number in zip(COUNTED, counts, strict=True):
        found[family][label] = number
    return found

"""The caches in host memory, and the rooms that are kept for those to come. Engine thread only.

A room is taken before there is a cache for it, so that the budget holds also while one is copied or read. Principals
share it as every table; which of one's caches gives way first is for `order` to say.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tenuto.errors import Overloaded
from tenuto.pipelines.backend import Snapshot
from tenuto.runtime.engine.messages import Residency
from tenuto.runtime.engine.sequence import Sequence
from tenuto.sessions.shares import Shares
from tenuto.sessions.tokens import Tokens


@dataclass(frozen=True, slots=True)
class HostCopy:
    """A cache in host memory, and the tokens that it is the cache of."""

    sequence: Sequence
    tokens: Tokens
    snapshot: Snapshot
    came_from: Residency = Residency.HOST
    kept_as: str = ""
    """What it is called on the disk, where it was read from there."""


@dataclass(eq=False, slots=True)
class HostRoom:
    """A place in host memory, of a sequence; without a `copy` while that is on its way there."""

    sequence: Sequence
    nbytes: int
    copy: HostCopy | None = None


class HostMemory:
    """`order` gives rooms with copies in the order in which they give way. It must hold no way back to here: what is in
    a ring is not freed at once."""

    def __init__(self, budget_bytes: int, order: Callable[[Iterable[HostRoom]], Iterable[HostRoom]]) -> None:
        self._rooms: dict[str, HostRoom] = {}
        placed = self._placed = set[str]()
        self._shares: Shares[HostRoom] = Shares(
            "host memory", budget_bytes, lambda room: room.copy is not None and room.sequence.id not in placed, order
        )
        self.peak_bytes = 0

    @property
    def used(self) -> int:
        """Bytes of all rooms."""
        return self._shares.used

    def get(self, id: str) -> HostCopy | None:
        """A sequence's cache."""
        room = self._rooms.get(id)
        return None if room is None else room.copy

    def hold(self, ids: Iterable[str]) -> None:
        """Let the caches of these, alone, give way to none: they are being placed."""
        self._placed.clear()
        self._placed.update(ids)

    def take(self, sequence: Sequence, nbytes: int) -> tuple[HostRoom, list[HostCopy]] | None:
        """A room of so many bytes, and the caches that gave way for it; None where there is no making it."""
        room = HostRoom(sequence, nbytes)
        try:
            gone = self._shares.admit(room, sequence.principal, 0.0, 0.0, nbytes)
        except Overloaded:
            return None
        copies = []
        for other in gone:
            assert other.copy is not None, "only caches give way"
            copies.append(other.copy)
            del self._rooms[other.sequence.id]
        self.peak_bytes = max(self.peak_bytes, self.used)
        return room, copies

    def give_back(self, room: HostRoom) -> None:
        """There will be no cache in a room."""
        self._shares.remove(room)

    def fill(self, room: HostRoom, copy: HostCopy) -> None:
        """The cache of a room has come; it is no larger than the room, and takes no more than it needs."""
        assert copy.snapshot.nbytes <= room.nbytes, "a room is large enough"
        self.drop(room.sequence.id)
        room.nbytes, room.copy = copy.snapshot.nbytes, copy
        self._shares.settle(room, room.sequence.principal, room.nbytes)
        self._rooms[room.sequence.id] = room

    def drop(self, id: str) -> None:
        """Free a sequence's cache, where it has one here."""
        room = self._rooms.pop(id, None)
        if room is not None:
            self._shares.remove(room)

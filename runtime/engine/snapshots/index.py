"""What a store has: the snapshots on disk, and those that wait to be written. No I/O, no lock: the store has one."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from tenuto.errors import Overloaded
from tenuto.pipelines.backend import Snapshot
from tenuto.runtime.engine.prefixes import Prefixes
from tenuto.sessions.shares import Shares
from tenuto.sessions.tokens import Tokens

_MOST_FILES = 1 << 14
_MOST_WAITING = 256
_LOOKS = 16


@dataclass(frozen=True, slots=True)
class Found:
    """A sequence's snapshot is of `held` tokens, of which the first `common` are those that were asked for.

    A cache that cannot be cut back serves only where both are the same. `nbytes` of the cache.
    """

    sequence: str
    held: int
    common: int
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A snapshot on disk. Its tokens do not change."""

    sequence: str
    principal: str
    tokens: Tokens
    nbytes: int
    size: int
    """Of its file."""
    written_at: float


class Index:
    """The snapshots on disk and, while it is written, one more, which takes room beside the one that it replaces."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._entries: dict[str, Entry] = {}
        self._prefixes: Prefixes[str] = Prefixes()
        self._shares: Shares[Entry] = Shares("the disk's budget", budget_bytes, self._is_written)
        self.nbytes = 0
        """What the files of all entries take."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, sequence: str) -> bool:
        return sequence in self._entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, sequence: str) -> Entry | None:
        """A sequence's."""
        return self._entries.get(sequence)

    def alike(self, principal: str, tokens: Tokens, *, whole: bool, but: str) -> tuple[Entry, int] | None:
        """Of a principal's, `but` for one, that which begins most like these tokens, with how many of them; of such the
        smallest of a few. `whole`: one that has nothing else."""
        best: tuple[Entry, int] | None = None
        for looked, (common, name) in enumerate(self._prefixes.matches(principal, tokens.ids(), whole=whole)):
            if best is not None and (common < best[1] or looked >= _LOOKS):
                break
            entry = self._entries[name]
            if name != but and (best is None or entry.nbytes < best[0].nbytes):
                best = entry, common
        return best

    def touch(self, entry: Entry) -> None:
        """It was used just now."""
        self._shares.touch(entry)

    def admit(self, entry: Entry) -> list[Entry]:
        """Make room for one that is about to be written; those that gave way are to be removed from the disk.

        Where there is not room for it beside the one that it replaces, that one goes first.

        Raises:
            Overloaded: it is larger than what may give way to it; nothing has changed.
        """
        weight = self._weight(entry)
        old = self._entries.get(entry.sequence)
        if old is not None and self._shares.used + weight <= self._budget:
            old = None
        if old is not None:
            self._shares.remove(old)
        try:
            gone = self._shares.admit(entry, entry.principal, 0.0, 0.0, weight)
        except Overloaded:
            if old is not None:
                self._shares.settle(old, old.principal, self._weight(old))
            raise
        if old is not None:
            gone.append(old)
        for other in gone:
            self._take_out(other)
        return gone

    def settle(self, entry: Entry) -> None:
        """One that was admitted is on the disk now, in place of what there was."""
        old = self._entries.get(entry.sequence)
        if old is not None:
            self._shares.remove(old)
            self._take_out(old)
        self._entries[entry.sequence] = entry
        self._prefixes.put(entry.principal, entry.sequence, entry.tokens.ids())
        self.nbytes += entry.size

    def remove(self, entry: Entry) -> None:
        """Take an entry out, or one that was admitted and could not be written."""
        self._shares.remove(entry)
        if self._is_written(entry):
            self._take_out(entry)

    def _take_out(self, entry: Entry) -> None:
        del self._entries[entry.sequence]
        self._prefixes.remove(entry.sequence)
        self.nbytes -= entry.size

    def _weight(self, entry: Entry) -> int:
        return max(entry.size, self._budget // _MOST_FILES)  # so there are never more than so many

    def _is_written(self, entry: Entry) -> bool:
        return self._entries.get(entry.sequence) is entry


@dataclass(slots=True, eq=False)
class Waiting:
    """A snapshot that waits to be written, or is being written."""

    sequence: str
    principal: str
    tokens: Tokens
    snapshot: Snapshot
    is_abandoned: bool = False
    """Its sequence was dropped, or nobody waits for it any more."""


class WaitingSnapshots:
    """Snapshots in the order in which they came, one a sequence, within so many bytes; beside them one that is being
    written, which counts until it is done."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._queue: OrderedDict[str, Waiting] = OrderedDict()
        self._shares: Shares[Waiting] = Shares("the queue of snapshots", most_bytes, self._is_queued)
        self.at_work: Waiting | None = None

    def __len__(self) -> int:
        return len(self._queue) + (self.at_work is not None)

    @property
    def nbytes(self) -> int:
        """What they take."""
        at_work = () if self.at_work is None else (self.at_work,)
        return sum(_size(one) for one in (*self._queue.values(), *at_work))

    def put(self, waiting: Waiting) -> int:
        """Queue one in place of its sequence's that waits; gives how many others gave way for it.

        Raises:
            Overloaded: there is no room for it; nothing has changed.
        """
        old = self._queue.get(waiting.sequence)
        if old is not None:
            self._shares.remove(old)
        try:
            gone = self._shares.admit(waiting, waiting.principal, 0.0, 0.0, self._weight(waiting))
        except Overloaded:
            if old is not None:
                self._shares.settle(old, old.principal, self._weight(old))
            raise
        for other in gone:
            del self._queue[other.sequence]
        self._queue[waiting.sequence] = waiting
        return len(gone)

    def take(self) -> Waiting | None:
        """The next is being written now."""
        if self._queue:
            _, self.at_work = self._queue.popitem(last=False)
        return self.at_work

    def done(self) -> None:
        """It is written, or it will not be."""
        if self.at_work is not None:
            self._shares.remove(self.at_work)
            self.at_work = None

    def drop(self, sequence: str) -> None:
        """Forget a sequence's, and let go of the one that is being written."""
        queued = self._queue.pop(sequence, None)
        if queued is not None:
            self._shares.remove(queued)
        if self.at_work is not None and self.at_work.sequence == sequence:
            self.at_work.is_abandoned = True

    def clear(self) -> None:
        """Forget all."""
        for sequence in list(self._queue):
            self.drop(sequence)
        if self.at_work is not None:
            self.at_work.is_abandoned = True

    def _weight(self, waiting: Waiting) -> int:
        return max(_size(waiting), self._most // _MOST_WAITING)

    def _is_queued(self, waiting: Waiting) -> bool:
        return self._queue.get(waiting.sequence) is waiting


def _size(waiting: Waiting) -> int:
    return waiting.snapshot.nbytes + 4 * len(waiting.tokens)

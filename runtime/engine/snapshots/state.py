"""What the threads of a store share, and the one lock that guards it. It is never held while the disk is touched."""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from tenuto.pipelines.backend import Snapshot
from tenuto.runtime.engine.snapshots.figures import Figures, Refusal
from tenuto.runtime.engine.snapshots.file import Flaw, Header, Unusable
from tenuto.runtime.engine.snapshots.folder import stem_of
from tenuto.runtime.engine.snapshots.index import Entry, Index, WaitingSnapshots
from tenuto.sessions.tokens import Tokens

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a store may take: bytes on disk, bytes that wait in memory, and seconds that a snapshot is kept.

    `spare_bytes` of the disk are left to others.
    """

    budget_bytes: int
    queue_bytes: int
    keep_s: float
    spare_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Restored:
    """A cache that was read back, and the tokens that it is the cache of."""

    tokens: Tokens
    snapshot: Snapshot


@dataclass(slots=True)
class Reading:
    """A snapshot that somebody wants back."""

    sequence: str
    principal: str
    done: Future[Restored | None]
    is_dropped: bool = False


class State:
    """All but `fingerprint` and `limits` is touched under `changed`, whose lock a thread may take twice."""

    def __init__(self, fingerprint: str, limits: Limits) -> None:
        self.fingerprint, self.limits = fingerprint, limits
        self.changed = threading.Condition()
        self.index = Index(limits.budget_bytes)
        self.waiting = WaitingSnapshots(limits.queue_bytes)
        self.removals: dict[str, list[Future[None]]] = {}
        """Sequences whose files are to be removed, and who waits; where nobody does, unless there is a new one."""
        self.tried: set[str] = set()
        """Sequences whose snapshots were handed out, and are marked on the disk."""
        self.trusted: set[str] = set()
        """Those of them that have served since, whose marks are to be taken away."""
        self.wake_writer: Callable[[], None] = lambda: None
        self.reading: Reading | None = None
        self.is_closing = self.is_abandoned = self.has_ended = self.has_looked = False
        self.counts: Counter[str] = Counter()
        self.refused: Counter[Refusal] = Counter()
        self.ignored: Counter[Flaw] = Counter()

    def entry(self, sequence: str, principal: str) -> Entry | None:
        """A sequence's snapshot; one that is somebody else's is let go of."""
        entry = self.index.get(sequence)
        if entry is not None and entry.principal != principal:
            self.ignore(stem_of(sequence), Flaw.PRINCIPAL)
            self.discard(entry)
            return None
        return entry

    def discard(self, entry: Entry) -> None:
        """Let the writer remove one that may not be used. One that has been replaced meanwhile is gone already."""
        with self.changed:
            if self.index.get(entry.sequence) is entry:
                self.index.remove(entry)
                self.removals.setdefault(entry.sequence, [])
                self.changed.notify_all()
        self.wake_writer()

    def ignore(self, stem: str, flaw: Flaw) -> None:
        """Count a file that may not be used."""
        logger.warning("the snapshot %s is not used (%s)", stem, flaw.value)
        with self.changed:
            self.ignored[flaw] += 1

    def check(self, header: Header, sequence: str, principal: str) -> None:
        """Raises Unusable where a file is of something else."""
        if header.facts.fingerprint != self.fingerprint:
            raise Unusable(Flaw.MODEL)
        if header.facts.sequence != sequence:
            raise Unusable(Flaw.SEQUENCE)
        if header.facts.principal != principal:
            raise Unusable(Flaw.PRINCIPAL)

    def figures(self) -> Figures:
        """What became of snapshots so far."""
        with self.changed:
            return Figures(
                files=len(self.index),
                nbytes=self.index.nbytes,
                waiting=len(self.waiting),
                waiting_bytes=self.waiting.nbytes,
                kept=self.counts["kept"],
                kept_bytes=self.counts["kept_bytes"],
                restored=self.counts["restored"],
                restored_bytes=self.counts["restored_bytes"],
                gave_way=self.counts["gave_way"],
                expired=self.counts["expired"],
                refused=+self.refused,
                ignored=+self.ignored,
            )

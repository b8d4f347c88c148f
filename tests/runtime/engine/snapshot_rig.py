"""Stores of snapshots whose threads are driven step by step, and snapshots that tell whether they are whole."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tenuto.pipelines.backend import Snapshot
from tenuto.runtime.engine.snapshots import Limits, Restored, SnapshotStore
from tenuto.runtime.engine.snapshots.ownership import Ownership
from tenuto.sessions.tokens import Tokens
from tenuto.threads import Body, Next

FINGERPRINT = "model 1"
ROOMY = Limits(budget_bytes=1 << 40, queue_bytes=1 << 40, keep_s=1e9, spare_bytes=0)


@dataclass
class Steps:
    """What stands for a thread: it works when it is told to."""

    body: Body
    has_ended: bool = False

    def wake(self) -> None:
        pass

    def is_alive(self) -> bool:
        return not self.has_ended

    def join(self, timeout: float) -> None:
        self.run()

    def step(self) -> bool:
        """Whether there was something to do."""
        following = Next.ENDED if self.has_ended else self.body(False)
        self.has_ended = following is Next.ENDED
        return following is Next.MORE

    def run(self) -> None:
        while self.step():
            pass


class Nobodys:
    """A folder that each store takes for its own: the one before is taken to have been killed."""

    def __init__(self, folder: Path) -> None:
        pass

    def take(self) -> bool:
        return True

    def give(self) -> None:
        pass


@dataclass
class Clock:
    now: float = 1e9

    def __call__(self) -> float:
        return self.now


@dataclass
class House:
    """A store whose threads stand still until they are told to work."""

    root: Path
    limits: Limits = ROOMY
    fingerprint: str = FINGERPRINT
    clock: Clock = field(default_factory=Clock)
    owned: Callable[[Path], Ownership] = Nobodys

    def __post_init__(self) -> None:
        self.threads: dict[str, Steps] = {}
        self.store = SnapshotStore(self.root, self.fingerprint, self.limits, self._drive, self.clock, self.owned)

    def _drive(self, name: str, body: Body) -> Steps:
        self.threads[name] = Steps(body)
        return self.threads[name]

    @property
    def writer(self) -> Steps:
        return self.threads["tenuto-snapshots"]

    def run(self) -> None:
        for thread in self.threads.values():
            thread.run()
        self.writer.run()  # what the reader has found to be of no use

    def keep(self, sequence: str, tokens: int = 20, nbytes: int = 100, principal: str = "alice") -> Tokens:
        """Keep a snapshot, and let it be written."""
        given = tokens_of(sequence, tokens)
        assert self.store.keep(sequence, principal, given, snapshot_of(given, nbytes))
        self.run()
        return given

    def read(self, sequence: str, principal: str = "alice", *, serves: bool = True) -> Restored | None:
        reading = self.store.read(sequence, principal)
        self.run()
        if serves:
            self.store.trust(sequence)
            self.run()
        return reading.result(0)

    def holds(self, sequence: str, principal: str = "alice") -> bool:
        """Whether a whole snapshot of it can be had."""
        restored = self.read(sequence, principal)
        assert restored is None or is_whole(restored)
        return restored is not None

    def drop(self, sequence: str) -> None:
        dropped = self.store.drop(sequence)
        self.run()
        dropped.result(0)

    def again(self, **changed: object) -> "House":
        """What the next process finds."""
        settings = {"limits": self.limits, "fingerprint": self.fingerprint, "clock": self.clock, **changed}
        house = House(self.root, **settings)  # type: ignore[arg-type]
        house.run()
        return house


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() or path.is_symlink())


def tokens_of(sequence: str, count: int = 20) -> Tokens:
    start = zlib.crc32(sequence.encode()) % 1000
    return Tokens(range(start, start + count))


def snapshot_of(tokens: Tokens, nbytes: int = 100) -> Snapshot:
    """One whose bytes follow from its tokens."""
    data = np.random.default_rng(list(tokens)).integers(0, 256, nbytes, np.uint8)
    return Snapshot(len(tokens), nbytes, data, ((3, 7, 2),))


def is_whole(restored: Restored) -> bool:
    expected = snapshot_of(restored.tokens, restored.snapshot.nbytes)
    same = bytes(restored.snapshot.data) == bytes(expected.data)
    return same and (restored.snapshot.tokens, restored.snapshot.extents) == (expected.tokens, expected.extents)


Interfere = Callable[[], None]

"""The snapshots that one model's sequences have on disk: kept, found, read back and dropped.

Two threads of its own: one makes every change of the folder, the other reads caches back. Every method but `close` may
be called on any thread and waits for neither, nor for the disk. What a file holds is never trusted: one that is not
whole, or not of this model, sequence and principal, is counted, removed and otherwise as if it were not there.

A dropped sequence: what waits is forgotten at once, what is being written is let go of between two pieces, and the
future is done once the file is gone. Removals come before writes, so no file of it can appear later but for a snapshot
that was given after the drop.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from tenuto.errors import Overloaded, ShuttingDown
from tenuto.pipelines.backend import Snapshot
from tenuto.runtime.engine.snapshots.figures import Figures, Refusal
from tenuto.runtime.engine.snapshots.file import Flaw
from tenuto.runtime.engine.snapshots.folder import Folder, stem_of
from tenuto.runtime.engine.snapshots.index import Found, Waiting
from tenuto.runtime.engine.snapshots.ownership import FolderLock, Ownership
from tenuto.runtime.engine.snapshots.reader import Reader
from tenuto.runtime.engine.snapshots.state import Limits, Reading, Restored, State
from tenuto.runtime.engine.snapshots.writer import Writer
from tenuto.sessions.tokens import Tokens
from tenuto.threads import Drive, Thread

_LET_GO_S = 5.0


class SnapshotStore:
    """Of one folder. `fingerprint` names all that a cache depends on: the model, the type and layout of its cache, the
    library that made it. As long as another store has the folder, such as that of a version that is being replaced, it
    finds nothing there, and what it keeps waits.

    `now` is in seconds since 1970. `drive` is what stands for the threads, and `owned` for the folder's lock.

    Raises:
        ConfigurationError: the folder is open to others, and that cannot be changed.
        OSError: it cannot be made.
    """

    def __init__(
        self,
        root: Path,
        fingerprint: str,
        limits: Limits,
        drive: Drive = Thread,
        now: Callable[[], float] = time.time,
        owned: Callable[[Path], Ownership] = FolderLock,
    ) -> None:
        folder = Folder(root, fingerprint)
        self._state = State(fingerprint, limits)
        reader = Reader(self._state, folder)
        self._readings = reader.readings
        self._writer = drive("tenuto-snapshots", Writer(self._state, folder, now, owned(folder.path)).work)
        self._state.wake_writer = self._writer.wake
        self._reader = drive("tenuto-snapshots-read", reader.work)

    def wait_until_known(self, timeout_s: float) -> bool:
        """Wait until it is known what an earlier process left. Blocking; not where a thread is but stood for."""
        with self._state.changed:
            return self._state.changed.wait_for(lambda: self._state.has_looked, timeout_s)

    def keep(self, sequence: str, principal: str, tokens: Tokens, snapshot: Snapshot) -> bool:
        """Write a sequence's snapshot, in place of an earlier one. False where there is no room for it in the queue.

        Others that wait may give way to it: those of who has most there, and then the principal's own. The tokens and
        the snapshot's buffer must not change any more.
        """
        assert len(tokens) == snapshot.tokens, "a snapshot is of its tokens"
        state = self._state
        with state.changed:
            if state.is_closing or state.is_abandoned:
                return False
            try:
                gone = state.waiting.put(Waiting(sequence, principal, tokens, snapshot))
            except Overloaded:
                state.refused[Refusal.QUEUE] += 1
                return False
            state.refused[Refusal.QUEUE] += gone
            state.changed.notify_all()
        self._writer.wake()
        return True

    def drop(self, sequence: str) -> Future[None]:
        """Forget a sequence. The future is done when nothing of it is on the disk, even if the power goes then.

        Its callbacks run on a thread of the store's, as those of `read` do.
        It fails with OSError where something may still be there, and with ShuttingDown after the store's end.
        """
        dropped: Future[None] = Future()
        dropped.set_running_or_notify_cancel()
        state = self._state
        with state.changed:
            if state.has_ended:
                dropped.set_exception(ShuttingDown("the store of snapshots is closed"))
                return dropped
            state.waiting.drop(sequence)
            if (entry := state.index.get(sequence)) is not None:
                state.index.remove(entry)
            if state.reading is not None and state.reading.sequence == sequence:
                state.reading.is_dropped = True
            state.removals.setdefault(sequence, []).append(dropped)
            state.changed.notify_all()
        self._writer.wake()
        return dropped

    def find(self, sequence: str, principal: str, tokens: Tokens) -> Found | None:
        """How much of these tokens a sequence's snapshot on disk is of; None where there is none that may be used.

        After the start, one that an earlier process left may be found a little later.
        """
        with self._state.changed:
            entry = self._state.entry(sequence, principal)
            if entry is None:
                return None
            self._state.index.touch(entry)
        return Found(sequence, len(entry.tokens), entry.tokens.shared(tokens), entry.nbytes)

    def find_alike(self, principal: str, tokens: Tokens, *, whole: bool, but: str) -> Found | None:
        """Of a principal's snapshots, `but` for one sequence's, that which begins most like these tokens; None where
        none does. `whole`: one that has nothing else."""
        with self._state.changed:
            found = self._state.index.alike(principal, tokens, whole=whole, but=but)
        if found is None:
            return None
        entry, common = found
        return Found(entry.sequence, len(entry.tokens), common, entry.nbytes)

    def read(self, sequence: str, principal: str) -> Future[Restored | None]:
        """Read a sequence's snapshot back, which stays; None where there is none that may be used. It never fails.

        What was read is the caller's memory. One is read at a time; one that was cancelled before its turn is not.
        """
        done: Future[Restored | None] = Future()
        with self._state.changed:
            if self._state.is_closing:
                done.set_result(None)
                return done
            self._readings.put(Reading(sequence, principal, done))
        self._reader.wake()
        return done

    def trust(self, sequence: str) -> None:
        """What was read of a sequence has served. Until then it is marked: where the process ends first, the next one
        takes it for what ended it, and does not use it."""
        with self._state.changed:
            if sequence not in self._state.tried:
                return
            self._state.trusted.add(sequence)
            self._state.changed.notify_all()
        self._writer.wake()

    def reject(self, sequence: str) -> None:
        """What was read of a sequence was not taken by the library: it is removed."""
        with self._state.changed:
            entry = self._state.index.get(sequence)
        if entry is not None:
            self._state.ignore(stem_of(sequence), Flaw.REFUSED)
            self._state.discard(entry)

    def abandon(self) -> None:
        """Write nothing more, not even what waits. Who would drop it does not reach this store any more."""
        with self._state.changed:
            self._state.is_abandoned = True
            self._state.waiting.clear()

    def figures(self) -> Figures:
        """What became of snapshots so far."""
        return self._state.figures()

    def close(self, timeout_s: float) -> None:
        """Remove what was dropped, write what waits as far as there is time, and end the threads. Blocking."""
        state = self._state
        with state.changed:
            if not state.is_closing:
                self._readings.put(None)
            state.is_closing = True
            state.changed.notify_all()
        self._reader.wake()
        self._writer.wake()
        self._writer.join(timeout_s)
        with state.changed:
            state.waiting.clear()
        self._writer.join(_LET_GO_S)
        self._reader.join(_LET_GO_S)

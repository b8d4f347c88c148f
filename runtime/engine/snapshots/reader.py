"""The thread that reads a store's snapshots back, one at a time. It marks what it hands out, and changes nothing else.

A cache that ends the process of the native library which takes it must not be given to the next one: it is marked on
the disk before it is handed out, and until it has served.
"""

import logging
import queue
from functools import partial

from tenuto.runtime.engine.snapshots.file import Flaw, Unusable, read_whole
from tenuto.runtime.engine.snapshots.folder import Folder, stem_of
from tenuto.runtime.engine.snapshots.index import Entry
from tenuto.runtime.engine.snapshots.state import Reading, Restored, State
from tenuto.threads import Next

logger = logging.getLogger(__name__)


class Reader:
    """The body of that thread. Only `readings` may be touched from outside; with None in it, it ends."""

    def __init__(self, state: State, folder: Folder) -> None:
        self.readings: queue.SimpleQueue[Reading | None] = queue.SimpleQueue()
        self._state, self._folder = state, folder

    def work(self, wait: bool) -> Next:
        """Read one."""
        try:
            reading = self.readings.get(block=wait)
        except queue.Empty:
            return Next.IDLE
        if reading is None:
            return Next.ENDED
        if reading.done.set_running_or_notify_cancel():
            restored: Restored | None = None
            try:
                restored = self._read(reading)
            except Exception:  # no memory for it, say: it is computed again
                logger.exception("a snapshot could not be read")
            reading.done.set_result(restored)
        return Next.MORE

    def _read(self, reading: Reading) -> Restored | None:
        state = self._state
        with state.changed:
            entry = state.entry(reading.sequence, reading.principal)
            if entry is None:
                return None
            state.reading = reading
        try:
            restored = self._restored(reading, entry)
        finally:
            with state.changed:
                state.reading = None
        if restored is None or reading.is_dropped:
            return None
        with state.changed:
            state.index.touch(entry)
            state.counts["restored"] += 1
            state.counts["restored_bytes"] += restored.snapshot.nbytes
        return restored

    def _restored(self, reading: Reading, entry: Entry) -> Restored | None:
        stem = stem_of(reading.sequence)
        try:
            with self._folder.reading(stem) as descriptor:
                expected = partial(self._state.check, sequence=reading.sequence, principal=reading.principal)
                header, snapshot = read_whole(descriptor, expected)
            with self._state.changed:
                self._state.tried.add(reading.sequence)
            self._folder.mark(stem)
        except FileNotFoundError:  # it gave way, or somebody else took it away
            flaw = None
        except Unusable as error:
            flaw = error.flaw
        except OSError:
            flaw = Flaw.UNREADABLE
        else:
            return Restored(header.tokens, snapshot)
        if flaw is not None:
            self._state.ignore(stem, flaw)
        self._state.discard(entry)
        return None

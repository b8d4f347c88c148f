"""The thread that makes every change of a store's folder: removes what was dropped, writes, and lets old ones go."""

import logging
from collections.abc import Callable
from functools import partial
from os import fstat

from tenuto.errors import Overloaded
from tenuto.runtime.engine.snapshots.figures import Refusal
from tenuto.runtime.engine.snapshots.file import Facts, Flaw, Header, Packed, Unusable, read_header
from tenuto.runtime.engine.snapshots.folder import Folder, stem_of
from tenuto.runtime.engine.snapshots.index import Entry, Waiting
from tenuto.runtime.engine.snapshots.ownership import Ownership
from tenuto.runtime.engine.snapshots.state import State
from tenuto.threads import Next

_SWEEP_S = 60.0
_OWNED_S = 1.0
"""How often it is tried again whether nobody else has the folder any more."""

logger = logging.getLogger(__name__)


class _Abandoned(Exception):
    """Nobody wants what is being written."""


class Writer:
    """The body of that thread. It begins with a look at what an earlier process left.

    Removals come before all else, and between the pieces of a snapshot that is being written. As long as another store
    has the folder, removals are all that is done: what was dropped is to be gone whoever has written it.
    """

    def __init__(self, state: State, folder: Folder, now: Callable[[], float], owned: Ownership) -> None:
        self._state, self._folder, self._now, self._owned = state, folder, now, owned
        self._has_looked = self._is_owner = False
        self._swept_at = 0.0
        self._said = ""

    def work(self, wait: bool) -> Next:
        """Make one change. It ends when the store is closed and nothing is left to do."""
        state = self._state
        with state.changed:
            while not (state.removals or self._has_changes()):
                if state.is_closing:
                    if state.tried:  # the engine has ended, and by no fault of theirs
                        state.trusted |= state.tried
                        continue
                    self._owned.give()
                    state.has_ended = True
                    return Next.ENDED
                if not wait:
                    return Next.IDLE
                state.changed.wait(_SWEEP_S if self._is_owner else _OWNED_S)
            is_next = self._is_owner and not (state.removals or state.trusted or self._must_sweep)
            waiting = state.waiting.take() if is_next else None
        try:
            if waiting is not None:  # nothing was to be removed as it was taken
                self._write(waiting)
                return Next.MORE
            self._remove_dropped()
            self._unmark()
            if not self._is_owner:
                pass
            elif not self._has_looked:
                try:
                    self._look()
                finally:
                    with state.changed:
                        state.has_looked = True
                        state.changed.notify_all()
            elif self._must_sweep:
                self._sweep()
        except Exception:  # this thread must live for those that are dropped
            logger.exception("the folder of snapshots could not be changed")
        finally:
            with state.changed:
                if waiting is not None:
                    state.waiting.done()
        return Next.MORE

    def _has_changes(self) -> bool:
        """Whether there is something to do besides removals, in a folder that is its own."""
        state = self._state
        if not self._is_owner:
            self._is_owner = self._owned.take()
            if not self._is_owner:
                if not state.has_looked:  # who waits for that need not wait for the other to end
                    state.has_looked = True
                    state.changed.notify_all()
                return False
        return bool(state.trusted or self._must_sweep or len(state.waiting))

    @property
    def _must_sweep(self) -> bool:
        return not self._has_looked or abs(self._now() - self._swept_at) >= _SWEEP_S

    # Removals.

    def _remove_dropped(self, but: str | None = None) -> None:
        """Remove them all, but for a sequence of which a file is being written: that one's is let go of first."""
        state = self._state
        with state.changed:
            removals = {sequence: dropped for sequence, dropped in state.removals.items() if sequence != but}
            state.removals = {sequence: state.removals[sequence] for sequence in state.removals.keys() - removals}
            # What may not be used may have been replaced since; what was dropped cannot have been.
            to_remove = [one for one, dropped in removals.items() if dropped or one not in state.index]
        failed: dict[str, Exception] = {}
        for sequence in to_remove:
            try:
                self._folder.remove(stem_of(sequence))
            except Exception as error:  # each is told its own
                failed[sequence] = error
        told = [(sequence, future) for sequence, dropped in removals.items() for future in dropped]
        unsynced = self._unsynced() if told else None
        for sequence, future in told:
            reason = failed.get(sequence, unsynced)
            if reason is None:
                future.set_result(None)
            else:
                future.set_exception(reason)

    def _unmark(self) -> None:
        """Take the marks of those away that have served."""
        state = self._state
        with state.changed:
            served, state.trusted = state.trusted, set()
            state.tried -= served
        for sequence in served:
            try:
                self._folder.unmark(stem_of(sequence))
            except OSError as error:
                logger.warning("the snapshot %s stays marked: %s", stem_of(sequence), error)

    def _unsynced(self) -> Exception | None:
        try:
            self._folder.sync()
        except Exception as error:
            return error
        return None

    def _sweep(self) -> None:
        """Remove what has been kept for long enough."""
        self._swept_at = self._now()
        state, before = self._state, self._now() - self._state.limits.keep_s
        with state.changed:
            old = [entry for entry in state.index if entry.written_at < before]
            for entry in old:
                state.index.remove(entry)
            state.counts["expired"] += len(old)
        self._remove(old)

    def _remove(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._try_remove(stem_of(entry.sequence))

    def _try_remove(self, stem: str) -> None:
        try:
            self._folder.remove(stem)
        except OSError as error:
            logger.warning("the snapshot %s cannot be removed: %s", stem, error)

    # What an earlier process left.

    def _look(self) -> None:
        """Read the headers of what is there, and remove what may not be used."""
        self._has_looked = True
        stems, tried = self._folder.stems()
        for stem in tried:
            self._state.ignore(stem, Flaw.FATAL)
            self._try_remove(stem)
        for stem in stems:
            self._remove_dropped()
            if self._state.is_closing:
                return
            try:
                self._take_over(stem)
            except FileNotFoundError:
                continue
            except Unusable as error:
                self._state.ignore(stem, error.flaw)
                self._try_remove(stem)
            except OSError:
                self._state.ignore(stem, Flaw.UNREADABLE)
                self._try_remove(stem)
        self._sweep()

    def _take_over(self, stem: str) -> None:
        with self._folder.reading(stem) as descriptor:
            header, size = read_header(descriptor), fstat(descriptor).st_size
        facts, state = header.facts, self._state
        if stem_of(facts.sequence) != stem:
            raise Unusable(Flaw.SEQUENCE)
        state.check(header, facts.sequence, facts.principal)
        written_at = min(facts.written_at, self._now())  # a clock that was set back would keep it for ever
        entry = Entry(facts.sequence, facts.principal, header.tokens, facts.nbytes, size, written_at)
        with state.changed:
            if facts.sequence in state.removals:
                return
            gone = self._admit(entry)
            if gone is not None:
                state.index.settle(entry)
        self._remove([entry] if gone is None else gone)

    # New ones.

    def _write(self, waiting: Waiting) -> None:
        snapshot = waiting.snapshot
        facts = Facts(
            self._state.fingerprint,
            waiting.sequence,
            waiting.principal,
            self._now(),
            snapshot.nbytes,
            snapshot.extents,
        )
        try:
            packed = Packed(Header(facts, waiting.tokens), snapshot)
            if self._folder.free_bytes() - packed.size < self._state.limits.spare_bytes:
                self._fail("the disk has too little room left", Refusal.DISK)
                return
        except Exception as error:
            self._fail(str(error))
            return
        entry = Entry(
            waiting.sequence, waiting.principal, waiting.tokens, snapshot.nbytes, packed.size, facts.written_at
        )
        gone = self._admit(entry)
        if gone is not None:
            self._remove(gone)
            self._settle(waiting, entry, self._is_written(waiting, packed))

    def _is_written(self, waiting: Waiting, packed: Packed) -> bool:
        try:
            self._folder.write(stem_of(waiting.sequence), packed, partial(self._between, waiting))
        except _Abandoned:
            return False
        except Exception as error:
            self._fail(str(error))
            return False
        self._said = ""
        return True

    def _settle(self, waiting: Waiting, entry: Entry, is_written: bool) -> None:
        state = self._state
        with state.changed:
            if is_written and not waiting.is_abandoned:
                state.index.settle(entry)
                state.counts["kept"] += 1
                state.counts["kept_bytes"] += entry.size
            else:  # one that was dropped as it became whole is removed next
                state.index.remove(entry)

    def _admit(self, entry: Entry) -> list[Entry] | None:
        """What gives way to one in the index; None where there is no room for it."""
        state = self._state
        with state.changed:
            try:
                gone = state.index.admit(entry)
            except Overloaded:
                state.refused[Refusal.BUDGET] += 1
                return None
            state.counts["gave_way"] += sum(other.sequence != entry.sequence for other in gone)
        return gone

    def _between(self, waiting: Waiting) -> None:
        self._remove_dropped(but=waiting.sequence)
        if waiting.is_abandoned:
            raise _Abandoned

    def _fail(self, said: str, refusal: Refusal = Refusal.FAILED) -> None:
        with self._state.changed:
            self._state.refused[refusal] += 1
        if said != self._said:  # a disk that is full would fill up further with what is said of it
            logger.warning("a snapshot could not be written: %s", said)
        self._said = said

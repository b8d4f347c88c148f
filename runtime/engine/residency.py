"""Where the caches live: which sequence holds which slot, what lies in host memory, and how many bytes that is.

The one accountant of an engine's cache. Engine thread only. The cache of who gives way goes to where it wastes least:
to host memory while its budget lasts, to the disk, or to nothing. Who gives way is for `giving_way` to say.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from tenuto.pipelines.backend import Backend
from tenuto.runtime.engine.counts import Move, Saver, Tally
from tenuto.runtime.engine.disk_caches import LEAST_TOKENS, DiskCaches
from tenuto.runtime.engine.giving_way import GivingWay
from tenuto.runtime.engine.host_memory import HostCopy, HostMemory, HostRoom
from tenuto.runtime.engine.lenders import Lenders
from tenuto.runtime.engine.messages import THE_SERVER, Residency
from tenuto.runtime.engine.restoring import Restoring
from tenuto.runtime.engine.sequence import Sequence
from tenuto.runtime.engine.snapshots import Found, Restored
from tenuto.runtime.engine.waits import Waits

logger = logging.getLogger(__name__)

WORTH_SHARING = 16
"""A shared prefix of fewer tokens is cheaper to compute than to look after."""


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Host memory for caches. `lends_all`: a principal's serve every other, as far as they are the same."""

    host_bytes: int = 1 << 30
    lends_all: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """How a sequence came to its slot: whether a cache was `copied`, how many of the tokens that it has now were `lent`
    by another principal's sequence and are not told: those that its own principal's would not have given, and what had
    its cache.
    """

    copied: bool = False
    lent: int = 0
    by: Saver = Saver.DEVICE


class CacheResidency:
    """Slots and host memory of one backend. Engine thread only.

    A sequence's `slot` and `cached` are changed here and where its tokens are fed, nowhere else.
    """

    def __init__(self, backend: Backend, limits: CacheLimits, disk: DiskCaches, waits: Waits | None = None) -> None:
        self._backend, self._limits, self._disk, self._restoring = backend, limits, disk, Restoring(backend, disk)
        self._lenders = Lenders(can_truncate=backend.info.can_truncate, lends_all=limits.lends_all)
        self._free = list(range(backend.info.slots - 1, -1, -1))
        self._holders: OrderedDict[str, Sequence] = OrderedDict()  # the least recently used first
        self._policy = GivingWay(backend.info, limits.host_bytes, disk, waits or Waits())
        self._host = HostMemory(limits.host_bytes, self._policy.from_host)
        self.tally = Tally()
        self.shared = 0
        """How many tokens sequences have had from others, as far as that is told."""

    @property
    def free_slots(self) -> int:
        """How many slots hold nothing."""
        return len(self._free)

    def holders(self) -> list[Sequence]:
        """The sequences that have a slot, the least recently used first."""
        return list(self._holders.values())

    def where(self, sequence: Sequence) -> Residency:
        """Where a sequence's cache lives."""
        if sequence.slot is not None:
            return Residency.DEVICE
        copy = self._host.get(sequence.id)
        return Residency.NONE if copy is None else copy.came_from

    @property
    def host_peak_bytes(self) -> int:
        """The most that was held in host memory at any moment."""
        return self._host.peak_bytes

    def cache_bytes(self) -> dict[Residency, int]:
        """Bytes of cache in use, by place."""
        used = {Residency.DEVICE: self._device_bytes(), Residency.HOST: self._host.used}
        return used if (disk := self._disk.nbytes) is None else {**used, Residency.DISK: disk}

    def _device_bytes(self) -> int:
        return sum(sequence.cached for sequence in self._holders.values()) * self._backend.info.bytes_per_token

    def giving_way(self, idle: Iterable[Sequence]) -> list[str]:
        """The ids of holders that do nothing, the first to give way first."""
        self._policy.beside = self._device_bytes()
        return [one.id for one in self._policy.from_device(idle)]

    def figures(self) -> tuple[dict[Residency, int], int]:
        """What `cache_bytes` gives, and `shared`."""
        return self.cache_bytes(), self.shared

    @property
    def listed_tokens(self) -> int:
        """How many tokens are held to find beginnings by."""
        return self._lenders.tokens

    # Between host memory and the disk.

    def on_disk(self, sequence: Sequence) -> Found | None:
        """What lies on the disk and serves more of a sequence than what lies elsewhere: its own cache, or, where it
        goes on, that of another of its principal's that begins alike."""
        if self.where(sequence) is not Residency.NONE:
            return None
        best: Found | None = None
        most = LEAST_TOKENS - 1
        for found in self._disk.find(sequence, whole=not self._backend.info.can_truncate):
            common = sequence.uncut(min(found.common, len(sequence.tokens) - 1))
            usable = self._lenders.usable(found.held, common)
            is_meant = sequence.open is not None or found.sequence == sequence.kept_as
            if usable > most and is_meant and self._disk.pays(sequence, found, usable):
                best, most = found, usable
        return None if best is None or any(self._lenders.best(sequence, most, self._held)) else best

    def expect(self, sequence: Sequence, found: Found) -> HostRoom | None:
        """Room in host memory for a cache that is about to be read; None where there is none."""
        return self._make_room(sequence, found.nbytes, found.held)

    def adopt(self, room: HostRoom, restored: Restored | None, name: str) -> None:
        """Take a cache that has been read back and is kept as `name` into the room that was kept for it, where it came
        and is of use."""
        sequence, is_of_use = room.sequence, self.where(room.sequence) is Residency.NONE
        if restored is None or not is_of_use or restored.snapshot.nbytes > room.nbytes:
            self._host.give_back(room)
            return
        came_from = Residency.HOST if sequence.open is None else Residency.DISK
        self._fill(room, HostCopy(sequence, restored.tokens, restored.snapshot, came_from, name))
        self.tally.moved(Move.DISK_HOST, restored.snapshot.nbytes)
        if name == sequence.kept_as:
            sequence.kept = len(restored.tokens)

    def bring_back(self, sequence: Sequence) -> None:
        """Copy a paused sequence's cache from host memory to a slot that is free. What the backend raises passes
        through; there is no copy then."""
        copy = self._host.get(sequence.id)
        assert copy is not None
        assert sequence.slot is None
        slot = self._free[-1]
        try:
            self._backend.release(slot)
            held = self._restore(slot, copy, sequence)
        finally:
            self._drop_copy(sequence)
        self._free.pop()
        self._holders[sequence.id] = sequence
        sequence.slot, sequence.cached = slot, held
        common = copy.tokens.shared(sequence.tokens)
        self.keep(sequence, self._lenders.usable(len(copy.tokens), sequence.uncut(common)))
        self._lenders.put(sequence, sequence.tokens, sequence.cached)

    def keep_on_disk(self, sequence: Sequence) -> None:
        """Copy out what a sequence's slot holds, to be written."""
        assert sequence.slot is not None
        self._disk.keep(sequence, sequence.cached, self._backend.snapshot(sequence.slot))

    def touch(self, sequence: Sequence) -> None:
        """A sequence was used just now. What it has by now may serve others."""
        if sequence.slot is not None:
            self._holders.move_to_end(sequence.id)
            self._lenders.put(sequence, sequence.tokens, sequence.cached)

    def keep(self, sequence: Sequence, tokens: int) -> None:
        """Cut what a sequence holds in its slot back to its first `tokens`, or to nothing where that cannot be done."""
        if sequence.slot is None or sequence.cached <= tokens:
            return
        if tokens == 0 or not self._backend.truncate(sequence.slot, tokens):
            self._backend.release(sequence.slot)
            tokens = 0
        sequence.cached = tokens

    def place(self, sequence: Sequence, victim: Sequence | None) -> Placed:
        """See to it that a sequence has a slot, with as much of its cache as can be had.

        That is its own, in the slot or from host memory, or a prefix that another sequence has in common with it there,
        as far as that is lent. At least one token is left to feed, so that there is something to sample from. Where no
        slot is free, `victim` gives its own. What the backend raises passes through; the sequence is to be dropped
        then.
        """
        if sequence.slot is not None:
            self.keep(sequence, sequence.uncut(len(sequence.tokens) - 1))
            self.touch(sequence)
            placed = Placed()
        else:
            placed = self._move_in(sequence, victim)
        self._lenders.put(sequence, sequence.tokens)  # it has a cache of these, one after the other
        return placed

    def _move_in(self, sequence: Sequence, victim: Sequence | None) -> Placed:
        copy, own = self._host.get(sequence.id), 0
        if copy is not None:
            common = min(copy.tokens.shared(sequence.tokens), len(sequence.tokens) - 1)
            own = self._lenders.usable(len(copy.tokens), sequence.uncut(common))
        mine, lent = self._lenders.best(sequence, max(WORTH_SHARING, own + 1), self._held)
        offer = lent or mine
        if offer is not None or own == 0:
            self._drop_copy(sequence)
            copy = None
        by = Saver.SHARED if copy is None else Saver(copy.came_from.value)
        wanted = own if offer is None else offer.tokens
        donor = None
        if offer is not None:
            donor, copy = self._holders.get(offer.lender), self._host.get(offer.lender)
            self._lend(offer.lender)
        # A victim that is the donor leaves its cache where it lies; `victim.cached` says how much until it is evicted.
        lies_in_place = donor is not None and donor is victim
        held, source = (0, None) if donor is None else (donor.cached, donor.slot)
        needed = {sequence.id, sequence.id if offer is None else offer.lender}
        slot, copied = (self._free.pop(), False) if victim is None else self._evict(victim, needed)
        sequence.slot, sequence.cached = slot, 0
        self._holders[sequence.id] = sequence
        if lies_in_place:
            sequence.cached = held
            self.keep(sequence, wanted)
        else:
            self._backend.release(slot)
            if source is not None:
                self._backend.fork(source, slot, wanted)
                sequence.cached = wanted
            elif copy is not None:
                sequence.cached = self._restore(slot, copy, sequence)
                self._drop_copy(sequence)
                self.keep(sequence, wanted)
            copied = copied or sequence.cached > 0
        beyond = max(sequence.cached - (own if mine is None else mine.tokens), 0)
        is_lent = lent is not None and not lent.is_told
        self.shared += 0 if offer is None else sequence.cached - (beyond if is_lent else 0)
        return Placed(copied, beyond if is_lent else 0, by)

    def drop(self, sequence: Sequence) -> None:
        """Free all that a sequence holds, on device and in host memory. A slot that cannot be emptied is free too."""
        self._drop_copy(sequence)
        if sequence.slot is not None:
            slot, sequence.slot, sequence.cached = sequence.slot, None, 0
            del self._holders[sequence.id]
            self._free.append(slot)  # `place` empties it once more
            self._lenders.remove(sequence.id)
            self._backend.release(slot)

    def _held(self, id: str) -> int:
        """How many tokens of a sequence have a cache, in a slot or in host memory."""
        if (holder := self._holders.get(id)) is not None:
            return holder.cached
        copy = self._host.get(id)
        return 0 if copy is None else len(copy.tokens)

    def _lend(self, id: str) -> None:
        """A sequence lends. What the server has stays in host memory by that, and gives its slot to who needs one."""
        if (copy := self._host.get(id)) is not None and copy.sequence.principal == THE_SERVER:
            copy.sequence.paused_at = time.monotonic()
        elif (
            not self._limits.host_bytes
            and (holder := self._holders.get(id)) is not None
            and holder.principal == THE_SERVER
        ):
            holder.paused_at = time.monotonic()
            self._holders.move_to_end(id)

    def _evict(self, victim: Sequence, needed: set[str]) -> tuple[int, bool]:
        """Move a cache to where it wastes least, in host memory beside the copies that are `needed` for its successor.

        Gives the slot, which still holds the cache, and whether the cache was copied.
        """
        assert victim.slot is not None
        self._host.hold(needed)
        self._policy.beside = self._device_bytes()
        [going] = self._policy.from_device([victim])
        slot, nbytes = victim.slot, victim.cached * self._backend.info.bytes_per_token
        keeps = victim.cached > 0
        room = self._make_room(victim, nbytes, victim.cached) if going.place is Residency.HOST else None
        on_disk = keeps and self._disk.wants(victim, victim.cached)
        copied = self._copy_out(victim, room, to_disk=on_disk) if room is not None or on_disk else False
        if self._host.get(victim.id) is not None:
            self.tally.moved(Move.DEVICE_HOST, nbytes)
        elif keeps:
            written = self._disk.written(victim, victim.cached)
            self.tally.moved(Move.DEVICE_DISK if written else Move.DROPPED, nbytes)
        del self._holders[victim.id]
        victim.slot, victim.cached = None, 0
        if self._host.get(victim.id) is None:
            self._lenders.remove(victim.id)
        return slot, copied

    def _copy_out(self, victim: Sequence, room: HostRoom | None, *, to_disk: bool) -> bool:
        """Copy what a slot holds to where it is to go; whether it was copied."""
        assert victim.slot is not None
        began = time.monotonic()
        try:
            snapshot = self._backend.snapshot(victim.slot)
        except Exception:  # a copy is a convenience: without it the victim is computed again
            logger.exception("the cache of sequence %s cannot be copied out", victim.id)
            if room is not None:
                self._host.give_back(room)
            return False
        self._disk.measures.out.add(snapshot.nbytes, time.monotonic() - began)
        if to_disk:
            self._disk.keep(victim, victim.cached, snapshot)
        if room is not None and snapshot.nbytes > room.nbytes:
            self._host.give_back(room)
            room = self._make_room(victim, snapshot.nbytes, victim.cached)
        if room is not None:
            self._fill(room, HostCopy(victim, victim.tokens.copy(victim.cached), snapshot))
        return True

    def _restore(self, slot: int, copy: HostCopy, sequence: Sequence) -> int:
        held = self._restoring.restore(slot, copy)
        if not held:
            self._drop_copy(copy.sequence)
        elif copy.sequence is sequence:  # else it was lent, and stays
            self.tally.moved(Move.HOST_DEVICE, copy.snapshot.nbytes)
        return held

    def _fill(self, room: HostRoom, copy: HostCopy) -> None:
        self._host.fill(room, copy)
        self._lenders.put(copy.sequence, copy.tokens)

    def _drop_copy(self, sequence: Sequence) -> None:
        if self._host.get(sequence.id) is not None:
            self._host.drop(sequence.id)
            self._lenders.remove(sequence.id)

    def _make_room(self, sequence: Sequence, nbytes: int, tokens: int) -> HostRoom | None:
        """Let caches in host memory give way to one of so many bytes: to the disk, or to nothing. None where that would
        not make room enough."""
        self._policy.beside = self._device_bytes()
        with self._policy.claimed(sequence, nbytes, tokens):
            taken = self._host.take(sequence, nbytes)
        if taken is None:
            return None
        room, gone = taken
        for copy in gone:
            self._lenders.remove(copy.sequence.id)
            held = len(copy.tokens)
            if self._disk.wants(copy.sequence, held):
                self._disk.keep(copy.sequence, held, copy.snapshot)
            written = self._disk.written(copy.sequence, held)
            self.tally.moved(Move.HOST_DISK if written else Move.DROPPED, copy.snapshot.nbytes)
        return room

"""Where the caches live: which sequence holds which slot, what lies in host memory, and how many bytes that is.

The one accountant of an engine's cache. Engine thread only. When a slot is needed, the paused sequence that was used
longest ago gives way: to host memory while its budget lasts, where the oldest of who holds most gives way, and then to
nothing.
"""

import logging
from collections import OrderedDict
from dataclasses import dataclass

from tenuto.errors import Overloaded
from tenuto.pipelines.backend import Backend, Snapshot
from tenuto.runtime.engine.messages import THE_SERVER, Residency
from tenuto.runtime.engine.sequence import Sequence
from tenuto.sessions.shares import Shares
from tenuto.sessions.tokens import Tokens

logger = logging.getLogger(__name__)

WORTH_SHARING = 16
"""A shared prefix of fewer tokens is cheaper to compute than to look after."""


@dataclass(frozen=True, slots=True)
class HostCopy:
    """A cache in host memory, and the tokens that it is the cache of."""

    tokens: Tokens
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Placed:
    """How a sequence came to its slot: whether a cache was `copied`, and how many of the tokens that it has now were
    `lent` by another principal's sequence: those that its own principal's would not have given.
    """

    copied: bool = False
    lent: int = 0


class CacheResidency:
    """Slots and host memory of one backend. Engine thread only.

    A sequence's `slot` and `cached` are changed here and where its tokens are fed, nowhere else.
    """

    def __init__(self, backend: Backend, host_budget_bytes: int) -> None:
        self._backend = backend
        self._free = list(range(backend.info.slots - 1, -1, -1))
        self._holders: OrderedDict[str, Sequence] = OrderedDict()  # the least recently used first
        self._host: dict[str, HostCopy] = {}
        # Whoever is being placed keeps its copy. Not a way back to here: what is in a ring is not freed at once.
        placed = self._placed = set[str]()
        self._copies: Shares[str] = Shares("host memory", host_budget_bytes, lambda id: id not in placed)
        self.host_peak_bytes = 0

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
        return Residency.HOST if sequence.id in self._host else Residency.NONE

    def cache_bytes(self) -> dict[Residency, int]:
        """Bytes of cache in use, by place."""
        tokens = sum(sequence.cached for sequence in self.holders())
        return {Residency.DEVICE: tokens * self._backend.info.bytes_per_token, Residency.HOST: self._copies.used}

    def touch(self, sequence: Sequence) -> None:
        """A sequence was used just now."""
        if sequence.slot is not None:
            self._holders.move_to_end(sequence.id)

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

        That is its own, in the slot or from host memory, or a prefix that another sequence has in common with it: one
        of the same principal, or one of another's that has named the very same prefix, which then is all it gives, or
        one of the server's own.
        At least one token is left to feed, so that there is something to sample from. Where no slot is free,
        `victim` gives its own. What the backend raises passes through; the sequence is then to be dropped.
        """
        wanted = sequence.uncut(len(sequence.tokens) - 1)
        if sequence.slot is not None:
            self.keep(sequence, wanted)
            self.touch(sequence)
            return Placed()
        copy = self._host.get(sequence.id)
        own = 0
        if copy is not None:
            common = min(copy.tokens.shared(sequence.tokens), wanted)
            own = self._usable(len(copy.tokens), sequence.uncut(common))
        least = max(WORTH_SHARING, own + 1)
        donor, shared = self._best_donor(sequence, sequence.principal, least)
        lender, lent = self._best_lender(sequence, max(least, shared + 1))
        unlent = shared if donor is not None else own
        if lender is not None:
            donor, shared = lender, lent
        if donor is not None or own == 0:
            self._drop_copy(sequence)
            copy = None
        # A victim that is the donor leaves its cache where it lies; `victim.cached` says how much until it is evicted.
        lies_in_place = donor is not None and donor is victim
        held = donor.cached if donor is not None else 0
        source = donor.slot if donor is not None else None
        slot, copied = (self._free.pop(), False) if victim is None else self._evict(victim, sequence)
        sequence.slot, sequence.cached = slot, 0
        self._holders[sequence.id] = sequence
        if lies_in_place:
            sequence.cached = held
            self.keep(sequence, shared)
            return Placed(copied, lent=max(sequence.cached - unlent, 0))
        self._backend.release(slot)
        if source is not None:
            self._backend.fork(source, slot, shared)
            sequence.cached = shared
        elif copy is not None:
            self._backend.restore(slot, copy.snapshot)
            self._drop_copy(sequence)
            sequence.cached = len(copy.tokens)
            self.keep(sequence, own)
        return Placed(copied or sequence.cached > 0, lent=max(sequence.cached - unlent, 0))

    def drop(self, sequence: Sequence) -> None:
        """Free all that a sequence holds, on device and in host memory. A slot that cannot be emptied is free too."""
        self._drop_copy(sequence)
        if sequence.slot is not None:
            slot, sequence.slot, sequence.cached = sequence.slot, None, 0
            del self._holders[sequence.id]
            self._free.append(slot)  # `place` empties it once more
            self._backend.release(slot)

    def _usable(self, held: int, common: int) -> int:
        """How much of a cache of `held` tokens serves where `common` of them are wanted."""
        return common if common == held or self._backend.info.can_truncate else 0

    def _best_donor(self, sequence: Sequence, principal: str, least: int) -> tuple[Sequence | None, int]:
        """Of a principal's sequences the one that has the longest prefix in common with it, and how long that is."""
        best: Sequence | None = None
        most = least - 1
        for holder in self._holders.values():
            if holder.principal == principal and holder.cached > most:
                common = min(holder.tokens.shared(sequence.tokens), holder.cached, len(sequence.tokens) - 1)
                shared = self._usable(holder.cached, sequence.uncut(common))
                if shared > most:
                    best, most = holder, shared
        return (best, most) if best is not None else (None, 0)

    def _best_lender(self, sequence: Sequence, least: int) -> tuple[Sequence | None, int]:
        """A sequence of the server's own, as far as it is the same, or one of another principal that has named the very
        same prefix.

        All of that or nothing: who could have a part of a prefix that others wrote could find it out token by token.
        """
        servers, most = self._best_donor(sequence, THE_SERVER, least)
        named = sequence.named
        if not max(least, most + 1) <= named < len(sequence.tokens) or sequence.uncut(named) < named:
            return servers, most
        for holder in self._holders.values():
            if (
                holder.principal != sequence.principal
                and holder.named == named <= holder.cached
                and self._usable(holder.cached, named)
                and holder.tokens.shared(sequence.tokens) >= named
            ):
                return holder, named
        return servers, most

    def _evict(self, victim: Sequence, successor: Sequence) -> tuple[int, bool]:
        """Move a cache to host memory if it fits there beside the copy that the successor comes back from.

        Gives the slot, which still holds the cache, and whether the cache was copied.
        """
        assert victim.slot is not None
        slot, copied = victim.slot, False
        self._placed.clear()
        self._placed.add(successor.id)
        keeps = victim.cached > 0 and victim.principal != THE_SERVER  # which is not read again
        if keeps and self._make_host_room(victim, victim.cached * self._backend.info.bytes_per_token):
            try:
                snapshot = self._backend.snapshot(slot)
            except Exception:  # a copy is a convenience: without it the victim is computed again
                logger.exception("the cache of sequence %s cannot be copied out", victim.id)
            else:
                self._keep_copy(victim, snapshot)
                copied = True
        del self._holders[victim.id]
        victim.slot, victim.cached = None, 0
        return slot, copied

    def _keep_copy(self, victim: Sequence, snapshot: Snapshot) -> None:
        if self._make_host_room(victim, snapshot.nbytes):
            self._copies.settle(victim.id, victim.principal, snapshot.nbytes)
            self._host[victim.id] = HostCopy(victim.tokens.copy(victim.cached), snapshot)
            self.host_peak_bytes = max(self.host_peak_bytes, self._copies.used)

    def _make_host_room(self, victim: Sequence, nbytes: int) -> bool:
        """Let other copies give way to one of so many bytes. False where that would not make room enough."""
        try:
            gone = self._copies.admit(victim.id, victim.principal, 0.0, 0.0, nbytes)
        except Overloaded:
            return False
        self._copies.remove(victim.id)
        for id in gone:
            del self._host[id]
        return True

    def _drop_copy(self, sequence: Sequence) -> None:
        if self._host.pop(sequence.id, None) is not None:
            self._copies.remove(sequence.id)

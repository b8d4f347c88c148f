"""Who gives way when a table is full: shares of it among principals. No I/O, no clock; time is what the caller says.

A principal may use all that is free. When nothing is free, whoever holds most gives way, if that is more than an equal
share and more than the claimant would hold: its idle entries, the one that was used longest ago first. Then the
claimant's own. Work that is under way never gives way; where nothing idle may, the claimant alone is refused. A place
that falls free after that is kept for it from those who hold more than their share, for as long as it was told to wait.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tenuto.errors import Overloaded

K = TypeVar("K", bound=Hashable)

_PATIENCE = 2.0
"""A place is kept for this many times the time after which its claimant was told to come back."""


@dataclass(slots=True)
class _Holding(Generic[K]):
    """What one principal has in the table: entries by last use, the one used longest ago first."""

    entries: OrderedDict[K, int] = field(default_factory=OrderedDict)
    total: int = 0


class Shares(Generic[K]):
    """A table of `size` (entries, bytes, tokens) that principals share. One thread.

    `is_idle` says whether an entry may give way now; `order` in which order those of a principal do, from
    those that were used longest ago on.
    """

    def __init__(
        self,
        what: str,
        size: int,
        is_idle: Callable[[K], bool],
        order: Callable[[Iterable[K]], Iterable[K]] = iter,
    ) -> None:
        self._what, self._size, self._is_idle, self._order = what, size, is_idle, order
        self._holdings: dict[str, _Holding[K]] = {}
        self._owner: dict[K, str] = {}
        self._refused: dict[str, tuple[int, float]] = {}  # what each was refused, and until when that is remembered
        self.used = 0

    def __len__(self) -> int:
        return len(self._owner)

    def __contains__(self, key: K) -> bool:
        return key in self._owner

    def __iter__(self) -> Iterator[K]:
        return iter(self._owner)

    def held(self, principal: str) -> int:
        """How much a principal holds."""
        holding = self._holdings.get(principal)
        return 0 if holding is None else holding.total

    def principal_of(self, key: K) -> str | None:
        """Whose an entry is; None where it is not in the table."""
        return self._owner.get(key)

    def admit(self, key: K, principal: str, now: float, retry_after_s: float, weight: int = 1) -> list[K]:
        """Put a new entry in; those that gave way for it are in the table no more.

        Raises:
            Overloaded: nothing that may give way would make room; nothing has changed.
        """
        gone = self._room(principal, weight, now, retry_after_s)
        for other in gone:
            self.remove(other)
        self._add(key, principal, weight)
        return gone

    def expect_room(self, principal: str, now: float, retry_after_s: float, weight: int = 1) -> None:
        """Raises Overloaded where `admit` would."""
        self._room(principal, weight, now, retry_after_s)

    def settle(self, key: K, principal: str, weight: int = 1) -> list[K]:
        """An entry, new or not, was used just now and weighs so much; those that gave way for it.

        It is never refused: where nothing else may give way the table is over its size, until something may.
        """
        self.remove(key)
        gone = self._giving_way(principal, weight, self.used + weight - self._size)
        for other in gone:
            self.remove(other)
        self._add(key, principal, weight)
        return gone

    def touch(self, key: K) -> None:
        """An entry was used just now, where it is in the table."""
        if key in self._owner:
            self._holdings[self._owner[key]].entries.move_to_end(key)

    def remove(self, key: K) -> None:
        """Take an entry out, where it is in the table."""
        principal = self._owner.pop(key, None)
        if principal is None:
            return
        holding = self._holdings[principal]
        weight = holding.entries.pop(key)
        holding.total -= weight
        self.used -= weight
        if not holding.entries:
            del self._holdings[principal]

    def clear(self) -> None:
        """Take everything out."""
        self._holdings.clear()
        self._owner.clear()
        self._refused.clear()
        self.used = 0

    def _add(self, key: K, principal: str, weight: int) -> None:
        assert key not in self._owner, "an entry is in the table once"
        holding = self._holdings.setdefault(principal, _Holding())
        holding.entries[key] = weight
        holding.total += weight
        self._owner[key] = principal
        self.used += weight

    def _room(self, principal: str, weight: int, now: float, retry_after_s: float) -> list[K]:
        self._refused = {who: (want, until) for who, (want, until) in self._refused.items() if until > now}
        excess = self.used + weight + self._owed(principal, weight) - self._size
        gone = self._giving_way(principal, weight, excess)
        if excess > sum(self._weight(key) for key in gone):
            self._refused[principal] = (weight, now + _PATIENCE * retry_after_s)
            raise Overloaded(self._what, retry_after_s)
        self._refused.pop(principal, None)
        return gone

    def _owed(self, principal: str, weight: int) -> int:
        """What of the free room is kept from a claimant beyond its share, for those who were refused theirs."""
        share = self._share(principal)
        if self.held(principal) + weight <= share:
            return 0
        others = ((who, want) for who, (want, _) in self._refused.items() if who != principal)
        return sum(int(min(want, max(share - self.held(who), 0))) for who, want in others)

    def _share(self, principal: str) -> float:
        return self._size / len({principal, *self._holdings, *self._refused})

    def _giving_way(self, principal: str, weight: int, excess: int) -> list[K]:
        """The entries that give way for so much, as far as there are any."""
        if excess <= 0:
            return []
        mine = self.held(principal) + weight
        bound = max(self._share(principal), mine)
        left = {who: one.total for who, one in self._holdings.items() if one.total > bound or who == principal}
        left[principal] = mine
        idle = {who: self._idle(who) for who in left}
        gone: list[K] = []
        while excess > 0 and left:
            who = max(left, key=lambda each: (left[each], each == principal))
            key = next(idle[who], None)
            if key is None or (who != principal and left[who] <= bound):
                del left[who]
                continue
            gone.append(key)
            left[who] -= self._weight(key)
            excess -= self._weight(key)
        return gone

    def _idle(self, principal: str) -> Iterator[K]:
        # A generator: nothing is put in order before the first of them has to give way.
        if (holding := self._holdings.get(principal)) is not None:
            yield from self._order(filter(self._is_idle, holding.entries))

    def _weight(self, key: K) -> int:
        return self._holdings[self._owner[key]].entries[key]

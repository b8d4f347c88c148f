"""Slots, each with a cache of its own or a row in a batch, and how they come together for a step. Engine thread only.

A slot that decodes stays in its batch from step to step. It is taken out when a step goes on without it, or when it is
fed several tokens at once; what is taken out is evaluated at once, since it would hold on to the whole batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.pipelines.mlx import caches
from tenuto.pipelines.mlx.caches import Cache
from tenuto.pipelines.mlx.grouping import regroup
from tenuto.pipelines.mlx.model import Model


@dataclass(slots=True, eq=False)
class Batch:
    """Slots that step in one pass: `rows` are their numbers, or None for one that was emptied since."""

    rows: list[int | None]
    cache: Cache


@dataclass(slots=True)
class _Slot:
    """`tokens` is None where a step has failed. The cache is its own, or in a batch, or there is none yet."""

    tokens: int | None = 0
    own: Cache | None = None
    batch: Batch | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """Slots in the order in which the cache holds them."""

    slots: list[int]
    cache: Cache


class Slots:
    """The slots of a backend. A pass that joins too much of different size costs more than two: `weights` says when."""

    def __init__(self, model: Model, count: int, weights: int) -> None:
        self._model = model
        self._weights = weights
        self._slots = [_Slot() for _ in range(count)]
        self._passes: list[Pass] = []

    def length(self, slot: int) -> int:
        """How many tokens a slot holds.

        Raises:
            ValueError: there is no such slot, or its state is undefined.
        """
        tokens = self._slot(slot).tokens
        if tokens is None:
            raise ValueError("the slot is undefined after a failed step; release it first")
        return tokens

    def grow(self, slot: int, tokens: int) -> None:
        """So many tokens were fed."""
        self._slots[slot].tokens = self.length(slot) + tokens

    def put(self, slot: int, cache: Cache, tokens: int) -> None:
        """Give a cache to an empty slot."""
        self._slots[slot] = _Slot(tokens, cache)

    def clear(self, slot: int, tokens: int | None = 0) -> None:
        """Empty a slot, in whatever state it is. With `tokens` None it is undefined afterwards."""
        batch = self._slot(slot).batch
        if batch is not None:
            batch.rows[batch.rows.index(slot)] = None
        self._slots[slot] = _Slot(tokens)
        self._passes = []

    def copy(self, slot: int) -> Cache:
        """Give a second cache with what a slot holds, evaluated. The slot stays where it is."""
        at = self._slots[slot]
        if at.batch is not None:
            cache = caches.extract(at.batch.cache, at.batch.rows.index(slot))
        else:
            cache = caches.fork(self.own(slot))
        caches.evaluate(cache)
        return cache

    def own(self, slot: int) -> Cache:
        """Give the cache of a slot to change it; the slot is taken out of its batch."""
        at = self._slots[slot]
        if at.batch is not None:
            self._take_out([slot])
        if at.own is None:
            at.own = self._model.new_cache()
        return at.own

    def passes(self, slots: Sequence[int]) -> list[Pass]:
        """Arrange slots for a step in which each of them, and no other, is fed one token."""
        if sorted(slot for each in self._passes for slot in each.slots) != sorted(slots):
            self._passes = []  # an error leaves none
            self._passes = self._arrange(list(slots))
        return self._passes

    def _slot(self, slot: int) -> _Slot:
        if not 0 <= slot < len(self._slots):
            raise ValueError(f"there is no slot {slot}")
        return self._slots[slot]

    def _arrange(self, slots: list[int]) -> list[Pass]:
        if not self._model.can_batch:
            return [Pass([slot], self.own(slot)) for slot in slots]
        here = [at.batch for at in map(self._slots.__getitem__, slots) if at.batch is not None]
        self._take_out([row for batch in _once(here) for row in batch.rows if row is not None and row not in slots])
        # The first pass over nothing makes the arrays that a batch is made from.
        empty = [slot for slot in slots if self.length(slot) == 0 and self._slots[slot].own is None]
        begun = [slot for slot in slots if slot not in empty]
        together = [[row for row in batch.rows if row is not None] for batch in _once(self._batches(begun))]
        alone = [[slot] for slot in begun if self._slots[slot].batch is None]
        sizes = {slot: self._model.cache_bytes(self.length(slot)) for slot in begun}
        chosen = regroup([*together, *alone], sizes, self._weights) if begun else []
        return [self._gather(group) for group in chosen] + [Pass([slot], self.own(slot)) for slot in empty]

    def _batches(self, slots: Sequence[int]) -> list[Batch]:
        return [batch for slot in slots if (batch := self._slots[slot].batch) is not None]

    def _gather(self, group: list[int]) -> Pass:
        """Bring a group together: one batch of it may be there already, and only those that lie elsewhere move."""
        if len(group) == 1:
            return Pass(group, self.own(group[0]))
        there = _once(self._batches(group))
        stays = next((batch for batch in there if all(row in group for row in batch.rows)), None)
        self._take_out([row for batch in there if batch is not stays for row in batch.rows if row in group])
        joining = [slot for slot in group if stays is None or slot not in stays.rows]
        if joining:
            joined = Batch(list(joining), caches.merge([self.own(slot) for slot in joining]))
            if stays is None:
                stays = joined
            else:
                caches.extend(stays.cache, joined.cache)
                stays.rows += joined.rows
        assert stays is not None
        for slot in joining:
            self._slots[slot].own, self._slots[slot].batch = None, stays
        return Pass([row for row in stays.rows if row is not None], stays.cache)

    def _take_out(self, slots: Sequence[int]) -> None:
        """Give slots that lie in batches caches of their own, and leave no empty rows and no batch of one behind."""
        batches = _once(self._batches(slots))
        leaving: dict[int, Cache] = {}
        for batch in batches:
            rows = [row for row in batch.rows if row is not None]
            stay = [row for row in rows if row not in slots]
            for row in rows if len(stay) == 1 else [row for row in rows if row in slots]:
                leaving[row] = caches.extract(batch.cache, batch.rows.index(row))
        caches.evaluate(*leaving.values())
        for slot, cache in leaving.items():
            self._slots[slot].own, self._slots[slot].batch = cache, None
        for batch in batches:
            stay = [at for at, row in enumerate(batch.rows) if row is not None and row not in leaving]
            if stay:
                batch.rows = [batch.rows[at] for at in stay]
                caches.keep(batch.cache, stay)
        self._passes = []


def _once(batches: Sequence[Batch]) -> list[Batch]:
    return list({id(batch): batch for batch in batches}.values())

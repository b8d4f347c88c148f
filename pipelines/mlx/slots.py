"""Slots, each with a cache of its own or a row in a batch, and how they come together for a step. Engine thread only.

A slot that decodes stays in its batch from step to step. It is taken out when a step goes on without it, or when it is
fed several tokens at once; what is taken out is computed at once, since it would hold on to the whole batch.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from tenuto.pipelines.mlx import caches
from tenuto.pipelines.mlx.caches import Cache, Undo
from tenuto.pipelines.mlx.grouping import regroup
from tenuto.pipelines.mlx.model import Model


@dataclass(slots=True, eq=False)
class Batch:
    """Slots that are fed in one pass: their numbers by row, or None for one that was emptied since.

    A batch of one has the slot's plain cache, which is not `merged`. With `undo` the cache is a token ahead of what its
    slots hold.
    """

    rows: list[int | None]
    cache: Cache
    merged: bool = True
    undo: Undo | None = None

    @property
    def slots(self) -> list[int]:
        """The slots that it holds."""
        return [row for row in self.rows if row is not None]

    def extract(self, slot: int) -> Cache:
        """Give the cache of a slot. It is a new one only if the batch is merged."""
        row = self.rows.index(slot)
        cache = caches.extract(self.cache, row) if self.merged else self.cache
        if self.undo is not None:
            (self.undo.of_row(row) if self.merged else self.undo).apply(cache)
        return cache

    def keep(self, rows: Sequence[int]) -> None:
        """Leave only these rows."""
        self.rows = [self.rows[row] for row in rows]
        caches.keep(self.cache, rows)
        if self.undo is not None:
            self.undo.keep(rows)


@dataclass(slots=True)
class _Slot:
    """`tokens` is None where a step has failed. The cache is its own, or in a batch, or there is none yet."""

    tokens: int | None = 0
    own: Cache | None = None
    batch: Batch | None = None


class Slots:
    """The slots of a backend. A pass over slots of too different size costs more than two: `weights` says when."""

    def __init__(self, model: Model, count: int, weights: int) -> None:
        self._model = model
        self._weights = weights
        self._slots = [_Slot() for _ in range(count)]
        self._arranged: list[Batch] = []

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
            self._arranged = []
        self._slots[slot] = _Slot(tokens)

    def copy(self, slot: int) -> Cache:
        """Give a second cache with what a slot holds, computed. The slot stays where it is."""
        batch = self._slots[slot].batch
        is_row = batch is not None and batch.merged
        cache = batch.extract(slot) if batch is not None and is_row else caches.fork(self.own(slot))
        caches.evaluate(cache)
        return cache

    def own(self, slot: int) -> Cache:
        """Give the cache of a slot to change it; the slot is taken out of its batch."""
        at = self._slots[slot]
        if at.batch is not None:
            self._shrink(at.batch, [one for one in at.batch.slots if one != slot])
        if at.own is None:
            at.own = self._model.new_cache()
        return at.own

    def holds_ahead(self, slot: int, batch: Batch) -> bool:
        """Whether a slot lies in a batch that is a token ahead."""
        return batch.undo is not None and self._slots[slot].batch is batch

    def catch_up(self, batch: Batch, slots: Container[int]) -> None:
        """Let these slots hold the token that their batch is ahead; others are taken out without it."""
        self._shrink(batch, slots)
        batch.undo = None
        for slot in batch.slots:
            self.grow(slot, 1)

    def fall_back(self, batch: Batch) -> None:
        """Take the token back that a batch is ahead."""
        if batch.undo is not None:
            batch.undo.apply(batch.cache)
            batch.undo = None

    def arrange(self, slots: Sequence[int]) -> list[Batch]:
        """Bring slots together for a step in which each of them, and no other, is fed one token."""
        if sorted(slot for batch in self._arranged for slot in batch.rows if slot is not None) != sorted(slots):
            self._arranged = []  # an error leaves none
            self._arranged = self._arrange(slots)
        return self._arranged

    def _slot(self, slot: int) -> _Slot:
        if not 0 <= slot < len(self._slots):
            raise ValueError(f"there is no slot {slot}")
        return self._slots[slot]

    def _arrange(self, slots: Sequence[int]) -> list[Batch]:
        for batch in self._batches(slots):
            self._shrink(batch, slots)
        # Not before its first pass has a cache the arrays that a batch is made from.
        first = [slot for slot in slots if self.length(slot) == 0]
        begun = [slot for slot in slots if slot not in first]
        if not self._model.can_batch or not begun:
            return [self._alone(slot) for slot in slots]
        batches = self._batches(begun)
        groups = [batch.slots for batch in batches] + [[slot] for slot in begun if self._slots[slot].batch is None]
        sizes = {slot: self._model.cache_bytes(self.length(slot)) for slot in begun}
        chosen = regroup(groups, sizes, self._weights)
        return [self._gather(group) for group in chosen] + [self._alone(slot) for slot in first]

    def _gather(self, group: list[int]) -> Batch:
        """Bring a group together. Batches that are whole in it are joined; others, and single ones, give up rows."""
        if len(group) == 1:
            return self._alone(group[0])
        batches = self._batches(group)
        whole = [batch for batch in batches if batch.merged and all(slot in group for slot in batch.slots)]
        single = [slot for slot in group if self._slots[slot].batch not in whole]
        if single:
            own = [self.own(slot) for slot in single]
            whole.append(Batch(list(single), caches.merge(own)))
        joined = max(whole, key=lambda batch: len(batch.rows))
        for batch in whole:
            if batch is not joined:
                caches.extend(joined.cache, batch.cache)
                joined.rows += batch.rows
        for slot in group:
            self._slots[slot].own, self._slots[slot].batch = None, joined
        return joined

    def _alone(self, slot: int) -> Batch:
        at = self._slots[slot]
        if at.batch is None or at.batch.merged:
            at.batch, at.own = Batch([slot], self.own(slot), merged=False), None
        return at.batch

    def _batches(self, slots: Iterable[int]) -> list[Batch]:
        batches = (self._slots[slot].batch for slot in slots)
        return list({id(batch): batch for batch in batches if batch is not None}.values())

    def _shrink(self, batch: Batch, stay: Container[int]) -> None:
        """Leave only these slots in a batch; the others get caches of their own."""
        rows = [row for row, slot in enumerate(batch.rows) if slot is not None and slot in stay]
        if len(rows) == len(batch.rows):
            return
        leaving = {slot: batch.extract(slot) for slot in batch.slots if slot not in stay}
        caches.begin(*leaving.values())
        for slot, cache in leaving.items():
            self._slots[slot].own, self._slots[slot].batch = cache, None
        if rows:
            batch.keep(rows)
        self._arranged = []

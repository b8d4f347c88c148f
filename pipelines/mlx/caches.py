"""The cache of one sequence, or of a batch of them, as mlx-lm's models use it: a list with one object for each layer.

All that we know of these objects is in here. What changes them builds a graph; `begin` or `evaluate` computes it, and
until then what was taken from a batch holds on to the whole of it. Engine thread only.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import (
    ArraysCache,
    BatchRotatingKVCache,
    CacheList,
    KVCache,
    RotatingKVCache,
    make_prompt_cache,
)

Cache = list[Any]


@dataclass(frozen=True, slots=True)
class Leaf:
    """What one layer's cache takes: bytes for each token, or for those of a window, and bytes for all together."""

    per_token: int
    fixed: int
    window: int | None

    def nbytes(self, tokens: int) -> int:
        """The bytes of so many tokens."""
        return self.fixed + self.per_token * (tokens if self.window is None else min(tokens, self.window))


def new(network: Any) -> Cache:
    """Make an empty cache for a sequence."""
    cache: Cache = make_prompt_cache(network)
    return cache


def leaves(cache: Cache) -> Iterator[Any]:
    """The objects that hold arrays, with those inside of others."""
    for layer in cache:
        if isinstance(layer, CacheList):
            yield from leaves(list(layer.caches))
        else:
            yield layer


def can_batch(cache: Cache) -> bool:
    """Whether caches of this kind can lie in one batch and be taken out of it again."""
    # A merged rotating cache forgets which of its first tokens it was to keep.
    return all(hasattr(leaf, "merge") and not getattr(leaf, "keep", 0) for leaf in leaves(cache))


def can_cut(cache: Cache, tokens: int) -> bool:
    """Whether a cache of this kind that holds `tokens` could be cut back: no running state, and nothing forgotten."""
    return all(
        leaf.is_trimmable() and not (isinstance(leaf, RotatingKVCache) and tokens >= leaf.max_size)
        for leaf in leaves(cache)
    )


def measure(cache: Cache) -> list[Leaf]:
    """Give what each layer takes, of a cache that has held a token."""
    return [_measured(leaf) for leaf in leaves(cache)]


def arrays(cache: Cache) -> list[mx.array]:
    """All arrays of a cache."""
    return list(_arrays([leaf.state for leaf in leaves(cache)]))


def begin(*caches: Cache) -> None:
    """Begin to compute what is outstanding, so that each cache soon holds nothing but itself."""
    mx.async_eval([array for cache in caches for array in arrays(cache)])


def evaluate(*caches: Cache) -> None:
    """Compute what is outstanding, so that each cache holds nothing but itself, and any thread may read it."""
    mx.eval([array for cache in caches for array in arrays(cache)])


def merge(caches: Sequence[Cache]) -> Cache:
    """Make a batch of the caches of sequences; they stay as they are."""
    return [layers[0].merge(list(layers)) for layers in zip(*caches, strict=True)]


def extend(batch: Cache, other: Cache) -> None:
    """Add the rows of another batch behind those of a batch. The other is of no use afterwards."""
    for layer, more in zip(batch, other, strict=True):
        layer.extend(more)


def extract(batch: Cache, row: int) -> Cache:
    """Give the cache of one row; the batch stays as it is."""
    return [layer.extract(row) for layer in batch]


def keep(batch: Cache, rows: Sequence[int]) -> None:
    """Leave only these rows in a batch."""
    for layer in batch:
        layer.filter(list(rows))


def fork(cache: Cache) -> Cache:
    """Give a second cache with the same content. Buffers are shared until one of the two writes."""
    return copy.deepcopy(cache)


def cut(cache: Cache, tokens: int) -> None:
    """Take the last `tokens` from a cache that `can_cut`."""
    for leaf in leaves(cache):
        if leaf.trim(tokens) != tokens:
            raise RuntimeError(f"a cache that can be cut was not cut by {tokens} tokens")


@dataclass(frozen=True, slots=True)
class Undo:
    """What takes the last token from each row of a cache: for each leaf what it was, or None where it can be cut."""

    before: list[Any]

    def of_row(self, row: int) -> "Undo":
        """The same for one row of a batch."""
        return Undo([None if leaf is None else leaf.extract(row) for leaf in self.before])

    def keep(self, rows: Sequence[int]) -> None:
        """Only these rows are left in the batch."""
        keep([leaf for leaf in self.before if leaf is not None], rows)

    def apply(self, cache: Cache) -> None:
        """Make the cache what it was before the last token."""
        for leaf, before in zip(leaves(cache), self.before, strict=True):
            if before is not None:
                vars(leaf).update(vars(before))
            elif leaf.trim(1) != 1:
                raise RuntimeError("a cache that can be cut was not cut by a token")


def undo_of_next(cache: Cache, spare: int) -> Undo | None:
    """Give what will take back the token that comes next. None where keeping that would cost more than `spare` bytes.

    A running state is replaced by each token: the one before is kept for nothing. A window that is full is written
    over: as long as two share it, each token copies it.
    """
    before: list[Any] = []
    for leaf in leaves(cache):
        if isinstance(leaf, ArraysCache):
            before.append(copy.deepcopy(leaf))
        elif not isinstance(leaf, RotatingKVCache | BatchRotatingKVCache) or _has_room(leaf):
            before.append(None)
        else:
            before.append(copy.deepcopy(leaf))
            spare -= leaf.nbytes
    return Undo(before) if spare >= 0 else None


def _has_room(leaf: Any) -> bool:
    held: int = leaf.offset if isinstance(leaf, RotatingKVCache) else leaf._offset
    window: int = leaf.max_size
    return held + 1 < window


def exact(cache: Cache) -> Cache:
    """Give a cache with the same content, as far as possible without the room that lies behind it."""
    return [_exact(layer) for layer in cache]


def _exact(layer: Any) -> Any:
    if isinstance(layer, KVCache) and not layer.empty():
        keys, values = layer.keys_and_values()
        return KVCache.from_state((keys, values, layer.offset))
    if isinstance(layer, CacheList):
        return CacheList(*map(_exact, layer.caches))
    if isinstance(layer, RotatingKVCache) and not layer.keep and not layer.empty():
        return layer.merge([layer]).extract(0)
    return layer


def _measured(leaf: Any) -> Leaf:
    if isinstance(leaf, ArraysCache) or not hasattr(leaf, "keys"):
        return Leaf(0, sum(array.nbytes for array in _arrays(leaf.state)), None)
    per_token = sum(array.nbytes // array.shape[2] for array in _arrays([leaf.keys, leaf.values]))
    return Leaf(per_token, 0, getattr(leaf, "max_size", None))


def _arrays(tree: Any) -> Iterator[mx.array]:
    if isinstance(tree, mx.array):
        yield tree
    elif isinstance(tree, list | tuple):
        for branch in tree:
            yield from _arrays(branch)
    elif isinstance(tree, dict):
        for branch in tree.values():
            yield from _arrays(branch)

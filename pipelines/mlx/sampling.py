"""From logits to tokens, on the device, for all rows of a pass at once. Engine thread only.

What differs from row to row is worked out on the host first, so that what goes wrong there concerns one row: which
token's logits are changed by how much, and the point in the distribution where a random choice falls. That point is
drawn from the row's own seed: a round gives the same whatever else is in the batch.
"""

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import mlx.core as mx
import numpy as np

from tenuto.pipelines.backend import Bitmask, Sampling, TokenLogprob
from tenuto.pipelines.checks import check_sampling

_COLDEST = 1e-3  # below it logits divided by the temperature leave the range of a float
_POINT_BITS = 23  # a point of so many bits, times a sum of weights, is always below the sum in single precision
_REPETITION_WINDOW = 64
_ALL = 0xFFFFFFFF


class Way(IntEnum):
    """How a row's token is chosen: the likeliest, by chance among all, or by chance among the first in rank."""

    LIKELIEST = 0
    DRAWN = 1
    RANKED = 2


@dataclass(frozen=True, slots=True)
class Order:
    """All that the device needs to choose a row's token."""

    sampling: Sampling
    way: Way
    point: float = 0.0
    biases: Sequence[tuple[int, float]] = ()
    repeated: Sequence[int] = ()
    """Tokens that the repetition penalty falls on, each once."""
    penalties: Sequence[tuple[int, float]] = ()
    mask: Bitmask | None = None


class MlxSampler:
    """The sampling state of one round: its random numbers, and the tokens that penalties look at."""

    def __init__(self, sampling: Sampling, before: Sequence[int], vocabulary: int, said: Sequence[int] = ()) -> None:
        check_sampling(sampling, vocabulary)
        self.sampling = sampling
        self._vocabulary = vocabulary
        self._dice = random.Random(sampling.seed)
        self._recent = deque(before[-_REPETITION_WINDOW:], _REPETITION_WINDOW)
        self._sampled: Counter[int] = Counter()
        self.is_open = True
        for token in said:
            self._point()
            self.accept(token)

    def order(self, mask: Bitmask | None) -> Order:
        """Say how the next token is chosen.

        Raises:
            ValueError: the mask is not one for this vocabulary.
        """
        sampling = self.sampling
        _check_mask(mask, self._vocabulary)
        return Order(
            sampling=sampling,
            way=_way(sampling),
            point=self._point(),
            biases=sampling.logit_bias,
            repeated=sorted(set(self._recent)) if sampling.repetition_penalty != 1 else (),
            penalties=[
                (token, -sampling.presence_penalty - count * sampling.frequency_penalty)
                for token, count in self._sampled.items()
            ],
            mask=mask,
        )

    def _point(self) -> float:
        """Where in the distribution the next random choice falls."""
        return self._dice.getrandbits(_POINT_BITS) / (1 << _POINT_BITS) if self.sampling.temperature else 0.0

    def accept(self, token: int) -> None:
        """A token was sampled."""
        if self.sampling.shapes:
            self._recent.append(token)
            self._sampled[token] += 1

    def close(self) -> None:
        """Free it."""
        self.is_open = False


@dataclass(slots=True)
class ChosenTokens:
    """The tokens of the rows of a pass, as a graph that is being computed."""

    logits: mx.array = field(repr=False)
    """What the tokens are chosen from, masks applied."""
    tokens: mx.array
    greatest: mx.array
    """For each row its greatest logit: where that is not finite, the token is none."""
    told: "Told | None"

    def arrays(self) -> list[mx.array]:
        """What must be computed before it can be read."""
        return [self.tokens, self.greatest, *([] if self.told is None else self.told.arrays())]


@dataclass(slots=True)
class Told:
    """The logprobs of those rows that ask for them."""

    rows: dict[int, int]
    """From the rows of the pass to those of the arrays."""
    chosen: mx.array
    top_tokens: mx.array
    top: mx.array

    def arrays(self) -> list[mx.array]:
        """What must be computed before it can be read."""
        return [self.chosen, self.top_tokens, self.top]

    def of(self, row: int, token: int, alternatives: int) -> TokenLogprob:
        """Read a row of the pass."""
        at = self.rows[row]
        tokens, values = self.top_tokens[at].tolist()[:alternatives], self.top[at].tolist()[:alternatives]
        return TokenLogprob(token, self.chosen[at].item(), tuple(zip(tokens, values, strict=True)))


def choose(logits: mx.array, orders: Sequence[Order]) -> ChosenTokens:
    """Build the graph that chooses a token for each row of logits."""
    shaped = _mask(_shape(logits, orders), orders)
    tokens = _tokens(shaped, orders)
    return ChosenTokens(shaped, tokens, mx.max(shaped, axis=-1), _tell(logits, tokens, orders))


def _check_mask(mask: Bitmask | None, vocabulary: int) -> None:
    words = -(-vocabulary // 32)
    if mask is not None and (mask.ndim != 1 or mask.itemsize != 4 or mask.size < words):
        raise ValueError(f"a mask for {vocabulary} tokens has {words} words of 32 bits")


def _way(sampling: Sampling) -> Way:
    if sampling.temperature == 0:
        return Way.LIKELIEST
    return Way.RANKED if sampling.top_k or sampling.top_p < 1 else Way.DRAWN


def _shape(logits: mx.array, orders: Sequence[Order]) -> mx.array:
    """Add biases, then apply the repetition penalty, then presence and frequency."""
    logits = _add(logits, [order.biases for order in orders])
    repeated = [(row, token) for row, order in enumerate(orders) for token in order.repeated]
    if repeated:
        at = _places(repeated)
        by = mx.array([orders[row].sampling.repetition_penalty for row, _ in repeated])
        logits = logits.astype(mx.float32)
        values = logits[at]
        logits[at] = mx.where(values > 0, values / by, values * by)
    return _add(logits, [order.penalties for order in orders])


def _add(logits: mx.array, changes: Sequence[Sequence[tuple[int, float]]]) -> mx.array:
    entries = [(row, token, value) for row, of_row in enumerate(changes) for token, value in of_row if value]
    if not entries:
        return logits
    values = mx.array([value for _, _, value in entries])
    return logits.astype(mx.float32).at[_places([entry[:2] for entry in entries])].add(values)


def _places(entries: Sequence[tuple[int, int]]) -> tuple[mx.array, mx.array]:
    return mx.array([row for row, _ in entries]), mx.array([token for _, token in entries])


def _mask(logits: mx.array, orders: Sequence[Order]) -> mx.array:
    """Set the logits of all tokens that a mask does not allow to minus infinity."""
    if all(order.mask is None for order in orders):
        return logits
    words = np.full((len(orders), -(-logits.shape[-1] // 32)), _ALL, np.uint32)
    for row, order in enumerate(orders):
        if order.mask is not None:
            words[row] = order.mask.view(np.uint32)[: words.shape[1]]
    return apply_masks(logits, words)


def _apply_portably(logits: mx.array, words: np.ndarray[Any, np.dtype[np.uint32]]) -> mx.array:
    bits = (mx.array(words)[:, :, None] >> mx.arange(32, dtype=mx.uint32)) & 1
    allowed = bits.reshape(len(words), -1)[:, : logits.shape[-1]].astype(mx.bool_)
    return mx.where(allowed, logits, mx.array(-math.inf, logits.dtype))


def _apply_on_metal(logits: mx.array, words: np.ndarray[Any, np.dtype[np.uint32]]) -> mx.array:
    from llguidance.mlx import apply_token_bitmask

    return apply_token_bitmask(logits, words.view(np.int32))


apply_masks: Callable[[mx.array, np.ndarray[Any, np.dtype[np.uint32]]], mx.array] = (
    _apply_on_metal if mx.metal.is_available() else _apply_portably
)


def _tokens(logits: mx.array, orders: Sequence[Order]) -> mx.array:
    by_way = {Way.LIKELIEST: _likeliest, Way.DRAWN: _drawn, Way.RANKED: _ranked}
    order_of_parts: list[int] = []
    parts: list[mx.array] = []
    for way in sorted({order.way for order in orders}):
        rows = [row for row, order in enumerate(orders) if order.way is way]
        part = logits if len(rows) == len(orders) else logits[mx.array(rows)]
        parts.append(by_way[way](part, [orders[row] for row in rows]))
        order_of_parts += rows
    if len(parts) == 1:
        return parts[0]
    return mx.concatenate(parts)[mx.array(np.argsort(order_of_parts))]


def _likeliest(logits: mx.array, _orders: Sequence[Order]) -> mx.array:
    return mx.argmax(logits, axis=-1)


def _drawn(logits: mx.array, orders: Sequence[Order]) -> mx.array:
    logits = logits.astype(mx.float32)
    return _fall(logits, _least(logits, orders), orders)


def _ranked(logits: mx.array, orders: Sequence[Order]) -> mx.array:
    """Filter as llama.cpp does by default: top_k, then top_p of what is left, then min_p, then the temperature."""
    logits = logits.astype(mx.float32)
    size = logits.shape[-1]
    count = max(order.sampling.top_k or size for order in orders)
    if count < size:
        candidates = mx.argpartition(-logits, count - 1, axis=-1)[:, :count]
        by_rank = mx.argsort(-mx.take_along_axis(logits, candidates, axis=-1), axis=-1)
        ranking = mx.take_along_axis(candidates, by_rank, axis=-1)
    else:
        ranking = mx.argsort(-logits, axis=-1)
    ranked = mx.take_along_axis(logits, ranking, axis=-1)
    rank = mx.arange(ranked.shape[-1])
    ranked = mx.where(rank < _column([order.sampling.top_k or size for order in orders], mx.int32), ranked, -math.inf)
    chances = mx.softmax(ranked, axis=-1)
    before = mx.cumsum(chances, axis=-1) - chances
    kept = (before < _column([min(order.sampling.top_p, 1.0) for order in orders])) | (rank == 0)
    # Nothing is left out by a top_p of 1, not even where rounding makes the sum of what comes before as much.
    kept |= _column([order.sampling.top_p >= 1 for order in orders], mx.bool_)
    ranked = mx.where(kept, ranked, -math.inf)
    fallen = _fall(ranked, _least(ranked, orders), orders)
    return mx.take_along_axis(ranking, fallen[:, None], axis=-1)[:, 0]


def _least(logits: mx.array, orders: Sequence[Order]) -> mx.array:
    """The logit that min_p asks for at least, by row; the greatest there is always reaches it."""
    of_greatest = [math.log(min(order.sampling.min_p, 1.0)) if order.sampling.min_p else -math.inf for order in orders]
    return mx.max(logits, axis=-1, keepdims=True) + _column(of_greatest)


def _fall(logits: mx.array, least: mx.array, orders: Sequence[Order]) -> mx.array:
    """Where the point of each row falls, if each column is as wide as its chance."""
    coldness = _column([1 / max(order.sampling.temperature, _COLDEST) for order in orders])
    weights = mx.exp((logits - mx.max(logits, axis=-1, keepdims=True)) * coldness)
    ends = mx.cumsum(mx.where(logits >= least, weights, 0), axis=-1)
    points = _column([order.point for order in orders]) * ends[:, -1:]
    return mx.argmax(ends > points, axis=-1)


def _column(values: Sequence[float], dtype: Any = mx.float32) -> mx.array:
    return mx.array(values, dtype)[:, None]


def _tell(logits: mx.array, tokens: mx.array, orders: Sequence[Order]) -> Told | None:
    """The logprobs of the model's own distribution, before anything changes it."""
    asked = [row for row, order in enumerate(orders) if order.sampling.logprobs is not None]
    if not asked:
        return None
    rows = mx.array(asked)
    own = logits[rows].astype(mx.float32)
    own = own - mx.logsumexp(own, axis=-1, keepdims=True)
    count = min(max(orders[row].sampling.logprobs or 0 for row in asked), own.shape[-1])
    best = mx.argpartition(-own, max(count - 1, 0), axis=-1)[:, :count]
    values = mx.take_along_axis(own, best, axis=-1)
    by_rank = mx.argsort(-values, axis=-1)
    return Told(
        {row: at for at, row in enumerate(asked)},
        mx.take_along_axis(own, tokens[rows][:, None], axis=-1)[:, 0],
        mx.take_along_axis(best, by_rank, axis=-1),
        mx.take_along_axis(values, by_rank, axis=-1),
    )

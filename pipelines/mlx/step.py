"""A step of an MLX model that is under way: whose tokens are being chosen, and how to read them. Engine thread only."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tenuto.errors import GenerationFailed
from tenuto.pipelines.backend import Row, RowFailed, Sampled, TokenLogprob
from tenuto.pipelines.mlx.sampling import ChosenTokens, MlxSampler, Order, choose


@dataclass(slots=True)
class Chosen:
    """The rows of one pass whose tokens are being chosen."""

    rows: list[int]
    choice: ChosenTokens


@dataclass(slots=True)
class MlxPending:
    """A step that is under way."""

    rows: Sequence[Row]
    failed: dict[int, RowFailed] = field(default_factory=dict)
    chosen: list[Chosen] = field(default_factory=list, repr=False)
    fed: list[mx.array] = field(default_factory=list, repr=False)
    """What must be computed for the tokens that were fed without a sample."""

    @property
    def logits(self) -> list[NDArray[np.float32] | None]:
        """What each row's token was chosen from, its mask applied."""
        logits: list[NDArray[np.float32] | None] = [None] * len(self.rows)
        for chosen in self.chosen:
            of_rows = np.array(chosen.choice.logits.astype(mx.float32))
            for row, of_row in zip(chosen.rows, of_rows, strict=True):
                logits[row] = of_row
        return logits


def choose_tokens(step: MlxPending, rows: list[int], logits: mx.array) -> None:
    """Begin to choose a token for each of these rows, from the logits of each."""
    orders: dict[int, Order] = {}
    for place, row in enumerate(rows):
        sampler = step.rows[row].sampler
        assert isinstance(sampler, MlxSampler)
        try:
            orders[place] = sampler.order(step.rows[row].mask)
        except Exception as error:  # a sampler that fails is its own row's affair
            step.failed[row] = RowFailed(error)
    if not orders:
        return
    if len(orders) < len(rows):
        logits = logits[mx.array(list(orders))]
    choice = choose(logits, list(orders.values()))
    step.chosen.append(Chosen([rows[place] for place in orders], choice))
    mx.async_eval(choice.arrays())


def read_tokens(step: MlxPending, chosen: Chosen, sampled: Sampled) -> None:
    """Put the tokens that have been chosen, and computed, where their rows are."""
    tokens: list[Any] = chosen.choice.tokens.tolist()
    greatest: list[Any] = chosen.choice.greatest.tolist()
    for place, row in enumerate(chosen.rows):
        sampler = step.rows[row].sampler
        assert isinstance(sampler, MlxSampler)
        if not math.isfinite(greatest[place]):
            error = GenerationFailed("no token is allowed, or the model's output is not finite")
            sampled[row] = RowFailed(error)
            continue
        try:
            sampler.accept(tokens[place])
        except Exception as error:  # as in choose_tokens
            sampled[row] = RowFailed(error)
            continue
        told, alternatives = chosen.choice.told, sampler.sampling.logprobs
        if told is not None and alternatives is not None:
            sampled[row] = told.of(place, tokens[place], alternatives)
        else:
            sampled[row] = tokens[place]


def token_of(sample: int | TokenLogprob | RowFailed | None) -> int | None:
    """The token of a row, where it has one."""
    if isinstance(sample, TokenLogprob):
        return sample.token
    return sample if isinstance(sample, int) else None

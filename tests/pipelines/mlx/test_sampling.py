"""How tokens are chosen from logits: each way against the plain definition, over a distribution that is known."""

from collections import Counter
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.mlx.sampling import MlxSampler, choose

SIZE = 12
LOGITS = np.array([0.5, 3.0, -1.0, 2.0, 2.9, 0.0, -4.0, 1.0, 1.5, 2.5, -0.5, 0.1], np.float32)
DRAWS = 4000


def draw(sampling: Sampling, logits: Any = LOGITS, count: int = DRAWS, before: tuple[int, ...] = ()) -> Counter[int]:
    """How often each token comes, all draws by one sampler and as rows of one pass."""
    sampler = MlxSampler(sampling, before, SIZE)
    orders = [sampler.order(None) for _ in range(count)]
    choice = choose(mx.array(np.tile(logits, (count, 1))), orders)
    return Counter(np.array(choice.tokens).tolist())


def one(sampling: Sampling, sampled: tuple[int, ...] = (), before: tuple[int, ...] = ()) -> int:
    """The token that follows after some were sampled in the round, and others before it."""
    sampler = MlxSampler(sampling, before, SIZE)
    for token in sampled:
        sampler.accept(token)
    chosen: int = choose(mx.array(LOGITS[None]), [sampler.order(None)]).tokens.item()
    return chosen


def chances(logits: Any, kept: Any, temperature: float) -> Any:
    weights = np.where(kept, np.exp((logits - logits.max()) / temperature), 0)
    return weights / weights.sum()


RANKS = np.argsort(np.argsort(-LOGITS))
SOFTMAX = chances(LOGITS, True, 1.0)
BEFORE = np.array([SOFTMAX[rank > RANKS].sum() for rank in RANKS])
TOP_4 = chances(LOGITS, RANKS < 4, 1.0)
BEFORE_IN_TOP_4 = np.array([TOP_4[rank > RANKS].sum() for rank in RANKS])
FILTERS: dict[str, tuple[dict[str, Any], Any]] = {
    "none": ({}, RANKS >= 0),
    "top_k": ({"top_k": 3}, RANKS < 3),
    "a top_k of more than there are": ({"top_k": 100}, RANKS >= 0),
    "top_p": ({"top_p": 0.8}, BEFORE < 0.8),
    "a top_p of nothing": ({"top_p": 0.0}, RANKS < 1),
    "min_p": ({"min_p": 0.3}, SOFTMAX / SOFTMAX.max() >= 0.3),
    "a min_p of more than all": ({"min_p": 2.0}, RANKS < 1),
    "top_k, then top_p of what is left": ({"top_k": 4, "top_p": 0.6}, (RANKS < 4) & (BEFORE_IN_TOP_4 < 0.6)),
    "top_p and min_p": ({"top_p": 0.95, "min_p": 0.3}, (BEFORE < 0.95) & (SOFTMAX / SOFTMAX.max() >= 0.3)),
}


@pytest.mark.parametrize("case", FILTERS)
@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_tokens_come_as_often_as_the_filters_and_the_temperature_say(case: str, temperature: float) -> None:
    filters, kept = FILTERS[case]
    came = draw(Sampling(temperature, seed=5, **filters))
    expected = chances(LOGITS, kept, temperature)
    assert set(came) <= set(np.flatnonzero(kept).tolist())
    for token in range(SIZE):
        deviation = np.sqrt(expected[token] * (1 - expected[token]) / DRAWS)
        assert abs(came[token] / DRAWS - expected[token]) < 5 * deviation + 1e-3


@pytest.mark.parametrize("filters", [{}, {"top_k": 5, "top_p": 0.9, "min_p": 0.01}])
def test_the_coldest_chance_is_the_likeliest(filters: dict[str, Any]) -> None:
    assert set(draw(Sampling(1e-9, **filters), count=50)) == {1}


def test_rows_of_every_kind_in_one_pass_get_what_each_gets_alone() -> None:
    ways = [
        Sampling(),
        Sampling(1.2, seed=1),
        Sampling(1.2, top_k=4, seed=2),
        Sampling(logit_bias=((6, 90.0),)),
        Sampling(0.8, top_p=0.7, seed=3, logprobs=2),
        Sampling(logprobs=5),
        Sampling(0.8, min_p=0.2, seed=4, presence_penalty=1.0, repetition_penalty=1.3),
    ]
    rows = np.random.default_rng(0).normal(0, 3, (len(ways), SIZE)).astype(np.float32)
    orders = [MlxSampler(way, (3, 4), SIZE).order(None) for way in ways]
    together = choose(mx.array(rows), orders)
    for at, order in enumerate(orders):
        single = choose(mx.array(rows[at : at + 1]), [order])
        assert together.tokens[at].item() == single.tokens.item()
        if order.sampling.logprobs is not None:
            assert together.told is not None
            assert single.told is not None
            token = single.tokens.item()
            told = together.told.of(at, token, order.sampling.logprobs)
            assert told == single.told.of(0, token, order.sampling.logprobs)
            assert len(told.top) == order.sampling.logprobs


def test_presence_counts_once_and_frequency_each_time_what_the_round_has_sampled() -> None:
    assert one(Sampling(presence_penalty=0.2), sampled=(1,)) == 4
    assert one(Sampling(presence_penalty=0.05), sampled=(1, 1, 1)) == 1
    assert one(Sampling(frequency_penalty=0.05), sampled=(1, 1, 1)) == 4
    assert one(Sampling(frequency_penalty=9.0, presence_penalty=9.0), before=(1, 1, 1)) == 1


def test_a_sampler_goes_on_after_what_was_said_with_the_next_random_number_and_all_counts() -> None:
    sampling = Sampling(1.0, seed=7, presence_penalty=0.3, frequency_penalty=0.2, repetition_penalty=1.2)
    whole, said = MlxSampler(sampling, (1, 2), SIZE), (3, 3, 5)
    for token in said:
        whole.order(None)
        whole.accept(token)
    assert MlxSampler(sampling, (1, 2), SIZE, said).order(None) == whole.order(None)
    greedy = Sampling(presence_penalty=0.3)
    assert MlxSampler(greedy, (), SIZE, (1,)).order(None).penalties == [(1, -0.3)]


def test_the_repetition_penalty_falls_on_the_last_64_tokens_with_the_prompt() -> None:
    assert one(Sampling(repetition_penalty=1.1), before=(1,)) == 4
    assert one(Sampling(repetition_penalty=1.1), before=(1, *[5] * 64)) == 1
    assert one(Sampling(repetition_penalty=1.1), before=(1, *[5] * 60), sampled=(5,) * 4) == 1
    # What is below zero gets farther from it.
    logits = np.full(SIZE, -1.0, np.float32)
    logits[7] = -0.9
    order = MlxSampler(Sampling(repetition_penalty=2.0), (7,), SIZE).order(None)
    assert choose(mx.array(logits[None]), [order]).tokens.item() == 0


def test_biases_of_one_token_add_up() -> None:
    assert one(Sampling(logit_bias=((6, 4.0), (6, 4.0)))) == 6


def test_a_mask_allows_what_it_names() -> None:
    masks = [np.array([1 << 6 | 1 << 2], np.uint32), None, np.array([1 << 11, 77], np.uint32)]
    orders = [MlxSampler(Sampling(), (), SIZE).order(mask) for mask in masks]
    assert choose(mx.array(np.tile(LOGITS, (3, 1))), orders).tokens.tolist() == [2, 1, 11]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("top_k", [0, 3])
def test_logits_that_are_no_numbers_give_no_token(temperature: float, top_k: int) -> None:
    rows = np.tile(LOGITS, (3, 1))
    rows[0, 5] = np.nan
    rows[2] = -np.inf
    sampler = MlxSampler(Sampling(temperature, top_k=top_k), (), SIZE)
    choice = choose(mx.array(rows), [sampler.order(None) for _ in rows])
    assert np.isfinite(np.array(choice.greatest)).tolist() == [False, True, False]


BAD = [
    {"temperature": -1.0},
    {"temperature": float("nan")},
    {"top_p": -0.1},
    {"min_p": float("inf")},
    {"top_k": -1},
    {"presence_penalty": float("nan")},
    {"repetition_penalty": 0.0},
    {"logit_bias": ((SIZE, 1.0),)},
    {"logit_bias": ((0, float("inf")),)},
    {"logprobs": -1},
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_a_parameter_out_of_its_range_is_refused(case: int) -> None:
    with pytest.raises(ValueError, match="Sampling"):
        MlxSampler(Sampling(**BAD[case]), (), SIZE)  # type: ignore[arg-type]  # wrong values are the point


def test_what_the_model_rules_out_has_a_logprob_of_minus_infinity() -> None:
    sampler = MlxSampler(Sampling(logprobs=3), (), 3)
    choice = choose(mx.array([[1.0, float("-inf"), 0.0]]), [sampler.order(None)])
    assert choice.told is not None
    assert choice.told.of(0, 0, 3).top[2] == (1, float("-inf"))

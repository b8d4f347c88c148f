"""From logits to tokens: masks, greedy choice and native sampler chains. Engine thread only."""

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import llama_cpp as lib
import numpy as np

from tenuto.pipelines.backend import Bitmask, Sampling, TokenLogprob
from tenuto.pipelines.checks import check_sampling
from tenuto.pipelines.llama_cpp.context import Logits
from tenuto.sessions.image_tokens import is_image_token

_COLDEST = 1e-3  # below it logits divided by the temperature leave the range of a float
_ANY_SEED = 0xFFFFFFFF  # the library takes this one as "choose a seed"
_REPETITION_WINDOW = 64

# What each of the 256 patterns of eight mask bits adds to eight logits: several times as fast as unpacking the bits.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_PENALTIES = np.where(_BITS == 1, 0.0, -np.inf).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Size:
    """What a sampler must know of its model: the vocabulary, and how many tokens a sequence may have."""

    vocabulary: int
    context: int


class LlamaSampler:
    """The sampling state of one round: a native chain, or none where the plainly likeliest token is taken."""

    def __init__(self, sampling: Sampling, before: Sequence[int], size: Size, said: Sequence[int] = ()) -> None:
        check_sampling(sampling, size.vocabulary)
        self.logprobs = sampling.logprobs
        self.is_greedy = sampling.temperature == 0
        self.chain = None if self.is_greedy and not sampling.shapes else _chain(sampling, before, size)
        if self.chain is not None:
            _go_on(self.chain, said, draws=not self.is_greedy)
        self._closed = False

    @property
    def is_open(self) -> bool:
        """Whether it may still be used."""
        return not self._closed

    def close(self) -> None:
        """Free the chain."""
        if self.chain is not None:
            lib.llama_sampler_free(self.chain)
            self.chain = None
        self._closed = True


def _chain(sampling: Sampling, before: Sequence[int], size: Size) -> Any:
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    for sampler in (*_shapers(sampling, before, size), *_choosers(sampling)):
        lib.llama_sampler_chain_add(chain, sampler)
    return chain


def _go_on(chain: Any, said: Sequence[int], *, draws: bool) -> None:
    """Bring a chain to where it stood when it had sampled these tokens.

    What draws comes last, and takes one random number a token, whatever it chooses from.
    """
    if draws:
        dice = lib.llama_sampler_chain_get(chain, lib.llama_sampler_chain_n(chain) - 1)
        only = (lib.llama_token_data * 1)(lib.llama_token_data(0, 0.0, 0.0))
        choice = lib.llama_token_data_array(only, 1, -1, False)
        for _ in said:
            lib.llama_sampler_apply(dice, ctypes.byref(choice))
    for token in said:
        lib.llama_sampler_accept(chain, token)


def _shapers(sampling: Sampling, before: Sequence[int], size: Size) -> list[Any]:
    """What changes logits before a token is chosen. The chain tells each of them what was sampled."""
    shapers = []
    if sampling.logit_bias:
        entries = (lib.llama_logit_bias * len(sampling.logit_bias))()
        for place, (token, bias) in enumerate(sampling.logit_bias):
            entries[place] = lib.llama_logit_bias(token, bias)
        shapers.append(lib.llama_sampler_init_logit_bias(size.vocabulary, len(entries), entries))
    if sampling.repetition_penalty != 1:
        repetition = _penalties(size, _REPETITION_WINDOW, repetition=sampling.repetition_penalty)
        for token in before[-_REPETITION_WINDOW:]:
            if not is_image_token(token):
                lib.llama_sampler_accept(repetition, token)
        shapers.append(repetition)
    if sampling.presence_penalty or sampling.frequency_penalty:
        frequency, presence = sampling.frequency_penalty, sampling.presence_penalty
        shapers.append(_penalties(size, size.context, frequency=frequency, presence=presence))
    return shapers


def _penalties(size: Size, window: int, *, repetition: float = 1, frequency: float = 0, presence: float = 0) -> Any:
    return lib.llama_sampler_init_penalties(size.vocabulary, window, repetition, frequency, presence)


def _choosers(sampling: Sampling) -> list[Any]:
    if sampling.temperature == 0:
        return [lib.llama_sampler_init_greedy()]
    choosers = []
    if sampling.top_k:
        choosers.append(lib.llama_sampler_init_top_k(sampling.top_k))
    if sampling.top_p < 1:
        choosers.append(lib.llama_sampler_init_top_p(sampling.top_p, 1))
    if sampling.min_p > 0:
        choosers.append(lib.llama_sampler_init_min_p(sampling.min_p, 1))
    choosers.append(lib.llama_sampler_init_temp(max(sampling.temperature, _COLDEST)))
    seed = _ANY_SEED if sampling.seed is None else sampling.seed % _ANY_SEED
    return [*choosers, lib.llama_sampler_init_dist(seed)]


def apply_mask(row: Logits, mask: Bitmask) -> None:
    """Set the logits of all tokens that the mask does not allow to minus infinity, in place.

    Raises:
        ValueError: the mask is not one for this vocabulary.
    """
    if mask.ndim != 1 or mask.itemsize != 4 or mask.size < (row.size + 31) // 32:
        raise ValueError(f"a mask for {row.size} tokens has {(row.size + 31) // 32} words of 32 bits")
    octets = np.ascontiguousarray(mask).view(np.uint8)[: (row.size + 7) // 8]
    row += np.take(_PENALTIES, octets, axis=0).reshape(-1)[: row.size]


def likeliest(logits: Logits) -> list[int]:
    """Give for each row the token with the greatest logit; one whose logit is not finite is no answer."""
    tokens: list[int] = logits.argmax(axis=1).tolist()
    return tokens


def logprobs(row: Logits, alternatives: int) -> Callable[[int], TokenLogprob]:
    """Read the distribution of a row as the model gave it, before anything changes the row; gives what to ask of it."""
    highest = float(row.max())
    normaliser = highest + math.log(float(np.exp((row - highest).astype(np.float64)).sum()))
    original = row.copy()
    count = min(alternatives, row.size)
    best = np.argpartition(row, row.size - count)[row.size - count :] if count else np.empty(0, np.int64)
    best = best[np.argsort(-row[best], kind="stable")]
    top = tuple((int(token), float(row[token]) - normaliser) for token in best)
    return lambda token: TokenLogprob(token, float(original[token]) - normaliser, top)

"""From logits to tokens: masks, greedy choice and native sampler chains. Engine thread only."""

import math
from typing import Any

import llama_cpp as lib
import numpy as np

from tenuto.pipelines.base import Bitmask, Sampling
from tenuto.pipelines.llama_cpp.context import Logits

_COLDEST = 1e-3  # below it logits divided by the temperature leave the range of a float
_ANY_SEED = 0xFFFFFFFF  # the library takes this one as "choose a seed"

# What each of the 256 patterns of eight mask bits adds to eight logits: several times as fast as unpacking the bits.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_PENALTIES = np.where(_BITS == 1, 0.0, -np.inf).astype(np.float32)


class LlamaSampler:
    """The sampling state of one round: a native chain, or none where the likeliest token is taken."""

    def __init__(self, sampling: Sampling) -> None:
        numbers = (sampling.temperature, sampling.top_p, sampling.min_p)
        if not all(math.isfinite(number) and number >= 0 for number in numbers) or sampling.top_k < 0:
            raise ValueError(f"sampling parameters are finite and not negative: {sampling}")
        self.is_greedy = sampling.temperature == 0
        self.chain = None if self.is_greedy else _chain(sampling)
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


def _chain(sampling: Sampling) -> Any:
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    if sampling.top_k:
        lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_top_k(sampling.top_k))
    if sampling.top_p < 1:
        lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_top_p(sampling.top_p, 1))
    if sampling.min_p > 0:
        lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_min_p(sampling.min_p, 1))
    lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_temp(max(sampling.temperature, _COLDEST)))
    seed = _ANY_SEED if sampling.seed is None else sampling.seed % _ANY_SEED
    lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_dist(seed))
    return chain


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

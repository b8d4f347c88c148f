"""Sequences that generate on a backend, and what they give by themselves."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenuto.pipelines.backend import Row, Sampling
from tenuto.pipelines.mlx import MlxBackend

NEAR = 1e-2
GREEDY = Sampling()


@dataclass
class Stream:
    """A sequence: the slot it lies in, what it is fed next, and what came."""

    slot: int
    feed: list[int]
    held: int = 0
    tokens: list[int] = field(default_factory=list)
    logits: list[Any] = field(default_factory=list)


def prompt(number: int, length: int) -> list[int]:
    """A prompt that no other number has."""
    return [(number * 7919 + place * 31 + place * place) % 256 for place in range(length)]


def step(backend: MlxBackend, streams: Sequence[Stream], sampling: Sampling = GREEDY) -> None:
    """Feed each and sample a token for each."""
    rows = [Row(each.slot, each.held, each.feed, backend.sampler(sampling)) for each in streams]
    pending = backend.launch(rows)
    sampled = backend.collect(pending)
    for each, token, logits in zip(streams, sampled, pending.logits, strict=True):
        assert isinstance(token, int)
        each.held += len(each.feed)
        each.feed = [token]
        each.tokens.append(token)
        each.logits.append(logits)


def alone(backend: MlxBackend, tokens: Sequence[int], count: int) -> Stream:
    """What a prompt gives by itself, in slot 0."""
    stream = Stream(0, list(tokens))
    for _ in range(count):
        step(backend, [stream])
    backend.release(0)
    return stream


def assert_same(one: Stream, other: Stream) -> None:
    """Each choice is the same, or was one between two tokens whose logits are as good as equal; logits are near."""
    for at, (first, second) in enumerate(zip(one.tokens, other.tokens, strict=False)):
        assert np.abs(one.logits[at] - other.logits[at]).max() < NEAR
        if first != second:
            assert abs(one.logits[at][first] - one.logits[at][second]) < NEAR
            return

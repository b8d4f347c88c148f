"""Greedy answers of a pipeline's backend with their logits, and where two of them part."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from tenuto.pipelines.backend import Backend, Row, Sampling
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.loader import LoadSettings, load

NEAR = 1e-2
"""At the first difference the two candidates' logits lie so near in both runs."""

CHUNK = 512
"""Tokens of a prompt in one step."""

Answer = tuple[list[int], list[NDArray[np.float32]]]


@contextmanager
def loaded(model: str, cells: int = 1024) -> Iterator[Pipeline]:
    """A pipeline of one slot, closed afterwards."""
    pipeline = load(model, LoadSettings(slots=1, cells=cells, threads=1))
    yield pipeline
    pipeline.backend.close()


def greedy(backend: Backend, prompt: Sequence[int], stops: frozenset[int], most: int) -> Answer:
    """At most so many tokens, to a stop token, and the logits that each was chosen by."""
    tokens: list[int] = []
    logits: list[NDArray[np.float32]] = []
    held, feed = 0, list(prompt)
    while len(feed) > CHUNK:
        backend.collect(backend.launch([Row(0, held, feed[:CHUNK], None)]))
        held, feed = held + CHUNK, feed[CHUNK:]
    sampler = backend.sampler(Sampling())
    while len(tokens) < most and not (tokens and tokens[-1] in stops):
        pending = backend.launch([Row(0, held, feed, sampler)])
        (token,) = backend.collect(pending)
        assert isinstance(token, int)
        logits.append(np.array(getattr(pending, "logits")[0]))  # noqa: B009 -- of these two backends, not of all
        held += len(feed)
        feed = [token]
        tokens.append(token)
    sampler.close()
    backend.release(0)
    return tokens, logits


def parting(one: Answer, other: Answer) -> int | None:
    """Where two answers part, both candidates being as good there; None where they do not."""
    for at, (first, second) in enumerate(zip(one[0], other[0], strict=False)):
        if first != second:
            for logits in (one[1][at], other[1][at]):
                gap = abs(float(logits[first] - logits[second]))
                assert gap <= NEAR, f"{one[0]} is not {other[0]}; the logits at {at} differ by {gap}"
            return at
    assert one[0] == other[0]
    return None

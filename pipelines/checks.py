"""What every backend holds a step and its sampling to, before anything changes."""

import math
from collections.abc import Callable, Sequence

from tenuto.pipelines.backend import BackendInfo, Row, Sampler, Sampling


def check_sampling(sampling: Sampling, vocabulary: int) -> None:
    """Hold parameters to their ranges.

    Raises:
        ValueError: one is out of its range.
    """
    numbers = (sampling.temperature, sampling.top_p, sampling.min_p)
    if not all(math.isfinite(number) and number >= 0 for number in numbers) or sampling.top_k < 0:
        raise ValueError(f"sampling parameters are finite and not negative: {sampling}")
    added = (sampling.presence_penalty, sampling.frequency_penalty, *(bias for _, bias in sampling.logit_bias))
    if not all(map(math.isfinite, added)) or not 0 < sampling.repetition_penalty < math.inf:
        raise ValueError(f"penalties and biases are finite, and what repetition divides by is above 0: {sampling}")
    if not all(0 <= token < vocabulary for token, _ in sampling.logit_bias):
        raise ValueError(f"a bias is for a token of the vocabulary of {vocabulary}: {sampling}")
    if sampling.logprobs is not None and sampling.logprobs < 0:
        raise ValueError(f"a number of logprobs is not negative: {sampling}")


def check_rows(
    rows: Sequence[Row], info: BackendInfo, vocabulary: int, length: Callable[[int], int], samplers: type[Sampler]
) -> None:
    """Hold a step to what the backend takes. `length` tells how many tokens a slot holds, `samplers` which are its own.

    Raises:
        ValueError: the step is invalid.
    """
    if [row.embeddings is not None for row in rows] == [True]:
        _check_embeddings(rows[0], info)
    elif any(row.embeddings is not None for row in rows):
        raise ValueError("an image is fed in a step of its own")
    elif not rows or sum(len(row.tokens) + len(row.draft) for row in rows) > info.batch_tokens:
        raise ValueError(f"a step takes 1 to {info.batch_tokens} tokens")
    if sum(len(row.draft) for row in rows) > info.drafts:
        raise ValueError(f"a step takes at most {info.drafts} drafted tokens")
    if len({row.slot for row in rows}) < len(rows):
        raise ValueError("a step has one row for each slot")
    for row in rows:
        start = length(row.slot)
        if row.start != start:
            raise ValueError(f"the row starts at {row.start}; its slot holds {start} tokens")
        if start + len(row.tokens) + len(row.draft) > info.cells:
            raise ValueError(f"{start} and {len(row.tokens)} tokens do not fit into {info.cells} cells")
        if row.embeddings is None and (not row.tokens or not _are_known(row.tokens, vocabulary)):
            raise ValueError("a row has tokens, and each is in the vocabulary")
        if row.draft and (row.sampler is None or row.embeddings is not None or not _are_known(row.draft, vocabulary)):
            raise ValueError("a draft is of tokens of the vocabulary, behind tokens after which one is sampled")
        if row.sampler is not None and not (isinstance(row.sampler, samplers) and row.sampler.is_open):
            raise ValueError("a row's sampler is one of this backend, and not closed")


def check_drafted(rows: Sequence[Row], row: int, drafted: int) -> None:
    """Hold what is sampled behind a part of a draft to the step that was collected last; of no step, `rows` are empty.

    Raises:
        ValueError: that step has no such draft.
    """
    if not (row < len(rows) and 0 < drafted <= len(rows[row].draft)):
        raise ValueError("this step is not the last one, or has no such draft")


def _are_known(tokens: Sequence[int], vocabulary: int) -> bool:
    return min(tokens) >= 0 and max(tokens) < vocabulary


def _check_embeddings(row: Row, info: BackendInfo) -> None:
    made = row.embeddings
    assert made is not None
    if not info.reads_images:
        raise ValueError("this model reads no images")
    if not row.tokens or len(made.rows) != len(row.tokens):
        raise ValueError(f"{len(made.rows)} embeddings for {len(row.tokens)} tokens")
    if made.attends_all and len(row.tokens) > info.batch_tokens:
        raise ValueError(f"what attends both ways is fed at once: {info.batch_tokens} tokens at most")

"""The tokens of a step: read from its logits, for all rows that want one and behind what was right of their drafts.

Engine thread only.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tenuto.errors import GenerationFailed
from tenuto.pipelines.backend import Bitmask, Row, RowFailed, Sampled, Sampler, TokenLogprob
from tenuto.pipelines.llama_cpp.context import Context, Logits
from tenuto.pipelines.llama_cpp.sampling import LlamaSampler, apply_mask, likeliest, logprobs


@dataclass(slots=True)
class LlamaPending:
    """A step that is under way."""

    rows: Sequence[Row]
    order: list[int]
    """Indices of `rows` in the order in which the batch holds them."""
    logits: list[Logits | None] = field(default_factory=list, repr=False)
    """After collect and until the next launch: what each row's token was chosen from, its mask applied."""
    all_logits: Logits | None = field(default=None, repr=False)
    """Likewise, those behind drafted tokens too: for each row that wants any one behind the other."""
    firsts: dict[int, int] = field(default_factory=dict)
    """Which of them is the first of a row."""
    likeliest: Sequence[int] = ()
    """For each of them, before a mask that only `sample_after` is given."""
    ends: dict[int, int] = field(default_factory=dict)
    """Where in the batch the last of each row's tokens lies, before its draft."""


def sample(context: Context, step: LlamaPending) -> Sampled:
    """Wait for a step, and sample after the tokens of each row that wants it."""
    logits = context.logits()
    sampled: Sampled = [None] * len(step.rows)
    step.logits, step.all_logits = [None] * len(step.rows), logits
    wanted = [index for index in step.order if step.rows[index].sampler is not None]
    if not wanted:
        return sampled
    told: dict[int, Callable[[int], TokenLogprob]] = {}
    at = 0
    for index in wanted:
        step.firsts[index], step.logits[index] = at, (of_row := logits[at])
        at += 1 + len(step.rows[index].draft)
        alternatives = _alternatives(step.rows[index].sampler)
        if alternatives is not None:
            told[index] = logprobs(of_row, alternatives)
        sampled[index] = _mask(of_row, step.rows[index].mask)
    best = step.likeliest = likeliest(logits)
    step.ends = _ends(step)
    for index in wanted:
        if sampled[index] is None:
            at = step.firsts[index]
            greatest = float(logits[at, best[at]])
            chosen = _choose(context, step.rows[index].sampler, best[at], greatest, step.ends[index])
            sampled[index] = told[index](chosen) if index in told and isinstance(chosen, int) else chosen
    return sampled


def sample_after(
    context: Context, step: LlamaPending, row: int, drafted: int, mask: Bitmask | None
) -> int | TokenLogprob | RowFailed:
    """Sample behind the first `drafted` tokens of a row's draft, of the step that was collected last."""
    assert step.all_logits is not None
    at, sampler = step.firsts[row] + drafted, step.rows[row].sampler
    of_row, alternatives = step.all_logits[at], _alternatives(sampler)
    told = None if alternatives is None else logprobs(of_row, alternatives)
    if (failed := _mask(of_row, mask)) is not None:
        return failed
    best = step.likeliest[at] if mask is None else int(of_row.argmax())
    chosen = _choose(context, sampler, best, float(of_row[best]), step.ends[row] + drafted)
    return told(chosen) if told is not None and isinstance(chosen, int) else chosen


def _choose(context: Context, sampler: Sampler | None, best: int, greatest: float, end: int) -> int | RowFailed:
    # A native sampler would end the process where no token has a chance.
    if not math.isfinite(greatest):
        return RowFailed(GenerationFailed("no token is allowed, or the model's output is not finite"))
    assert isinstance(sampler, LlamaSampler)
    return best if sampler.chain is None else context.sample(sampler.chain, end)


def _ends(step: LlamaPending) -> dict[int, int]:
    """Where in the batch the last token of each row lies."""
    ends, total = {}, 0
    for index in step.order:
        row = step.rows[index]
        # A piece may have come in several batches; the last logits are its own.
        ends[index] = total + len(row.tokens) - 1 if row.embeddings is None else -1
        total += len(row.tokens) + len(row.draft)
    return ends


def _alternatives(sampler: Sampler | None) -> int | None:
    assert isinstance(sampler, LlamaSampler)
    return sampler.logprobs


def _mask(logits: Logits, mask: Bitmask | None) -> RowFailed | None:
    if mask is not None:
        try:
            apply_mask(logits, mask)
        except ValueError as error:
            return RowFailed(error)
    return None

"""Drafts: what is sampled behind them is what is sampled without, and what was wrong leaves no trace."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

pytest.importorskip("llama_cpp")

from tenuto.pipelines.backend import Bitmask, Row, RowFailed, Sampling, TokenLogprob
from tenuto.pipelines.grammar_course import only
from tenuto.pipelines.llama_cpp import LlamaBackend, LlamaSettings, Model
from tenuto.pipelines.loader import find

PROMPT = [40, 60, 50, 70, 45, 60, 50, 70]
SAMPLINGS = {
    "greedy": Sampling(),
    "sampled": Sampling(temperature=0.9, top_k=40, top_p=0.95, seed=7),
    "penalised": Sampling(repetition_penalty=1.3, frequency_penalty=0.5, temperature=0.7, seed=3),
    "told": Sampling(logprobs=3),
}


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(find("embedded:gguf").path)


@pytest.fixture(params=[False, True], ids=["flash", "plain"])
def backend(model: Model, request: pytest.FixtureRequest) -> Iterator[LlamaBackend]:
    settings = LlamaSettings(slots=4, cells=512, batch_tokens=128, drafts=32, is_plain=request.param)
    made = LlamaBackend(model, settings)
    yield made
    made.close()


def token_of(sample: object) -> int:
    assert isinstance(sample, int | TokenLogprob), sample
    return sample if isinstance(sample, int) else sample.token


def plainly(backend: LlamaBackend, slot: int, sampling: Sampling, count: int, mask: Bitmask | None = None) -> list[int]:
    """What a round samples, a token a step."""
    sampler, held, feed, said = backend.sampler(sampling, PROMPT), 0, PROMPT, list[int]()
    for _ in range(count):
        (sample,) = backend.collect(backend.launch([Row(slot, held, feed, sampler, mask)]))
        held, feed = held + len(feed), [token_of(sample)]
        said += feed
    sampler.close()
    backend.release(slot)
    return said


def drafted(
    backend: LlamaBackend, slot: int, sampling: Sampling, count: int, draft: Sequence[int], mask: Bitmask | None = None
) -> tuple[list[int], int]:
    """What it samples with a draft behind its first step, and nothing afterwards; and how much of it was right."""
    sampler = backend.sampler(sampling, PROMPT)
    pending = backend.launch([Row(slot, 0, PROMPT, sampler, mask, draft=draft)])
    (sample,) = backend.collect(pending)
    said = [token_of(sample)]
    while len(said) <= len(draft) and said[-1] == draft[len(said) - 1]:
        said.append(token_of(backend.sample_after(pending, 0, len(said), mask)))
    right = len(said) - 1
    held = len(PROMPT) + right
    assert backend.truncate(slot, held)
    while len(said) < count:
        (sample,) = backend.collect(backend.launch([Row(slot, held, said[-1:], sampler, mask)]))
        held += 1
        said.append(token_of(sample))
    sampler.close()
    backend.release(slot)
    return said, right


@pytest.mark.parametrize("name", SAMPLINGS)
@pytest.mark.parametrize("wrong_at", [0, 3, 8])
def test_what_is_sampled_behind_a_draft_is_what_is_sampled_without(
    backend: LlamaBackend, name: str, wrong_at: int
) -> None:
    said = plainly(backend, 0, SAMPLINGS[name], 20)
    draft = said[:8]
    if wrong_at < len(draft):
        draft[wrong_at] = (draft[wrong_at] + 1) % 1000
    assert drafted(backend, 0, SAMPLINGS[name], 20, draft) == (said, wrong_at)


def test_a_mask_is_held_to_behind_a_draft_too(backend: LlamaBackend) -> None:
    mask = only(range(60, 70), backend._model.vocabulary)
    said = plainly(backend, 0, Sampling(temperature=1.0, seed=5), 10, mask)
    assert set(said) <= set(range(60, 70))
    assert drafted(backend, 0, Sampling(temperature=1.0, seed=5), 10, said[:6], mask) == (said, 6)
    sampler = backend.sampler(Sampling())
    pending = backend.launch([Row(0, 0, PROMPT, sampler, draft=[61])])
    backend.collect(pending)
    nothing = np.zeros_like(mask)
    assert isinstance(backend.sample_after(pending, 0, 1, nothing), RowFailed)
    sampler.close()


def test_rows_with_drafts_of_other_lengths_do_not_disturb_each_other(backend: LlamaBackend) -> None:
    said = [plainly(backend, slot, Sampling(), 12) for slot in range(3)]
    samplers = [backend.sampler(Sampling(), PROMPT) for _ in range(3)]
    drafts: list[list[int]] = [said[0][:5], [], said[2][:2]]
    rows = [Row(slot, 0, PROMPT, samplers[slot], draft=drafts[slot]) for slot in (2, 0, 1)]
    pending = backend.launch(rows)
    sampled = backend.collect(pending)
    for at, row in enumerate(rows):
        told = [token_of(sampled[at])]
        told += [token_of(backend.sample_after(pending, at, number, None)) for number in range(1, len(row.draft) + 1)]
        assert told == said[row.slot][: len(row.draft) + 1]
    for sampler in samplers:
        sampler.close()


def test_what_a_step_does_not_take_is_refused(backend: LlamaBackend) -> None:
    sampler = backend.sampler(Sampling())
    for row in (
        Row(0, 0, PROMPT, sampler, draft=[1] * 33),
        Row(0, 0, PROMPT, sampler, draft=[-1]),
        Row(0, 0, PROMPT, None, draft=[1]),
        Row(0, 0, [1] * 100, sampler, draft=[1] * 32),
    ):
        with pytest.raises(ValueError, match=r"draft|a step takes"):
            backend.launch([row])
    pending = backend.launch([Row(0, 0, PROMPT, sampler, draft=[1])])
    with pytest.raises(ValueError, match="not the last one"):
        backend.sample_after(pending, 0, 1, None)
    backend.collect(pending)
    with pytest.raises(ValueError, match="no such draft"):
        backend.sample_after(pending, 0, 2, None)
    sampler.close()

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("llama_cpp")

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.backend import Row, Sampling
from tenuto.pipelines.llama_cpp import LlamaBackend, LlamaSettings, Model
from tenuto.pipelines.loader import find


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(find("embedded:gguf").path)


@pytest.fixture
def backend(model: Model) -> Iterator[LlamaBackend]:
    made = LlamaBackend(model, LlamaSettings(slots=8, cells=512, batch_tokens=64))
    yield made
    made.close()


def prompt(slot: int) -> list[int]:
    return [40 + slot, 60, 50 + 3 * slot, 70, 45]


def test_sequences_between_paused_ones_are_brought_together(backend: LlamaBackend) -> None:
    """Every gap between the streams of a step costs a pass over the weights."""
    for slot in range(8):
        backend.collect(backend.launch([Row(slot, 0, prompt(slot))]))
    running = (0, 2, 5, 7)
    before = backend.passes(running)
    for at in range(6):
        backend.collect(backend.launch([Row(slot, 5 + at, [66]) for slot in running]))
    assert (before, backend.passes(running)) == (4, 1)


def test_slots_keep_what_they_hold_while_streams_are_swapped(backend: LlamaBackend, model: Model) -> None:
    for slot in range(8):
        backend.collect(backend.launch([Row(slot, 0, prompt(slot))]))
    for at in range(6):
        backend.collect(backend.launch([Row(slot, 5 + at, [66]) for slot in (0, 2, 5, 7)]))
    untouched = LlamaBackend(model, LlamaSettings(slots=1, cells=512, batch_tokens=64))
    for slot in range(8):
        fed = [*prompt(slot), *([66] * 6 if slot in (0, 2, 5, 7) else [])]
        sampler, other = backend.sampler(Sampling()), untouched.sampler(Sampling())
        assert backend.snapshot(slot).tokens == len(fed)
        [token] = backend.collect(backend.launch([Row(slot, len(fed), [80], sampler)]))
        assert [token] == untouched.collect(untouched.launch([Row(0, 0, [*fed, 80], other)]))
        untouched.release(0)
    untouched.close()


def test_the_bytes_of_a_token_are_those_of_its_keys_and_values(model: Model, backend: LlamaBackend) -> None:
    # 6 layers, 6 heads of 64 for keys and for values, two bytes each, and a few bytes for its place
    numbers = 6 * 6 * 64 * 2 * 2
    assert numbers <= backend.info.bytes_per_token <= numbers + 32


def test_a_cache_beyond_all_memory_is_refused(model: Model) -> None:
    with pytest.raises(ModelLoadFailed, match=r"no cache of 64 x 100000000 tokens"):
        LlamaBackend(model, LlamaSettings(slots=64, cells=100_000_000))


def say(backend: LlamaBackend, prompt: list[int], sampling: Sampling, count: int) -> list[int]:
    """What one round of a sequence samples."""
    sampler, held, feed, said = backend.sampler(sampling, prompt), 0, prompt[-8:], list[int]()
    for _ in range(count):
        (token,) = backend.collect(backend.launch([Row(0, held, feed, sampler)]))
        assert isinstance(token, int)
        held += len(feed)
        feed = [token]
        said.append(token)
    sampler.close()
    backend.release(0)
    return said


def test_presence_counts_once_and_frequency_each_time_over_what_was_said(backend: LlamaBackend) -> None:
    # Two tokens lead by far, the second by less than the first: only what they have said can part them.
    one, other = 65, 66
    lead = ((one, 600.0), (other, 500.0))
    assert say(backend, [one, one, 67], Sampling(logit_bias=lead), 3) == [one] * 3
    present = say(backend, [one, one, 67], Sampling(logit_bias=lead, presence_penalty=200.0), 4)
    assert present == [one, other, one, one]
    frequent = say(backend, [one, one, 67], Sampling(logit_bias=lead, frequency_penalty=200.0), 5)
    assert frequent == [one, other, one, other, one]


def test_a_choice_of_one_takes_a_random_number_too(backend: LlamaBackend, model: Model) -> None:
    """So a round that goes on after what it has said need not know what each token was chosen from."""
    sampling, prompt = Sampling(temperature=9.0, seed=3), [40, 41, 42]
    forced = np.zeros(-(-model.vocabulary // 32), np.uint32)
    forced[2] = 1 << 2  # token 66

    def go_on(said: list[int], count: int) -> list[int]:
        sampler, held, feed, tokens = backend.sampler(sampling, prompt, said), 0, [*prompt, *said], list[int]()
        for place in range(len(said), len(said) + count):
            mask = None if place % 2 else forced
            (token,) = backend.collect(backend.launch([Row(0, held, feed, sampler, mask)]))
            assert isinstance(token, int)
            held += len(feed)
            feed = [token]
            tokens.append(token)
        sampler.close()
        backend.release(0)
        return tokens

    whole = go_on([], 10)
    assert whole[::2] == [66] * 5
    assert len({*whole[1::2]}) > 1, "chance has a say"
    assert go_on(whole[:5], 5) == whole[5:]


def test_repetition_counts_the_last_of_the_prompt_too(backend: LlamaBackend) -> None:
    one, other = 65, 66
    repetition = Sampling(logit_bias=((one, 600.0), (other, 500.0)), repetition_penalty=2.0)
    assert say(backend, [one, 67], repetition, 1) == [other]
    assert say(backend, [one] + [67] * 64, repetition, 1) == [one], "it is out of the last 64"

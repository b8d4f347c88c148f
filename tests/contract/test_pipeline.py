"""What every pipeline promises the engine; the same tests for all of them (design: contracts, Backend)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenuto.pipelines.adapters import Adapter
from tenuto.pipelines.backend import Backend, Bitmask, Row, RowFailed, Sampling, Snapshot, TokenLogprob
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.loader import LoadSettings, load
from tenuto.pipelines.scripted import TEMPLATE, ScriptedTokenizer
from tenuto.sessions.items import UserItem
from tests.embedded import gguf_file, mlx_folder
from tests.pipelines.full_weights import full_gguf
from tests.pipelines.tiny_adapter import tiny_adapter

SLOTS, CELLS, BATCH = 6, 768, 256
PROMPTS = (
    "Hello!",
    "What is 12 * 7, and what time is it?",
    "My name is Ada. " * 12 + "What is my name?",
    "Tell me something about the sea, in two sentences.",
)
GREEDY = Sampling()
NEAR = 4e-2
"""Two ways to the same logits of a real model differ by rounding: by 0.02 in F32, with a cache in F16. One wrong token
in a slot moves them by 0.3 and more."""

SCRIPT = f"""
slots = {SLOTS}
cells = {CELLS}
batch_tokens = {BATCH}
[[rules]]
user_contains = "name"
text = "Your name is Ada, as you have said so many times."
"""


PIPELINES = [
    "scripted",
    "llama_cpp",
    "llama_cpp-q8_0",
    "llama_cpp-q4_0",
    "llama_cpp-lora",
    "mlx-llama",
    "mlx-sliding",
    "mlx-hybrid",
]


@pytest.fixture(scope="module", params=PIPELINES)
def pipeline(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    if request.param.startswith("mlx"):
        loaded = tiny_mlx(request.param.removeprefix("mlx-"), tmp_path_factory.mktemp("model"))
    else:
        name, _, cache_type = request.param.partition("-")
        if name == "llama_cpp":
            pytest.importorskip("llama_cpp")
            # Of full precision: one of Q8_0 rounds by up to 0.5 differently for other shapes of a batch.
            folder = tmp_path_factory.mktemp("full")
            model = str(full_gguf(gguf_file(), mlx_folder(), folder / "full.gguf"))
        else:
            script = tmp_path_factory.mktemp("script") / "script.toml"
            script.write_text(SCRIPT)
            model = f"scripted:{script}"
        wanted = LoadSettings(slots=SLOTS, cells=CELLS, batch_tokens=BATCH, threads=1)
        if cache_type == "lora":
            adapter = tiny_adapter(tmp_path_factory.mktemp("adapter") / "tiny.gguf", Path(model), strength=0.2)
            wanted = replace(wanted, adapter=Adapter(adapter, 0.5))
        elif cache_type:
            wanted = replace(wanted, cache_type=cache_type)
        loaded = load(model, wanted)
    yield loaded
    loaded.backend.close()


def tiny_mlx(kind: str, folder: Path) -> Pipeline:
    """A random model; passes cost so little that slots of different length decode in several batches."""
    pytest.importorskip("mlx_lm", reason="needs the extra tenuto[mlx]")
    from tenuto.pipelines.mlx import MlxBackend, MlxSettings, Model
    from tests.pipelines.mlx.tiny import write_model

    model = Model(write_model(folder, kind))
    settings = MlxSettings(SLOTS, CELLS, BATCH, pass_bytes=model.cache_bytes(100))
    return Pipeline(TemplateCodec(kind, ScriptedTokenizer(), TEMPLATE), MlxBackend(model, settings))


@pytest.fixture
def backend(pipeline: Pipeline) -> Iterator[Backend]:
    yield pipeline.backend
    for slot in range(SLOTS):
        pipeline.backend.release(slot)


@pytest.fixture(scope="module")
def prompts(pipeline: Pipeline) -> list[list[int]]:
    rendered = [pipeline.codec.suffix([], [UserItem(text)], [], ended=True) for text in PROMPTS]
    return [[token for item in each.items for token in item] + list(each.opening) for each in rendered]


@dataclass
class Stream:
    """A slot that generates: what it holds, what it is fed next, what came, and the logits where there are any."""

    slot: int
    held: int = 0
    feed: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    logits: list[Any] = field(default_factory=list)


def step(
    backend: Backend,
    streams: Sequence[Stream],
    *,
    sampling: Sampling = GREEDY,
    mask: Bitmask | None = None,
    chunk: int = BATCH,
) -> None:
    """Feed each stream, in chunks, and sample one token for each with the last chunk."""
    samplers = [backend.sampler(sampling) for _ in streams]
    while any(len(stream.feed) > chunk for stream in streams):
        heads = [stream for stream in streams if len(stream.feed) > chunk]
        rows = [Row(stream.slot, stream.held, stream.feed[:chunk]) for stream in heads]
        assert backend.collect(backend.launch(rows)) == [None] * len(rows)
        for stream in heads:
            stream.held += chunk
            del stream.feed[:chunk]
    rows = [
        Row(stream.slot, stream.held, stream.feed, sampler, mask)
        for stream, sampler in zip(streams, samplers, strict=True)
    ]
    pending = backend.launch(rows)
    sampled = backend.collect(pending)
    logits = getattr(pending, "logits", None)
    for at, (stream, token) in enumerate(zip(streams, sampled, strict=True)):
        assert isinstance(token, int)
        stream.held += len(stream.feed)
        stream.feed = [token]
        stream.tokens.append(token)
        if logits is not None:
            stream.logits.append(logits[at].copy())
    for sampler in samplers:
        sampler.close()


def generate(backend: Backend, stream: Stream, count: int, **options: Any) -> Stream:
    for _ in range(count):
        step(backend, [stream], **options)
    return stream


def alone(backend: Backend, prompt: Sequence[int], count: int = 10, slot: int = 0) -> Stream:
    """The reference: a prompt by itself in an empty slot, fed at once."""
    stream = generate(backend, Stream(slot, feed=list(prompt)), count)
    backend.release(slot)
    return stream


def assert_same(one: Stream, other: Stream) -> None:
    """Identical, or parted at a choice between two tokens whose logits are as good as equal in both runs."""
    for at, (first, second) in enumerate(zip(one.tokens, other.tokens, strict=True)):
        if first != second:
            assert one.logits, f"{one.tokens} is not {other.tokens}"
            for row in (one.logits[at], other.logits[at]):
                gap = abs(float(row[first] - row[second]))
                assert gap <= NEAR, f"{one.tokens} is not {other.tokens}; the logits at {at} differ by {gap}"
            return


def test_a_batch_gives_what_each_sequence_gives_alone(backend: Backend, prompts: list[list[int]]) -> None:
    expected = [alone(backend, prompt) for prompt in prompts]
    streams = [Stream(slot, feed=list(prompt)) for slot, prompt in zip((4, 1, 5, 0), prompts, strict=True)]
    for _ in range(10):
        step(backend, streams, chunk=60)
    for one, other in zip(expected, streams, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_a_prompt_in_chunks_gives_what_it_gives_at_once(backend: Backend, prompts: list[list[int]], chunk: int) -> None:
    assert_same(alone(backend, prompts[1]), generate(backend, Stream(2, feed=list(prompts[1])), 10, chunk=chunk))


def test_a_paused_sequence_goes_on_as_if_it_had_not_paused(backend: Backend, prompts: list[list[int]]) -> None:
    expected = alone(backend, prompts[2])
    paused = generate(backend, Stream(3, feed=list(prompts[2])), 4)
    others = [Stream(slot, feed=list(prompts[0])) for slot in (1, 5, 2)]
    for _ in range(6):
        step(backend, others)
    assert_same(expected, generate(backend, paused, 6))


def test_a_fork_gives_what_its_source_gives(backend: Backend, prompts: list[list[int]]) -> None:
    prompt = prompts[1]
    expected = alone(backend, prompt)
    source = generate(backend, Stream(0, feed=list(prompt)), 5)
    backend.fork(0, 4, source.held)
    fork = replace(source, slot=4, feed=[*source.feed], tokens=[*source.tokens], logits=[*source.logits])
    assert_same(expected, generate(backend, fork, 5))
    assert_same(expected, generate(backend, source, 5))


def test_a_fork_of_a_prefix_gives_what_its_source_gave(backend: Backend, prompts: list[list[int]]) -> None:
    prompt = prompts[1]
    expected = alone(backend, prompt)
    source = generate(backend, Stream(0, feed=list(prompt)), 25)
    if backend.info.can_truncate:
        backend.fork(0, 4, len(prompt) - 1)
        fork = Stream(4, held=len(prompt) - 1, feed=prompt[-1:])
        assert_same(expected, generate(backend, fork, 10))
    else:
        with pytest.raises(ValueError, match="whole"):
            backend.fork(0, 4, len(prompt) - 1)
        assert backend.snapshot(4).tokens == 0
    assert_same(alone(backend, prompt, 30, slot=1), generate(backend, source, 5))


def test_a_slot_that_was_cut_back_gives_what_it_gave_before(backend: Backend, prompts: list[list[int]]) -> None:
    prompt = prompts[3]
    expected = alone(backend, prompt, 20)
    stream = generate(backend, Stream(0, feed=list(prompt)), 10)
    if backend.truncate(0, len(prompt) - 3):
        stream = Stream(0, held=len(prompt) - 3, feed=prompt[-3:])
    else:
        assert not backend.info.can_truncate  # then the slot is as it was
    assert_same(expected, generate(backend, stream, 20 - len(stream.tokens)))


@pytest.mark.parametrize("form", [lambda data: data, bytes, bytearray], ids=["as it is", "bytes", "bytearray"])
def test_a_snapshot_goes_on_in_another_slot(backend: Backend, prompts: list[list[int]], form: Any) -> None:
    prompt = prompts[2]
    expected = alone(backend, prompt)
    begun = generate(backend, Stream(1, feed=list(prompt)), 3)
    snapshot = backend.snapshot(1)
    assert (snapshot.tokens, snapshot.nbytes) == (begun.held, len(bytes(snapshot.data)))
    backend.release(1)
    generate(backend, Stream(1, feed=list(prompts[0])), 2)
    backend.restore(5, Snapshot(snapshot.tokens, snapshot.nbytes, form(snapshot.data)))
    begun.slot = 5
    assert_same(expected, generate(backend, begun, 7))


def test_an_empty_slot_can_be_forked_cut_saved_and_restored(backend: Backend, prompts: list[list[int]]) -> None:
    backend.fork(0, 1, 0)
    assert backend.truncate(1, 0)
    backend.restore(2, backend.snapshot(1))
    assert_same(alone(backend, prompts[0]), generate(backend, Stream(2, feed=list(prompts[0])), 10))


def mask_of(pipeline: Pipeline, allowed: Sequence[int]) -> Bitmask:
    mask = np.zeros(-(-pipeline.codec.info.vocabulary // 32), np.uint32)
    for token in allowed:
        mask[token // 32] |= np.uint32(1 << token % 32)
    return mask


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_no_token_is_sampled_that_the_mask_forbids(
    pipeline: Pipeline, backend: Backend, prompts: list[list[int]], temperature: float
) -> None:
    allowed = (65, 66, pipeline.codec.info.vocabulary - 1)
    stream = Stream(0, feed=list(prompts[0]))
    sampling = Sampling(temperature=temperature, seed=3)
    generate(backend, stream, 12, sampling=sampling, mask=mask_of(pipeline, allowed))
    assert set(stream.tokens) <= set(allowed)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_whose_sampling_fails_fails_alone(
    pipeline: Pipeline, backend: Backend, prompts: list[list[int]], temperature: float
) -> None:
    expected = alone(backend, prompts[0], 1)
    masks: list[Bitmask | None] = [None, mask_of(pipeline, []), np.zeros(1, np.uint32), None]
    samplers = [backend.sampler(Sampling(temperature=temperature if mask is not None else 0)) for mask in masks]
    rows = [
        Row(slot, 0, prompts[0], sampler, mask)
        for slot, sampler, mask in zip((3, 2, 1, 0), samplers, masks, strict=True)
    ]
    first, impossible, malformed, last = backend.collect(backend.launch(rows))
    assert [first, last] == expected.tokens * 2
    assert isinstance(impossible, RowFailed)
    assert isinstance(malformed, RowFailed)
    # Its tokens were fed: the row can be cut back by one and asked again.
    if backend.truncate(2, len(prompts[0]) - 1):
        assert_same(expected, generate(backend, Stream(2, held=len(prompts[0]) - 1, feed=prompts[0][-1:]), 1))
    else:
        assert not backend.info.can_truncate


def test_the_same_seed_gives_the_same_tokens_in_any_company(backend: Backend, prompts: list[list[int]]) -> None:
    def sample(slot: int, company: Sequence[Stream]) -> list[int]:
        sampler = backend.sampler(Sampling(temperature=1.2, top_k=40, top_p=0.95, min_p=0.01, seed=11))
        held, feed, tokens = 0, list(prompts[1]), list[int]()
        for _ in range(8):
            row = Row(slot, held, feed, sampler)
            others = [Row(other.slot, other.held, other.feed) for other in company]
            token = backend.collect(backend.launch([*others, row]))[-1]
            assert isinstance(token, int)
            held += len(feed)
            feed = [token]
            tokens.append(token)
            for other in company:
                other.held += len(other.feed)
                other.feed = [65]
        sampler.close()
        return tokens

    assert sample(4, []) == sample(2, [Stream(1, feed=[66]), Stream(5, feed=[67])])


def test_a_round_goes_on_after_what_it_has_said_as_if_it_had_never_stopped(
    backend: Backend, prompts: list[list[int]]
) -> None:
    """The random numbers, the penalties and the cache are those of the round's place, in any slot."""
    shapes: dict[str, Any] = {"presence_penalty": 0.4, "frequency_penalty": 0.2, "repetition_penalty": 1.1}
    sampling = Sampling(temperature=1.1, top_k=60, top_p=0.97, min_p=0.01, seed=11, **shapes)

    def sample(slot: int, said: list[int], count: int) -> list[int]:
        sampler = backend.sampler(sampling, prompts[1], said)
        held, feed, tokens = 0, [*prompts[1], *said], list[int]()
        for _ in range(count):
            (token,) = backend.collect(backend.launch([Row(slot, held, feed, sampler)]))
            assert isinstance(token, int)
            held += len(feed)
            feed = [token]
            tokens.append(token)
        sampler.close()
        backend.release(slot)
        return tokens

    whole = sample(0, [], 12)
    for cut in (1, 5, 11):
        assert sample(cut % SLOTS, whole[:cut], 12 - cut) == whole[cut:]


def test_a_released_slot_is_empty(backend: Backend, prompts: list[list[int]]) -> None:
    expected = alone(backend, prompts[0])
    generate(backend, Stream(0, feed=list(prompts[2])), 3)
    backend.release(0)
    assert backend.snapshot(0).tokens == 0
    assert_same(expected, generate(backend, Stream(0, feed=list(prompts[0])), 10))


def invalid_calls(backend: Backend, prompt: list[int]) -> Iterator[tuple[str, Any]]:
    """Calls that a correct engine never makes, while slot 0 holds the prompt and slot 1 is empty."""
    end = len(prompt)
    snapshot = backend.snapshot(0)
    closed = backend.sampler(Sampling())
    closed.close()
    rows = {
        "no rows": [],
        "no tokens": [Row(0, end, [])],
        "a slot twice": [Row(0, end, [65]), Row(0, end + 1, [65])],
        "a start too low": [Row(0, 0, [65])],
        "a start too high": [Row(1, 1, [65])],
        "a slot below": [Row(-1, 0, [65])],
        "a slot above": [Row(SLOTS, 0, [65])],
        "a token below": [Row(0, end, [-1])],
        "a token above": [Row(0, end, [1 << 20])],
        "too much for a step": [Row(1, 0, [65] * (BATCH + 1))],
        "a closed sampler": [Row(0, end, [65], closed)],
        "one bad row of two": [Row(1, 0, [65]), Row(0, end + 1, [65])],
    }
    for name, batch in rows.items():
        yield name, lambda batch=batch: backend.launch(batch)
    yield "a step that was never launched", lambda: backend.collect(object())
    yield "a fork of more than there is", lambda: backend.fork(0, 1, end + 1)
    yield "a fork into a slot that is not empty", lambda: backend.fork(1, 0, 0)
    yield "a fork into itself", lambda: backend.fork(0, 0, end)
    yield "a cut to more than there is", lambda: backend.truncate(0, end + 1)
    yield "a cut below nothing", lambda: backend.truncate(0, -1)
    yield "a release of no slot", lambda: backend.release(SLOTS)
    yield "a snapshot of no slot", lambda: backend.snapshot(-1)
    yield "a restore over something", lambda: backend.restore(0, snapshot)
    yield "a restore of more than fits", lambda: backend.restore(1, Snapshot(CELLS + 1, 8, bytes(8)))
    yield "a temperature below zero", lambda: backend.sampler(Sampling(temperature=-1.0))


def test_an_invalid_call_is_refused_and_does_no_harm(backend: Backend, prompts: list[list[int]]) -> None:
    expected = alone(backend, prompts[1])
    stream = generate(backend, Stream(0, feed=list(prompts[1])), 1)
    prompt = [*prompts[1]]
    for name, call in invalid_calls(backend, prompt):
        with pytest.raises(ValueError):  # noqa: PT011 -- the words are each backend's own
            print(name, call())
    assert_same(expected, generate(backend, stream, 9))


def test_a_full_slot_takes_no_more(backend: Backend) -> None:
    held = 0
    while held < CELLS:
        count = min(BATCH, CELLS - held)
        backend.collect(backend.launch([Row(0, held, [65] * count)]))
        held += count
    with pytest.raises(ValueError, match="fit"):
        backend.launch([Row(0, held, [65])])
    if backend.info.can_truncate:
        assert backend.truncate(0, held - 1)
        assert backend.collect(backend.launch([Row(0, held - 1, [65])])) == [None]


def test_a_step_must_be_collected_before_the_next(backend: Backend) -> None:
    pending = backend.launch([Row(0, 0, [65])])
    with pytest.raises(ValueError, match="collected"):
        backend.launch([Row(1, 0, [65])])
    assert backend.collect(pending) == [None]
    with pytest.raises(ValueError, match="under way"):
        backend.collect(pending)


def test_a_broken_snapshot_is_refused_and_leaves_the_slot_empty(backend: Backend, prompts: list[list[int]]) -> None:
    generate(backend, Stream(0, feed=list(prompts[1])), 1)
    snapshot = backend.snapshot(0)
    for data in (bytes(snapshot.data)[: snapshot.nbytes // 2], b""):
        with pytest.raises(Exception, match="fit"):
            backend.restore(1, Snapshot(snapshot.tokens, len(data), data))
        assert backend.snapshot(1).tokens == 0
    with pytest.raises(Exception, match="fit"):
        backend.restore(1, Snapshot(snapshot.tokens - 1, snapshot.nbytes, snapshot.data))
    backend.release(0)
    assert_same(alone(backend, prompts[0]), generate(backend, Stream(1, feed=list(prompts[0])), 10))


Operation = tuple[str, int, int, int]
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["feed", "feed", "fork", "cut", "move", "release"]),
        st.integers(0, SLOTS - 1),
        st.integers(0, SLOTS - 1),
        st.integers(1, 40),
    ),
    max_size=14,
)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS)
def test_slots_hold_what_a_list_of_tokens_would_hold(
    backend: Backend, prompts: list[list[int]], operations: list[Operation]
) -> None:
    text = prompts[2]
    held: list[list[int]] = [[] for _ in range(SLOTS)]
    for slot in range(SLOTS):
        backend.release(slot)
    for what, one, other, count in operations:
        if what == "feed":
            fed = text[: count + one]
            rows = [Row(slot, len(held[slot]), fed) for slot in sorted({one, other})]
            backend.collect(backend.launch(rows))
            for row in rows:
                held[row.slot] += fed
        elif what == "cut":
            if backend.truncate(one, min(count, len(held[one]))):
                del held[one][count:]
            else:
                assert not backend.info.can_truncate
        elif what == "release":
            held[one] = []
            backend.release(one)
        elif one != other and not held[other]:
            if what == "fork":
                held[other] = held[one][: count if backend.info.can_truncate else None]
                backend.fork(one, other, len(held[other]))
            else:
                held[one], held[other] = [], held[one]
                backend.restore(other, backend.snapshot(one))
                backend.release(one)
    streams = [Stream(slot, held=len(tokens), feed=list(prompts[0])) for slot, tokens in enumerate(held)]
    for _ in range(3):
        step(backend, streams)
    for slot in range(SLOTS):
        backend.release(slot)
    for stream, tokens in zip(streams, held, strict=True):
        assert_same(alone(backend, [*tokens, *prompts[0]], 3), stream)


def test_logprobs_are_told_where_they_are_asked_for_and_change_nothing(
    backend: Backend, prompts: list[list[int]]
) -> None:
    plain = alone(backend, prompts[0], 1)
    samplers = [backend.sampler(Sampling(logprobs=3)), backend.sampler(Sampling())]
    rows = [Row(slot, 0, prompts[0], sampler) for slot, sampler in enumerate(samplers)]
    told, untold = backend.collect(backend.launch(rows))
    assert isinstance(told, TokenLogprob)
    assert untold == told.token == plain.tokens[0]
    assert told.top[0] == (told.token, told.logprob)
    assert len(told.top) == 3
    values = [value for _, value in told.top]
    assert values == sorted(values, reverse=True)
    assert all(value <= 0 for value in values)
    if plain.logits:
        logits = plain.logits[0].astype(np.float64)
        expected = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        assert np.allclose(values, np.sort(expected)[::-1][:3], atol=NEAR)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logprobs_are_those_before_bias_temperature_and_mask(
    pipeline: Pipeline, backend: Backend, prompts: list[list[int]], temperature: float
) -> None:
    (free,) = backend.collect(backend.launch([Row(0, 0, prompts[0], backend.sampler(Sampling(logprobs=4)))]))
    held = Sampling(temperature=temperature, logprobs=4, logit_bias=((66, 5.0),), presence_penalty=1.0)
    mask = mask_of(pipeline, (65, 66))
    (told,) = backend.collect(backend.launch([Row(1, 0, prompts[0], backend.sampler(held), mask)]))
    assert isinstance(free, TokenLogprob)
    assert isinstance(told, TokenLogprob)
    assert told.token in (65, 66)
    assert [token for token, _ in told.top] == [token for token, _ in free.top]
    assert np.allclose([value for _, value in told.top], [value for _, value in free.top], atol=NEAR)
    assert told.logprob < free.logprob


def test_a_bias_decides_what_is_likeliest(backend: Backend, prompts: list[list[int]]) -> None:
    likeliest = alone(backend, prompts[0], 1).tokens[0]
    banned = Stream(0, feed=list(prompts[0]))
    step(backend, [banned], sampling=Sampling(logit_bias=((likeliest, -100.0),)))
    assert banned.tokens != [likeliest]
    wanted = Stream(1, feed=list(prompts[0]))
    step(backend, [wanted], sampling=Sampling(logit_bias=((67, 100.0),)))
    assert wanted.tokens == [67]

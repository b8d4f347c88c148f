"""What the MLX backend does beyond what tests/contract asks of every pipeline: batches, memory, what raises."""

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import pytest

from tenuto.errors import GenerationFailed
from tenuto.pipelines.backend import Row, RowFailed, Sampling
from tenuto.pipelines.mlx import MlxBackend, MlxSettings, Model
from tenuto.pipelines.mlx.sampling import MlxSampler, Order
from tests.pipelines.mlx.streams import GREEDY, Stream, alone, assert_same, prompt, step
from tests.pipelines.mlx.tiny import write_model

SLOTS, CELLS, BATCH = 6, 1024, 4096


@pytest.fixture(params=[False, True], ids=["one batch", "several batches"])
def backend(request: pytest.FixtureRequest, model: Model) -> Iterator[MlxBackend]:
    """With a pass that costs much, and one that costs so little that sequences of different length part."""
    made = MlxBackend(
        model, MlxSettings(SLOTS, CELLS, BATCH, pass_bytes=model.cache_bytes(60) if request.param else None)
    )
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_sequences_that_come_pause_and_go_give_what_each_gives_alone(backend: MlxBackend, seed: int) -> None:
    dice = random.Random(seed)
    prompts = [prompt(number, dice.choice([1, 2, 9, 40, 47, 48, 49, 150])) for number in range(8)]
    expected = [alone(backend, each, 14) for each in prompts]
    waiting = list(range(len(prompts)))
    running: dict[int, Stream] = {}
    while waiting or running:
        while waiting and len(running) < SLOTS and dice.random() < 0.5:
            number = waiting.pop(0)
            free = min(set(range(SLOTS)) - {stream.slot for stream in running.values()})
            running[number] = Stream(free, list(prompts[number]))
        active = [stream for stream in running.values() if dice.random() < 0.8]
        if active:
            step(backend, active)
        for number, stream in list(running.items()):
            if len(stream.tokens) >= 14 or dice.random() < 0.02:
                assert_same(expected[number], stream)
                backend.release(stream.slot)
                del running[number]


def test_a_token_that_was_not_the_sampled_one_is_fed_as_it_is(backend: MlxBackend) -> None:
    start = prompt(1, 60)
    stream, company = Stream(1, list(start)), Stream(2, prompt(2, 20))
    expected = alone(backend, company.feed, 8)
    for _ in range(3):
        step(backend, [stream, company])
    stream.feed = [(stream.tokens[-1] + 1) % 256]
    fed = [*start, *stream.tokens[:2], *stream.feed]
    other = alone(backend, fed, 5)
    stream.tokens, stream.logits = [], []
    for _ in range(5):
        step(backend, [stream, company])
    assert_same(other, stream)
    assert_same(expected, company)


def test_a_slot_can_be_looked_at_while_it_decodes(backend: MlxBackend) -> None:
    """Forks and snapshots of one that decodes hold what it holds, and leave it and its company alone."""
    prompts = [prompt(number, 50 + number) for number in range(3)]
    expected = [alone(backend, each, 12) for each in prompts]
    streams = [Stream(slot, list(each)) for slot, each in enumerate(prompts)]
    for _ in range(6):
        step(backend, streams)
    backend.fork(1, 4, streams[1].held)
    backend.restore(5, backend.snapshot(2))
    copies = [
        Stream(slot, list(each.feed), each.held, list(each.tokens), list(each.logits))
        for slot, each in ((4, streams[1]), (5, streams[2]))
    ]
    for _ in range(6):
        step(backend, [*streams, *copies])
    for one, other in zip([*expected, *expected[1:]], [*streams, *copies], strict=True):
        assert_same(one, other)


def test_a_prompt_between_steps_does_not_disturb_those_that_decode(backend: MlxBackend) -> None:
    prompts = [prompt(number, 30) for number in range(2)]
    expected = [alone(backend, each, 8) for each in prompts]
    streams = [Stream(slot, list(each)) for slot, each in enumerate(prompts)]
    for turn in range(8):
        step(backend, streams)
        assert backend.collect(backend.launch([Row(3, turn * 7, prompt(9, 7))])) == [None]
    for one, other in zip(expected, streams, strict=True):
        assert_same(one, other)


# Memory.


def active_bytes() -> int:
    gc.collect()
    return int(mx.get_active_memory())


@pytest.mark.parametrize("kind", ["llama"], indirect=True)
def test_short_sequences_do_not_take_the_room_of_a_long_one(model: Model) -> None:
    backend = MlxBackend(model, MlxSettings(SLOTS, CELLS, BATCH, pass_bytes=model.cache_bytes(60)))
    before = active_bytes()
    streams = [Stream(0, prompt(0, 900)), *(Stream(slot, prompt(slot, 5)) for slot in range(1, SLOTS))]
    for _ in range(4):
        step(backend, streams)
    taken = (active_bytes() - before) / model.bytes_per_token
    # 256 cells are the least that mlx-lm takes for a row; padded to the longest it would be 6 x 1024.
    assert taken < 1024 + 5 * 256 + 256
    backend.close()


@pytest.mark.parametrize("kind", ["llama"], indirect=True)
def test_what_has_left_a_batch_does_not_hold_it(model: Model) -> None:
    backend = MlxBackend(model, MlxSettings(SLOTS, CELLS, BATCH))
    before = active_bytes()
    streams = [Stream(slot, prompt(slot, 500)) for slot in range(SLOTS)]
    for _ in range(3):
        step(backend, streams)
    parked = streams[0]
    for stream in streams[2:]:
        backend.release(stream.slot)
    step(backend, [streams[1]])
    backend.release(streams[1].slot)
    step(backend, [Stream(5, [1])])
    assert (active_bytes() - before) / model.bytes_per_token < parked.held + 2 * 256
    backend.close()
    assert active_bytes() - before < model.cache_bytes(1)


# What raises.


class Fuse:
    """A layer that raises as long as it is blown, after the layers before it have written their caches."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self.blown = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layer, name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.blown:
            raise RuntimeError("the layer is broken")
        return self.layer(*arguments, **named)


@pytest.fixture
def fuse(model: Model) -> Iterator[Fuse]:
    layers = model.network.model.layers
    layers[1] = made = Fuse(layers[1])
    yield made
    layers[1] = made.layer


@pytest.mark.parametrize("when", ["prompt", "decode"])
def test_a_pass_that_raises_takes_only_its_own_with_it(backend: MlxBackend, fuse: Fuse, when: str) -> None:
    prompts = [prompt(number, 20 + number) for number in range(4)]
    expected = [alone(backend, each, 10) for each in prompts]
    streams = [Stream(slot, list(each)) for slot, each in enumerate(prompts)]
    for _ in range(4):
        step(backend, streams)
    fuse.blown = True
    fed = streams[0].feed if when == "decode" else [1, 2, 3]
    rows = [Row(0, streams[0].held, fed, backend.sampler(GREEDY)), Row(1, streams[1].held, streams[1].feed)]
    with pytest.raises(GenerationFailed, match="the layer is broken"):
        backend.collect(backend.launch(rows))
    fuse.blown = False
    for slot in (0, 1):
        with pytest.raises(ValueError, match="undefined"):
            backend.snapshot(slot)
        backend.release(slot)
    again = Stream(0, list(prompts[0]))
    for _ in range(6):
        step(backend, [*streams[2:], again])
    for _ in range(4):
        step(backend, [again])
    for one, other in zip([*expected[2:], expected[0]], [*streams[2:], again], strict=True):
        assert_same(one, other)


class Faulty(MlxSampler):
    """A sampler that raises in one of its methods."""

    def __init__(self, where: str, vocabulary: int) -> None:
        super().__init__(Sampling(), (), vocabulary)
        self._where = where

    def order(self, mask: Any) -> Order:
        if self._where == "order":
            raise OSError("no order")
        return super().order(mask)

    def accept(self, token: int) -> None:
        if self._where == "accept":
            raise OSError("not accepted")


@pytest.mark.parametrize("where", ["order", "accept"])
@pytest.mark.parametrize("company", [0, 2])
def test_a_sampler_that_raises_fails_its_own_row(backend: MlxBackend, where: str, company: int) -> None:
    prompts = [prompt(number, 20 + number) for number in range(3)]
    expected = [alone(backend, each, 6) for each in prompts]
    streams = [Stream(slot, list(each)) for slot, each in enumerate(prompts)]
    for _ in range(3):
        step(backend, streams)
    bad, others = streams[0], streams[1 : 1 + company]
    rows = [Row(bad.slot, bad.held, bad.feed, Faulty(where, backend.vocabulary))]
    rows += [Row(each.slot, each.held, each.feed, backend.sampler(GREEDY)) for each in others]
    failed, *sampled = backend.collect(backend.launch(rows))
    assert isinstance(failed, RowFailed)
    assert sampled == [each.tokens[3] for each in expected[1 : 1 + company]]
    for each, token in zip(others, sampled, strict=True):
        assert isinstance(token, int)
        each.held, each.feed = each.held + 1, [token]
        each.tokens.append(token)
        each.logits.append(expected[each.slot].logits[3])
    bad.held += 1  # it was fed
    bad.feed, bad.tokens = expected[0].tokens[3:4], []
    for _ in range(2):
        step(backend, [bad, *others])
    assert bad.tokens == expected[0].tokens[4:6]
    for each in others:
        assert_same(expected[each.slot], each)


# Other forms of models.


def run(model: Model, *lengths: int) -> tuple[Sequence[Stream], Sequence[Stream]]:
    """Sequences alone, and the same together."""
    backend = MlxBackend(model, MlxSettings(SLOTS, CELLS, BATCH))
    prompts = [prompt(number, length) for number, length in enumerate(lengths)]
    single = [alone(backend, each, 8) for each in prompts]
    streams = [Stream(slot, list(each)) for slot, each in enumerate(prompts)]
    for _ in range(8):
        step(backend, streams)
    backend.close()
    return single, streams


@pytest.mark.parametrize("kind", ["sliding"], indirect=True)
def test_a_model_whose_cache_cannot_be_batched_is_served_one_at_a_time(model: Model, monkeypatch: Any) -> None:
    """A rotating cache that always keeps its first tokens forgets in a batch which ones."""
    make: Callable[[], list[Any]] = model.network.make_cache

    def keeping() -> list[Any]:
        made = make()
        made[0].keep = made[2].keep = 4
        return made

    monkeypatch.setattr(type(model.network), "make_cache", lambda _: keeping())
    single = Model(model.path)
    assert not single.can_batch
    assert not MlxBackend(single, MlxSettings()).info.can_batch
    for one, other in zip(*run(single, 60, 5, 100), strict=True):
        assert one.tokens == other.tokens
    backend = MlxBackend(single, MlxSettings(SLOTS, CELLS, BATCH))
    stream = Stream(1, prompt(0, 60))
    for _ in range(4):
        step(backend, [stream])
    backend.restore(2, backend.snapshot(1))
    moved = Stream(2, list(stream.feed), stream.held)
    for _ in range(4):
        step(backend, [stream, moved])
    assert moved.tokens == stream.tokens[4:]


def test_a_model_in_half_precision_keeps_it_in_a_snapshot(kind: str, tmp_path: Any) -> None:
    folder = write_model(tmp_path, kind)
    weights = {name: value.astype(mx.bfloat16) for name, value in mx.load(str(folder / "model.safetensors")).items()}
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    backend = MlxBackend(Model(folder), MlxSettings(SLOTS, CELLS, BATCH))
    stream = Stream(0, prompt(3, 70))
    step(backend, [stream])
    snapshot = backend.snapshot(0)
    backend.restore(1, snapshot)
    assert bytes(backend.snapshot(1).data) == bytes(snapshot.data)
    moved = Stream(1, list(stream.feed), stream.held)
    step(backend, [moved])
    step(backend, [stream])
    assert moved.tokens == stream.tokens[1:]

"""The layout of a model in memory: within what there is, better with more, and as it was set or refused."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.cache_types import CACHE_TYPES
from tenuto.pipelines.fit import Device, Memory, Plan, Wishes, plan
from tenuto.pipelines.model_shape import Layer, Shape

GIB, MIB = 1 << 30, 1 << 20

LAYERS = st.builds(
    Layer,
    weights=st.integers(0, GIB),
    largest=st.integers(0, 64 * MIB),
    keys=st.sampled_from([0, 128, 1024, 4096]),
    values=st.sampled_from([0, 128, 1024]),
    state=st.sampled_from([0, 0, MIB]),
    is_windowed=st.booleans(),
)
SHAPES = st.builds(
    Shape,
    architecture=st.just("llama"),
    training_context=st.sampled_from([0, 512, 4096, 1 << 17]),
    vocabulary=st.integers(1, 1 << 18),
    layers=st.lists(LAYERS, min_size=1, max_size=12).map(tuple),
    inputs=st.integers(0, GIB),
    outputs=st.integers(0, GIB),
    tied=st.just(0),
    step=st.integers(1, 1 << 16),
    heads=st.sampled_from([(64,), (128, 64), (80,)]),
    window=st.sampled_from([512, 4096]),
)
WISHES = st.builds(
    Wishes,
    slots=st.none() | st.integers(1, 20),
    context=st.none() | st.integers(1, 1 << 15),
    cache_type=st.none() | st.sampled_from(CACHE_TYPES),
    gpu_layers=st.none() | st.integers(-1, 16),
    cache_bytes=st.none() | st.integers(1, 8 * GIB),
    host_cache_bytes=st.integers(0, GIB),
    further=st.integers(0, GIB),
)
BYTES = st.integers(0, 24 * GIB)
MEMORIES = st.builds(
    Memory,
    host=st.none() | BYTES,
    devices=st.lists(st.builds(Device, st.just("CUDA"), BYTES, st.booleans()), max_size=3).map(tuple),
    budget=st.none() | BYTES,
)
LLAMA_8B = Shape(
    architecture="llama",
    training_context=1 << 17,
    vocabulary=128_256,
    layers=(Layer(weights=130 * MIB, largest=35 * MIB, keys=1024, values=1024),) * 32,
    inputs=280 * MIB,
    outputs=410 * MIB,
    tied=0,
    step=70_000,
    heads=(128,),
)


def planned(shape: Shape, wishes: Wishes, memory: Memory) -> Plan | None:
    try:
        return plan(shape, wishes, memory)
    except ModelLoadFailed:
        return None


def goodness(made: Plan | None, shape: Shape) -> tuple[int, ...]:
    """Greater is better, in the order in which things give way."""
    if made is None:
        return ()
    wanted = min(shape.training_context or 8192, 8192)
    is_comfortable = made.context >= min(wanted, 4096)
    is_whole = made.gpu_layers > made.of_layers or not made.on_each
    exact = -CACHE_TYPES.index(made.cache_type)
    return is_comfortable, is_whole, exact, made.gpu_layers, made.context, made.slots, made.host_cache_bytes


@pytest.mark.slow
@given(shape=SHAPES, wishes=WISHES, memory=MEMORIES)
def test_a_plan_is_within_the_memory_and_as_was_set(shape: Shape, wishes: Wishes, memory: Memory) -> None:
    made = planned(shape, wishes, memory)
    assume(made is not None)
    assert made is not None
    shared = sum(taken for taken, device in zip(made.on_devices, memory.devices, strict=True) if device.is_unified)
    assert memory.host is None or made.host + made.host_cache_bytes + shared <= memory.host
    assert memory.budget is None or made.total <= memory.budget
    assert all(taken <= device.free for taken, device in zip(made.on_devices, memory.devices, strict=True))
    assert made.slots == wishes.slots or (wishes.slots is None and 1 <= made.slots <= 16)
    assert made.context == wishes.context or (wishes.context is None and 256 <= made.context <= wishes.most_context)
    assert made.cache_type == wishes.cache_type or wishes.cache_type is None
    most = len(shape.layers) + 1 if memory.devices else 0
    asked = wishes.gpu_layers
    assert asked is None or made.gpu_layers == (most if asked < 0 else min(asked, most))
    assert sum(made.on_each) == made.gpu_layers
    assert made.host_cache_bytes <= wishes.host_cache_bytes


@pytest.mark.slow
@given(
    shape=SHAPES,
    wishes=WISHES,
    memory=MEMORIES,
    more=st.tuples(BYTES, BYTES, st.lists(BYTES, min_size=3, max_size=3)),
)
def test_more_memory_never_gives_a_worse_plan(
    shape: Shape, wishes: Wishes, memory: Memory, more: tuple[int, int, list[int]]
) -> None:
    host, budget, on_devices = more
    larger = Memory(
        None if memory.host is None else memory.host + host,
        tuple(replace(device, free=device.free + add) for device, add in zip(memory.devices, on_devices, strict=False)),
        None if memory.budget is None else memory.budget + budget,
    )
    assert goodness(planned(shape, wishes, larger), shape) >= goodness(planned(shape, wishes, memory), shape)


@pytest.mark.slow
def test_things_give_way_in_their_order_on_the_way_to_no_memory() -> None:
    made = [
        plan(LLAMA_8B, Wishes(), Memory(64 * GIB, (Device("CUDA0", hundredths * GIB // 100),)))
        for hundredths in range(2400, 0, -2)
    ]
    rungs = dict.fromkeys((each.cache_type, "all" if each.gpu_layers == 33 else "some") for each in made)
    assert list(rungs) == [("f16", "all"), ("q8_0", "all"), ("q4_0", "all"), ("f16", "some")]
    exact = [each for each in made if each.cache_type == "f16" and each.gpu_layers == 33]
    contexts = [each.context for each in exact]
    assert contexts == sorted(contexts, reverse=True)
    assert (contexts[0], contexts[-1]) == (8192, 4096)
    slots = [each.slots for each in exact if each.context == 8192]
    assert slots == sorted(slots, reverse=True)
    assert (slots[0], slots[-1]) == (16, 1)
    layers = [each.gpu_layers for each in made]
    assert layers == sorted(layers, reverse=True)
    assert layers[-1] == 0


def test_without_room_the_numbers_are_told_and_what_would_fit() -> None:
    memory = Memory(6 * GIB)
    with pytest.raises(ModelLoadFailed) as refused:
        plan(LLAMA_8B, Wishes(slots=16, context=8192, cache_type="f16"), memory)
    told = str(refused.value)
    assert "16 x 8192 tokens of f16 take 20.9 GiB (4.7 GiB of weights, 16.0 GiB of cache" in told
    assert "6.0 GiB of main memory are free" in told
    assert told.endswith("would fit")
    with pytest.raises(ModelLoadFailed, match="take a smaller model or quantisation"):
        plan(LLAMA_8B, Wishes(), Memory(2 * GIB))


def test_no_more_slots_are_chosen_than_are_of_use() -> None:
    assert plan(LLAMA_8B, Wishes(most_slots=2), Memory(64 * GIB)).slots == 2
    assert plan(LLAMA_8B, Wishes(most_slots=2, slots=4), Memory(64 * GIB)).slots == 4


def test_a_cache_of_blocks_needs_heads_of_whole_blocks() -> None:
    odd = replace(LLAMA_8B, heads=(80,))
    with pytest.raises(ModelLoadFailed, match="this model's heads have 80; it can have f16"):
        plan(odd, Wishes(cache_type="q8_0"), Memory(64 * GIB))
    assert plan(odd, Wishes(), Memory(6 * GIB)).cache_type == "f16"


def test_layers_fill_one_device_after_the_other() -> None:
    memory = Memory(64 * GIB, (Device("CUDA0", 3 * GIB), Device("CUDA1", 3 * GIB), Device("CUDA2", 3 * GIB)))
    made = plan(LLAMA_8B, Wishes(slots=1, context=4096), memory)
    assert made.gpu_layers == 33
    assert made.on_each[0] > made.on_each[2], "the last one has what the others have no room for"
    assert all(made.on_each[:2])

"""How a model is laid out in the memory there is: layers on accelerators, context, slots, type and bytes of its cache.

Pure: what is there and what is wanted comes from outside, and nothing is loaded. What was set is kept or refused.
What is left open gives way in this order, each only when the one before it is at its least:

1. the host memory for paused sequences, and slots, down to one;
2. the context, down to 4,096 tokens;
3. the type of the cache: f16, then q8_0, then q4_0;
4. layers on accelerators;
5. the context, down to 256 tokens, on accelerators again as far as possible.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.cache_types import CACHE_TYPES, CacheType, can_hold
from tenuto.pipelines.fit.needs import CELL_STEP, Layout, Need, is_plain, need_of
from tenuto.pipelines.fit.refusal import refusal
from tenuto.pipelines.fit.values import Memory, Plan, Wishes
from tenuto.pipelines.model_shape import Shape

COMFORTABLE = 4096
_LEAST_CACHE = 1 << 30


def plan(shape: Shape, wishes: Wishes, memory: Memory) -> Plan:
    """The best layout that fits.

    Raises:
        ModelLoadFailed: none does, or what was set cannot be; the text has the numbers and what would fit.
    """
    types = _types(shape, wishes)
    for is_comfortable in (True, False):
        for is_whole in (True, False):
            for cache_type in types:
                least = _least(shape, wishes, cache_type, is_comfortable=is_comfortable)
                found = _within(shape, wishes, memory, least, is_whole=is_whole)
                if found is not None:
                    return found
    least = _least(shape, wishes, types[-1], is_comfortable=False)
    raise ModelLoadFailed(refusal(shape, wishes, memory, least, _opened(shape, wishes, memory)))


def _types(shape: Shape, wishes: Wishes) -> Sequence[CacheType]:
    possible = [each for each in CACHE_TYPES if all(can_hold(head, each) for head in shape.heads)]
    if wishes.cache_type is None:
        return possible
    if wishes.cache_type not in possible:
        heads = " and ".join(map(str, shape.heads))
        raise ModelLoadFailed(
            f"a cache of type {wishes.cache_type} has blocks of 32 numbers, and this model's heads have {heads}; it can"
            f" have {' or '.join(possible)}"
        )
    return [wishes.cache_type]


def _wanted(shape: Shape, wishes: Wishes) -> int:
    wanted = min(shape.training_context or wishes.most_context, wishes.most_context)
    return wishes.context or max(CELL_STEP, wanted // CELL_STEP * CELL_STEP)


def _least(shape: Shape, wishes: Wishes, cache_type: CacheType, *, is_comfortable: bool) -> Layout:
    wanted = _wanted(shape, wishes)
    context = wanted if wishes.context else min(wanted, COMFORTABLE if is_comfortable else CELL_STEP)
    return Layout(wishes.slots or 1, context, cache_type, 0)


def _within(shape: Shape, wishes: Wishes, memory: Memory, least: Layout, *, is_whole: bool) -> Plan | None:
    """The best layout with the least context and slots or more. `is_whole`: with all layers on devices."""
    most = len(shape.layers) + 1 if memory.devices else 0

    def fits(tried: Layout) -> bool:
        return _fits(shape, wishes, memory, tried)

    if wishes.gpu_layers is None and is_whole:
        layers: int | None = most if fits(replace(least, gpu_layers=most)) else None
    elif wishes.gpu_layers is None:
        layers = _greatest(0, most, lambda count: fits(replace(least, gpu_layers=count)))
    else:
        set_to = most if wishes.gpu_layers < 0 else min(wishes.gpu_layers, most)
        layers = set_to if fits(replace(least, gpu_layers=set_to)) else None
    if layers is None:
        return None
    chosen = replace(least, gpu_layers=layers)
    if wishes.context is None:
        steps = _greatest(
            -(-chosen.context // CELL_STEP),
            _wanted(shape, wishes) // CELL_STEP,
            lambda steps: fits(replace(chosen, context=steps * CELL_STEP)),
        )
        chosen = chosen if steps is None else replace(chosen, context=steps * CELL_STEP)
    if wishes.slots is None:
        slots = _greatest(1, wishes.most_slots, lambda slots: fits(replace(chosen, slots=slots)))
        chosen = replace(chosen, slots=slots or 1)
    need = need_of(shape, wishes, memory, chosen)
    assert need is not None, "it fits"
    return _planned(shape, wishes, memory, chosen, need)


def _greatest(least: int, most: int, fits: Callable[[int], bool]) -> int | None:
    """The greatest number that fits, where none fits above one that does not; None: not even the least."""
    if most < least or not fits(least):
        return None
    while least < most:
        middle = (least + most + 1) // 2
        if fits(middle):
            least = middle
        else:
            most = middle - 1
    return least


def _fits(shape: Shape, wishes: Wishes, memory: Memory, tried: Layout) -> bool:
    need = need_of(shape, wishes, memory, tried)
    if need is None or not _is_there(need, memory):
        return False
    is_open = wishes.slots is None or wishes.context is None
    is_least = tried.slots == (wishes.slots or 1) and tried.context <= CELL_STEP
    return not is_open or is_least or need.cache <= _cache_limit(wishes, memory)


def _is_there(need: Need, memory: Memory) -> bool:
    shared = sum(taken for taken, device in zip(need.devices, memory.devices, strict=True) if device.is_unified)
    return (
        (memory.host is None or need.host + shared <= memory.host)
        and (memory.budget is None or need.host + sum(need.devices) <= memory.budget)
        and all(taken <= device.free for taken, device in zip(need.devices, memory.devices, strict=True))
    )


def _cache_limit(wishes: Wishes, memory: Memory) -> int:
    """What the cache may take where nobody says: 1 GiB, or a quarter of the largest memory if that is more."""
    if wishes.cache_bytes is not None:
        return wishes.cache_bytes
    free = max(sum(device.free for device in memory.devices), memory.host or 0)
    return max(_LEAST_CACHE, free // 4 // wishes.among)


def _planned(shape: Shape, wishes: Wishes, memory: Memory, chosen: Layout, need: Need) -> Plan:
    shared = sum(taken for taken, device in zip(need.devices, memory.devices, strict=True) if device.is_unified)
    room = wishes.host_cache_bytes
    if memory.host is not None:
        room = min(room, memory.host - need.host - shared)
    if memory.budget is not None:
        room = min(room, memory.budget - need.host - sum(need.devices))
    made = Plan(
        slots=chosen.slots,
        context=chosen.context,
        cache_type=chosen.cache_type,
        gpu_layers=chosen.gpu_layers,
        of_layers=len(shape.layers),
        on_each=need.on_each,
        weights=need.weights,
        cache=need.cache,
        step=need.step,
        host=need.host,
        on_devices=need.devices,
        host_cache_bytes=max(0, room),
        is_plain=is_plain(shape, wishes, chosen),
    )
    return replace(made, gave_way=tuple(_gave_way(shape, wishes, memory, made)))


def _gave_way(shape: Shape, wishes: Wishes, memory: Memory, made: Plan) -> Iterator[str]:
    if made.host_cache_bytes < wishes.host_cache_bytes:
        yield "host memory for paused sequences"
    if wishes.slots is None and made.slots < wishes.most_slots:
        yield "slots"
    if wishes.context is None and made.context < _wanted(shape, wishes):
        yield "context"
    if wishes.cache_type is None and made.cache_type != CACHE_TYPES[0]:
        yield "type of the cache"
    if wishes.gpu_layers is None and memory.devices and made.gpu_layers <= made.of_layers:
        yield "layers on devices"


def _opened(shape: Shape, wishes: Wishes, memory: Memory) -> Plan | None:
    """What would fit, if what was set were left open."""
    opened = replace(wishes, slots=None, context=None, cache_type=None, gpu_layers=None, cache_bytes=None)
    if opened == wishes:
        return None
    try:
        return plan(shape, opened, memory)
    except ModelLoadFailed:
        return None

"""What a layout of a model takes, on the host and on each device. Pure.

The cache and the weights are what the library allocates to the byte; what a step works with is bounded from above.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.pipelines.cache_types import CacheType, row_bytes
from tenuto.pipelines.fit.values import Device, Memory, Wishes
from tenuto.pipelines.model_shape import Layer, Shape

CELL_STEP = 256
"""The library rounds the cells of a slot up to whole steps."""
_CELL_FACTS = 128
"""Bytes that the library keeps of a cell beside its numbers, once for each kind of cache."""
_SCRATCH = 16 << 20
"""What the library takes for itself on each device, whatever the model."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What is tried. `gpu_layers` counts the outputs as a layer."""

    slots: int
    context: int
    cache_type: CacheType
    gpu_layers: int


@dataclass(frozen=True, slots=True)
class Need:
    """What a layout takes, in bytes; of `devices` each, and so many layers `on_each`."""

    weights: int
    cache: int
    step: int
    host: int
    devices: tuple[int, ...]
    on_each: tuple[int, ...]


def need_of(shape: Shape, wishes: Wishes, memory: Memory, tried: Layout) -> Need | None:
    """What a layout takes, or None where its layers find no place on the devices."""
    cells = -(-tried.context // CELL_STEP) * CELL_STEP
    windowed = _windowed_cells(shape, cells, wishes.batch_tokens)
    caches = [
        tried.slots * _slot_bytes(layer, windowed if layer.is_windowed else cells, tried.cache_type)
        for layer in shape.layers
    ]
    step = _step_bytes(shape, cells + (windowed if shape.window else 0), tried.slots, wishes.batch_tokens)
    placed = _placed(shape, caches, step, memory.devices, tried.gpu_layers, wishes.on_each)
    if placed is None:
        return None
    on_each, devices = placed
    on_host = min(len(shape.layers), len(shape.layers) + 1 - tried.gpu_layers)
    host = wishes.further + shape.inputs + shape.adapter + _SCRATCH + step
    host += sum(layer.weights + layer.adapter for layer in shape.layers[:on_host]) + sum(caches[:on_host])
    host += _CELL_FACTS * tried.slots * (cells + (windowed if shape.window else 0))
    host += 0 if tried.gpu_layers else shape.outputs
    steps = step * (1 + sum(bool(taken) for taken in devices))
    return Need(shape.weights, sum(caches), steps, host, devices, on_each)


def _windowed_cells(shape: Shape, cells: int, batch_tokens: int) -> int:
    return min(cells, -(-(shape.window + batch_tokens) // CELL_STEP) * CELL_STEP)


def _slot_bytes(layer: Layer, cells: int, cache_type: CacheType) -> int:
    """What a layer keeps of a slot."""
    return cells * (row_bytes(layer.keys, cache_type) + row_bytes(layer.values, cache_type)) + layer.state


def _step_bytes(shape: Shape, cells: int, slots: int, batch_tokens: int) -> int:
    """What a step works with: numbers of its tokens, a mask over the cells, and the logits twice."""
    batch_tokens = min(batch_tokens, slots * cells)
    state = max((layer.state for layer in shape.layers), default=0)
    logits = 8 * slots * (shape.vocabulary + shape.step)
    return batch_tokens * (4 * shape.step + 2 * cells) + logits + 2 * slots * state


def _placed(
    shape: Shape,
    caches: Sequence[int],
    step: int,
    devices: Sequence[Device],
    gpu_layers: int,
    on_each: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The last layers, and behind them the outputs, one device after the other: how many each has, and its bytes.

    `on_each`: so many lie on each already, and others cannot.
    """
    taken, counts = [0] * len(devices), [0] * len(devices)
    if not gpu_layers:
        return tuple(counts), tuple(taken)
    begin = len(shape.layers) + 1 - gpu_layers
    # For a long prompt the library brings the other layers' weights over, one after the other.
    visiting = max((layer.largest for layer in shape.layers[:begin]), default=0)
    own = _SCRATCH + step + visiting
    layers = zip(shape.layers[begin:], caches[begin:], strict=True)
    parts = [layer.weights + layer.adapter + cache for layer, cache in layers]
    at = 0
    for part in [*parts, shape.outputs + shape.tied]:
        while at < len(devices) and _is_full(at, counts, on_each, (taken[at] or own) + part > devices[at].free):
            at += 1
        if at == len(devices):
            return None
        taken[at] = (taken[at] or own) + part
        counts[at] += 1
    return tuple(counts), tuple(taken)


def _is_full(device: int, counts: Sequence[int], on_each: Sequence[int], overflows: bool) -> bool:
    return overflows or (device < len(on_each) and counts[device] == on_each[device])


def weights_on(shape: Shape, on_each: Sequence[int]) -> tuple[int, ...]:
    """The bytes of weights on each device, with so many layers on each, the outputs as the last of them."""
    parts = [layer.weights for layer in shape.layers] + [shape.outputs + shape.tied]
    parts = parts[len(parts) - sum(on_each) :]
    ends = [sum(on_each[: number + 1]) for number in range(len(on_each))]
    return tuple(sum(parts[end - count : end]) for end, count in zip(ends, on_each, strict=True))

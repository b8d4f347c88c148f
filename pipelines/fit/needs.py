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
PLAIN_TOKENS = 128
"""So many tokens at a time are attended to plainly."""
_PLAIN_BYTES = 128 << 20
"""Scores take at most so many."""
_DRAFTED_BYTES = 16 << 20
"""Logits of drafted tokens take at most so many."""


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


def most_drafts(wished: int, batch_tokens: int, vocabulary: int) -> int:
    """How many drafted tokens a step carries at most."""
    return min(wished, batch_tokens // 2, _DRAFTED_BYTES // (4 * max(vocabulary, 1)))


def is_plain(shape: Shape, wishes: Wishes, tried: Layout) -> bool:
    """Whether scores are written out, where that is preferred (docs/decisions/0065).

    The library can do so with no quantised values; what belongs to an image is attended to as a whole.
    """
    scores = 4 * shape.queries * PLAIN_TOKENS * tried.context
    has_to_fold = tried.gpu_layers or wishes.further or tried.cache_type != "f16"
    return wishes.prefers_plain and not has_to_fold and 0 < scores <= _PLAIN_BYTES


def need_of(shape: Shape, wishes: Wishes, memory: Memory, tried: Layout) -> Need | None:
    """What a layout takes, or None where its layers find no place on the devices."""
    cells = -(-tried.context // CELL_STEP) * CELL_STEP
    plain = is_plain(shape, wishes, tried)
    at_once = min(wishes.batch_tokens, max(PLAIN_TOKENS, tried.slots)) if plain else wishes.batch_tokens
    windowed = _windowed_cells(shape, cells, at_once)
    caches = [
        tried.slots * _slot_bytes(layer, windowed if layer.is_windowed else cells, tried.cache_type)
        for layer in shape.layers
    ]
    outputs = tried.slots + most_drafts(wishes.drafts, wishes.batch_tokens, shape.vocabulary)
    rows = _Rows(min(at_once, tried.slots * cells), outputs, tried.slots)
    step = _step_bytes(shape, cells + (windowed if shape.window else 0), rows, is_plain=plain)
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


def _windowed_cells(shape: Shape, cells: int, at_once: int) -> int:
    return min(cells, -(-(shape.window + at_once) // CELL_STEP) * CELL_STEP)


def _slot_bytes(layer: Layer, cells: int, cache_type: CacheType) -> int:
    """What a layer keeps of a slot."""
    return cells * (row_bytes(layer.keys, cache_type) + row_bytes(layer.values, cache_type)) + layer.state


@dataclass(frozen=True, slots=True)
class _Rows:
    """How many tokens a step works with at once, how many of them have logits, and of how many slots they are."""

    tokens: int
    outputs: int
    slots: int


def _step_bytes(shape: Shape, cells: int, rows: _Rows, *, is_plain: bool) -> int:
    """What a step works with: numbers of its tokens, a mask over the cells, scores if they are written out, and the
    logits twice."""
    state = max((layer.state for layer in shape.layers), default=0)
    logits = 8 * rows.outputs * (shape.vocabulary + shape.step)
    # Written out, the mask has four bytes for each score too.
    of_cells = 4 * (shape.queries + 1) * cells if is_plain else 2 * cells
    return rows.tokens * (4 * shape.step + of_cells) + logits + 2 * rows.slots * state


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

"""Plans for a GGUF model from its files and this machine: what its heads say, and the memory that is free now."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.adapters import Adapter, fitting
from tenuto.pipelines.fit import Device, Memory, Plan, Wishes, plan, weights_on
from tenuto.pipelines.gguf_header import read_gguf_header
from tenuto.pipelines.machine_memory import free_bytes, usable
from tenuto.pipelines.model_facts import gguf_parts
from tenuto.pipelines.model_shape import embeds, shape_of


def planned(
    path: Path,
    wishes: Wishes,
    devices: Sequence[Device],
    budget: int | None = None,
    adapter: Adapter | None = None,
) -> Plan | None:
    """The plan for a model in the memory that is free, and within a budget. None: it keeps no cache, for it embeds.

    With `on_each` among the wishes its weights are on these devices already, and are not free there.

    Raises:
        ModelLoadFailed: it does not fit, or a file is missing or damaged.
    """
    free = free_bytes()
    if wishes.on_each:
        there = weights_on(shape_of([read_gguf_header(part) for part in gguf_parts(path)]), wishes.on_each)
        devices = [replace(each, free=each.free + taken) for each, taken in zip(devices, there, strict=False)]
    memory = Memory(None if free is None else usable(free), tuple(devices), budget)
    return planned_into(path, wishes, memory, adapter)


def planned_into(path: Path, wishes: Wishes, memory: Memory, adapter: Adapter | None = None) -> Plan | None:
    """The same, for a memory that is given.

    Raises:
        ModelLoadFailed: as `planned` does, and where the adapter does not fit the model.
    """
    headers = [read_gguf_header(part) for part in gguf_parts(path)]
    added = {} if adapter is None else fitting(adapter, path).tensors
    if embeds(headers[0]):
        return None
    try:
        return plan(shape_of(headers, added), wishes, memory)
    except ModelLoadFailed as error:
        raise ModelLoadFailed(f"{path}: {error}") from None

"""Plans for a GGUF model from its files and this machine: what its heads say, and the memory that is free now."""

from collections.abc import Sequence
from pathlib import Path

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.fit import Device, Memory, Plan, Wishes, plan
from tenuto.pipelines.gguf_header import read_gguf_header
from tenuto.pipelines.machine_memory import free_bytes, usable
from tenuto.pipelines.model_facts import gguf_parts
from tenuto.pipelines.model_shape import embeds, shape_of


def planned(path: Path, wishes: Wishes, devices: Sequence[Device], budget: int | None = None) -> Plan | None:
    """The plan for a model in the memory that is free, and within a budget. None: it keeps no cache, for it embeds.

    Raises:
        ModelLoadFailed: it does not fit, or a file is missing or damaged.
    """
    free = free_bytes()
    return planned_into(path, wishes, Memory(None if free is None else usable(free), tuple(devices), budget))


def planned_into(path: Path, wishes: Wishes, memory: Memory) -> Plan | None:
    """The same, for a memory that is given."""
    headers = [read_gguf_header(part) for part in gguf_parts(path)]
    if embeds(headers[0]):
        return None
    try:
        return plan(shape_of(headers), wishes, memory)
    except ModelLoadFailed as error:
        raise ModelLoadFailed(f"{path}: {error}") from None

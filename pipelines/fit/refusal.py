"""Why a model does not fit, in words: the numbers of the least layout, what is there, and what would fit. Pure."""

from dataclasses import replace

from tenuto.pipelines.fit.needs import Layout, need_of
from tenuto.pipelines.fit.values import Memory, Plan, Wishes
from tenuto.pipelines.model_shape import Shape


def refusal(shape: Shape, wishes: Wishes, memory: Memory, least: Layout, opened: Plan | None) -> str:
    """The whole sentence. `opened` is what would fit, if what was set were left open."""
    # As if its devices had room: what it takes there is told, and not that it finds no place.
    devices = tuple(replace(each, free=1 << 62) for each in memory.devices[:1])
    asked = replace(least, gpu_layers=_asked_layers(shape, wishes) if devices else 0)
    need = need_of(shape, wishes, replace(memory, devices=devices), asked)
    assert need is not None, "there is room"
    return (
        f"it does not fit into memory: {least.slots} x {least.context} tokens of {least.cache_type} take"
        f" {in_words(need.host + sum(need.devices))} ({in_words(need.weights)} of weights, {in_words(need.cache)} of"
        f" cache, {in_words(need.step)} to work with), and {_there(memory)}; {_advice(memory, opened)}"
    )


def _asked_layers(shape: Shape, wishes: Wishes) -> int:
    most = len(shape.layers) + 1
    asked = wishes.gpu_layers or 0
    return most if asked < 0 else min(asked, most)


def _there(memory: Memory) -> str:
    parts = [f"{in_words(device.free)} are free on {device.name}" for device in memory.devices]
    if memory.host is not None:
        parts.append(f"{in_words(memory.host)} of main memory are free")
    if memory.budget is not None:
        parts.append(f"{in_words(memory.budget)} are the budget (--model-memory)")
    return " and ".join(parts) or "there is none"


def _advice(memory: Memory, opened: Plan | None) -> str:
    if opened is None:
        return "free some memory, or take a smaller model or quantisation"
    on_devices = f", {opened.gpu_layers} layers on devices" if memory.devices else ""
    return f"{opened.slots} x {opened.context} tokens of {opened.cache_type}{on_devices} would fit"


def in_words(nbytes: int) -> str:
    """A size as people write it."""
    size, unit = (nbytes / (1 << 30), "GiB") if nbytes >= 1 << 30 else (nbytes / (1 << 20), "MiB")
    return f"{size:.1f} {unit}"

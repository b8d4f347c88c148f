"""What a plan is made of: the memory that is there, what is wanted of it, and how a model is laid out."""

from dataclasses import dataclass

from tenuto.pipelines.cache_types import CacheType


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator. `is_unified`: its memory is main memory."""

    name: str
    free: int
    is_unified: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """What is free, in bytes. `host` None: not known, and not bounded. `budget` bounds all memories together."""

    host: int | None
    devices: tuple[Device, ...] = ()
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was set; None is chosen. `gpu_layers` below 0: all.

    `cache_bytes` bounds the cache where slots or context are left open, and `most_context` and
    `most_slots` what is chosen for these. `host_cache_bytes` is the most for paused sequences in host memory.
    """

    slots: int | None = None
    context: int | None = None
    cache_type: CacheType | None = None
    gpu_layers: int | None = None
    cache_bytes: int | None = None
    host_cache_bytes: int = 0
    most_context: int = 8192
    most_slots: int = 16
    batch_tokens: int = 512
    drafts: int = 0
    """How many drafted tokens a step may carry."""
    among: int = 1
    """How many models share the memory that nobody has divided."""
    on_each: tuple[int, ...] = ()
    """Where the layers on accelerators lie that are there already, for another model with the same weights."""
    prefers_plain: bool = True
    """Whether processors attend faster where scores are written out than where they are folded as they come."""
    further: int = 0
    """Bytes in main memory of what belongs to the model beside its weights, such as a projector."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a model is laid out. `gpu_layers` are on devices, so many of them on each; the outputs count as a layer."""

    slots: int
    context: int
    cache_type: CacheType
    gpu_layers: int
    of_layers: int
    on_each: tuple[int, ...]
    weights: int
    cache: int
    step: int
    """Bytes of what a step works with."""
    host: int
    on_devices: tuple[int, ...]
    host_cache_bytes: int
    is_plain: bool = False
    """Whether scores are written out, and not folded as they come, which takes more memory for a step."""
    gave_way: tuple[str, ...] = ()
    """In words, what is less than it would be with more memory."""

    @property
    def total(self) -> int:
        """All bytes, those for paused sequences too."""
        return self.host + sum(self.on_devices) + self.host_cache_bytes

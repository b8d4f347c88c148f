"""Which cache gives way, and to where: whichever wastes least (InferCept's rule). Pure: no clock, no backend, no table.

A waste is told in byte seconds of cache that do no work: the room that a cache takes while its sequence waits, and, for
as long as a cache is copied or computed again, it and all those beside it that stand still meanwhile. Reading from the
disk holds up nobody but who waits for it. https://arxiv.org/abs/2402.01869
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tenuto.runtime.engine.messages import Residency

DOWNWARD = (Residency.DEVICE, Residency.HOST, Residency.DISK, Residency.NONE)
"""The dearest room first. Where two places waste alike, the cache stays higher up."""
MOST_WAIT_S = 7 * 24 * 3600.0
"""Who waits for longer waits for ever."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """What moves take: bytes a second from the device to host memory and back, and from the disk; tokens a second of
    prefill. `read_s` and `step_s`: what a read, and what computing again takes however little it is."""

    out: float = 1e9
    back: float = 1e9
    read: float = 400e6
    prefill: float = 1000.0
    read_s: float = 0.01
    step_s: float = 0.002

    def __post_init__(self) -> None:
        if min(self.out, self.back, self.read, self.prefill) <= 0:
            raise ValueError(f"at these speeds nothing would come to an end: {self}")


@dataclass(frozen=True, slots=True)
class Cache:
    """The cache of a sequence that waits, on the device or in host memory. `room`: the bytes that others get once it is
    gone."""

    id: str
    at: Residency
    room: int
    nbytes: int
    tokens: int
    wait_s: float
    """For how long its sequence is expected to wait yet."""
    host: float | None = None
    """What a byte second in host memory counts beside one on the device, at most 1, and 0 where nobody else needs it;
    None where this one may not lie there."""
    disk: bool = False
    """Whether it may be read back from the disk later on."""
    written: int = 0
    """How many of its tokens lie there already; none: all are written when it goes."""

    def __post_init__(self) -> None:
        if self.at not in (Residency.DEVICE, Residency.HOST) or not 0 <= self.nbytes <= self.room:
            raise ValueError(f"no cache that could give way: {self}")
        if not 0 <= self.written <= self.tokens:
            raise ValueError(f"more is written than there is: {self}")
        if not 0 <= self.wait_s <= MOST_WAIT_S or not 0 <= (self.host or 0.0) <= 1:
            raise ValueError(f"a wait or a price that cannot be: {self}")


@dataclass(frozen=True, slots=True)
class Going:
    """A cache, the place where it wastes least, and how much less that is than where it lies; below 0: it wastes more,
    and goes only because somebody has to."""

    id: str
    place: Residency
    gain: float
    room: int

    @property
    def density(self) -> float:
        """What is gained for each byte that is left to others."""
        return self.gain / max(self.room, 1)


def waste(cache: Cache, place: Residency, speeds: Speeds, beside: int) -> float:
    """What a cache wastes in a place until its sequence goes on. `beside`: the bytes of all caches that stand still
    while it is moved."""
    still = beside + cache.nbytes
    out_s = 0.0 if cache.at is Residency.HOST else cache.nbytes / speeds.out
    back_s = cache.nbytes / speeds.back
    match place:
        case Residency.DEVICE:
            return cache.room * cache.wait_s
        case Residency.HOST:
            return (out_s + back_s) * still + (cache.host or 0.0) * cache.nbytes * cache.wait_s
        case Residency.DISK:
            lacks = cache.tokens - cache.written if cache.written else 0
            again_s = _again_s(lacks, speeds) + back_s + (0.0 if cache.written else out_s)
            return again_s * still + (speeds.read_s + cache.nbytes / speeds.read) * cache.nbytes
        case Residency.NONE:
            return _again_s(cache.tokens, speeds) * still


def _again_s(tokens: int, speeds: Speeds) -> float:
    return speeds.step_s + tokens / speeds.prefill if tokens else 0.0


def going(cache: Cache, speeds: Speeds, beside: int) -> Going:
    """Where a cache wastes least that has to leave its place."""
    stays = waste(cache, cache.at, speeds, beside)
    best, least = Residency.NONE, waste(cache, Residency.NONE, speeds, beside)
    if cache.disk and (wasted := waste(cache, Residency.DISK, speeds, beside)) <= least:
        best, least = Residency.DISK, wasted
    if cache.at is Residency.DEVICE and cache.host is not None:
        wasted = waste(cache, Residency.HOST, speeds, beside)
        if wasted <= least:
            best, least = Residency.HOST, wasted
    return Going(cache.id, best, stays - least, cache.room)


def place_of(cache: Cache, speeds: Speeds, beside: int) -> Residency:
    """Where a cache wastes least that may stay where it is."""
    leaving = going(cache, speeds, beside)
    return leaving.place if leaving.gain > 0 else cache.at


def in_order(caches: Iterable[Cache], speeds: Speeds, beside: int) -> list[Going]:
    """All of them, the one first whose going wastes least for each byte that it leaves to others. Given the least
    recently used first, that one goes first of those that are alike."""
    return sorted((going(one, speeds, beside) for one in caches), key=lambda one: -one.density)


def left_s(expected_s: float, spread_s: float, elapsed_s: float) -> float:
    """For how long a wait is expected to go on that was to take so long, by so much more or less, and has taken
    `elapsed_s`. One that is overdue is expected to go on for as long as it is overdue."""
    return min(max(expected_s - elapsed_s, spread_s, elapsed_s - expected_s, 0.0), MOST_WAIT_S)

"""Who gives way, as `waste` says, from what an engine knows of its sequences. Engine thread only."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tenuto.pipelines.backend import BackendInfo
from tenuto.runtime.engine.disk_caches import DiskCaches
from tenuto.runtime.engine.host_memory import HostRoom
from tenuto.runtime.engine.messages import Residency
from tenuto.runtime.engine.sequence import Sequence
from tenuto.runtime.engine.waits import Waits
from tenuto.runtime.engine.waste import Cache, Going, in_order


class GivingWay:
    """Of one engine, whose caches may take so many bytes of host memory."""

    def __init__(self, info: BackendInfo, host_bytes: int, disk: DiskCaches, waits: Waits) -> None:
        self._bytes_per_token, self._slot_bytes = info.bytes_per_token, info.cells * info.bytes_per_token
        self._host_bytes, self._disk, self._waits = host_bytes, disk, waits
        # A byte of host memory is as much dearer than one of the device as there is less of it; and never dearer.
        self._price = min(1.0, info.slots * self._slot_bytes / host_bytes) if host_bytes else 1.0
        self.beside = 0
        """Bytes of all caches on the device."""
        self._claimant: tuple[Sequence, int, int] | None = None

    def from_device(self, holders: Iterable[Sequence]) -> list[Going]:
        """Sequences that have a slot and do nothing, the first to give way first."""
        now = time.monotonic()
        return self._ordered([self._on_device(one, now) for one in holders])

    @contextmanager
    def claimed(self, sequence: Sequence, nbytes: int, tokens: int) -> Iterator[None]:
        """For the block, host memory is asked for by a sequence's cache."""
        self._claimant = sequence, nbytes, tokens
        try:
            yield
        finally:
            self._claimant = None

    def from_host(self, rooms: Iterable[HostRoom]) -> list[HostRoom]:
        """Caches of a principal in host memory, the first to give way first; without those that waste less there than
        what another of the principal's would put in their place."""
        now, by_id = time.monotonic(), {room.sequence.id: room for room in rooms}
        goings = self._ordered(
            [self._in_host(one.sequence, one.nbytes, len(one.copy.tokens), now) for one in by_id.values() if one.copy]
        )
        if self._claimant is not None:
            sequence, nbytes, tokens = self._claimant
            [claim] = self._ordered([self._in_host(sequence, nbytes, tokens, now)])
            goings = [
                one
                for one in goings
                if one.density >= claim.density or by_id[one.id].sequence.principal != sequence.principal
            ]
        return [by_id[one.id] for one in goings]

    def _ordered(self, caches: list[Cache]) -> list[Going]:
        return in_order(caches, self._disk.measures.speeds(), self.beside)

    def _on_device(self, sequence: Sequence, now: float) -> Cache:
        nbytes = sequence.cached * self._bytes_per_token
        stays = sequence.cached > 0
        written = self._disk.written(sequence, sequence.cached)
        return Cache(
            sequence.id,
            Residency.DEVICE,
            max(self._slot_bytes, nbytes),
            nbytes,
            sequence.cached,
            self._waits.left_s(sequence, now),
            0.0 if stays and nbytes <= self._host_bytes else None,  # against others there it is held once it asks
            bool(written) or (stays and self._disk.wants(sequence, sequence.cached)),
            written,
        )

    def _in_host(self, sequence: Sequence, nbytes: int, held: int, now: float) -> Cache:
        written = self._disk.written(sequence, held)
        can_lie = bool(written) or self._disk.wants(sequence, held)
        wait_s = self._waits.left_s(sequence, now)
        return Cache(sequence.id, Residency.HOST, nbytes, nbytes, held, wait_s, self._price, can_lie, written)

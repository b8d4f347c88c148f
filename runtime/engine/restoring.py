"""Caches from host memory that go back into slots, and what becomes of those that were read from the disk for it.

Engine thread only.
"""

import logging
import time

from tenuto.pipelines.backend import Backend
from tenuto.runtime.engine.disk_caches import DiskCaches
from tenuto.runtime.engine.host_memory import HostCopy

logger = logging.getLogger(__name__)


class Restoring:
    """Of one backend."""

    def __init__(self, backend: Backend, disk: DiskCaches) -> None:
        self._backend, self._disk = backend, disk

    def restore(self, slot: int, copy: HostCopy) -> int:
        """Put a cache into a slot that is empty, and give how many tokens it holds then. One from the disk that is
        refused is as good as none: what raises there raises here only where the cache was computed by this engine."""
        began = time.monotonic()
        try:
            self._backend.restore(slot, copy.snapshot)
        except Exception:
            if not copy.kept_as:
                raise
            logger.exception("the cache %s from the disk is refused", copy.kept_as)
            self._disk.reject(copy.kept_as)
            self._backend.release(slot)
            return 0
        self._disk.measures.back.add(copy.snapshot.nbytes, time.monotonic() - began)
        if copy.kept_as:
            self._disk.restored(copy.kept_as)
        return len(copy.tokens)

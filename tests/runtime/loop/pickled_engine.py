"""An engine that is reached through two queues of bytes, as one in another process would be."""

import pickle
import queue
import threading
from collections.abc import Callable
from typing import Any

import anyio.to_thread

from tenuto.pipelines.base import Pipeline
from tenuto.runtime.engine.engine import EngineSettings, Outlet
from tenuto.runtime.engine.messages import Command, Report, Stop
from tenuto.runtime.engine.residency import CacheLimits
from tenuto.runtime.engine.worker import Worker
from tenuto.threads import Next

Bytes = queue.SimpleQueue[bytes | None]
"""Messages, and None at their end."""


class PickledEngine:
    """An `EnginePort`: whatever passes in or out is pickled on the way."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._inbox: Bytes = queue.SimpleQueue()
        self._outbox: Bytes = queue.SimpleQueue()
        limits = EngineSettings()
        self._worker = Worker(pipeline, CacheLimits(limits.host_cache_bytes), limits.prefill_chunk, self._report)
        self._thread = threading.Thread(target=self._work, daemon=True)

    def begin(
        self,
        heard: Callable[[Report], None],
        ended: Callable[[], None],
        lost: Callable[[], None],
        anew: Callable[[], None],
    ) -> None:
        del lost, anew  # it is not begun again
        outlet = Outlet(heard, ended)
        self._readers = [
            threading.Thread(target=_carry, args=(self._inbox, self._worker.commands.put), daemon=True),
            threading.Thread(target=_carry, args=(self._outbox, outlet.report, outlet.end), daemon=True),
        ]
        for thread in (*self._readers, self._thread):
            thread.start()

    def tell(self, command: Command) -> None:
        self._inbox.put(pickle.dumps(command))

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    async def stop(self, timeout_s: float) -> None:
        self.tell(Stop())
        self._inbox.put(None)
        for thread in (self._thread, *self._readers):
            await anyio.to_thread.run_sync(thread.join, timeout_s)
            assert not thread.is_alive()

    def _report(self, report: Report) -> None:
        self._outbox.put(pickle.dumps(report))

    def _work(self) -> None:
        try:
            while self._worker.work(True) is not Next.ENDED:
                pass
        finally:
            self._outbox.put(None)


def _carry(messages: Bytes, take: Callable[[Any], None], ended: Callable[[], None] = lambda: None) -> None:
    while (message := messages.get()) is not None:
        take(pickle.loads(message))
    ended()

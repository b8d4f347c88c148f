"""An engine in a thread of this process: commands in through a queue, reports out to the event loop, once a step."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio.to_thread

from tenuto.errors import ConfigurationError
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.embedding import EmbeddingPipeline
from tenuto.runtime.engine.embedding_worker import EmbeddingWorker
from tenuto.runtime.engine.messages import Command, Report, Stop
from tenuto.runtime.engine.residency import CacheLimits
from tenuto.runtime.engine.snapshots import Limits, SnapshotStore
from tenuto.runtime.engine.worker import Worker
from tenuto.threads import Drive, Driver, Next, Thread

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """The folder of all models' snapshots, and what one model's may take there."""

    folder: Path
    limits: Limits


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an engine holds itself to."""

    prefill_chunk: int = 256
    """The most tokens of prompts in a step in which others decode."""
    host_cache_bytes: int = 1 << 30
    disk: DiskSettings | None = None
    """Where caches are kept over restarts; None: nowhere."""
    lends_all: bool = False
    """Whether a principal's caches serve every other, as far as their tokens are the same."""
    prefill_slowdown: float | None = None
    """How many times as slowly others may decode meanwhile, on average; None: as `prefill_chunk` makes it."""


class Engine:
    """An `EnginePort`. Event-loop thread only; freed by `stop`, as its pipeline's backend is.

    `drive` is what stands for its thread.
    """

    def __init__(
        self, pipeline: Pipeline | EmbeddingPipeline, settings: EngineSettings | None = None, drive: Drive = Thread
    ) -> None:
        self._pipeline: Pipeline | EmbeddingPipeline | None = pipeline
        self._settings, self._drive = settings or EngineSettings(), drive
        self._name = (pipeline.codec if isinstance(pipeline, Pipeline) else pipeline.encoder).info.model
        self._driver: Driver | None = None
        self._told_end = False

    def begin(
        self,
        heard: Callable[[Report], None],
        ended: Callable[[], None],
        lost: Callable[[], None],  # noqa: ARG002  (a thread is not begun again)
        anew: Callable[[], None],  # noqa: ARG002
    ) -> None:
        """Start the thread."""
        assert self._driver is None, "an engine begins once"
        self._ended = ended
        self._outlet = Outlet(heard, self._end)
        self._worker: Worker | EmbeddingWorker | None = self._make_worker(self._outlet.report)
        self._driver = self._drive(f"engine-{self._name}", self._work)

    def tell(self, command: Command) -> None:
        """Give a command. One that has been stopped does nothing more."""
        assert self._driver is not None, "it has begun"
        if self._worker is None:
            return
        self._worker.commands.put(command)
        self._driver.wake()

    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._driver is not None and self._driver.is_alive()

    async def stop(self, timeout_s: float) -> None:
        """End the thread, and hold the pipeline no more. One that does not end within the time is left to the process's
        end."""
        if self._driver is None:
            pipeline = self._pipeline
            if pipeline is not None:
                (pipeline.backend if isinstance(pipeline, Pipeline) else pipeline.embedder).close()
            return
        self.tell(Stop())
        with anyio.move_on_after(timeout_s + 1):
            await anyio.to_thread.run_sync(partial(self._driver.join, timeout_s), abandon_on_cancel=True)
        if self._driver.is_alive():
            logger.error("the engine of %s did not stop within %g s", self._name, timeout_s)
        else:
            self._pipeline = self._worker = None  # the weights go with the last who holds the model
        self._end()

    def _make_worker(self, report: Callable[[Report], None]) -> Worker | EmbeddingWorker:
        assert self._pipeline is not None, "it has not been stopped"
        if isinstance(self._pipeline, EmbeddingPipeline):
            return EmbeddingWorker(self._pipeline.embedder, report)
        return worker_of(self._pipeline, self._settings, report, self._drive, self._wake)

    def _wake(self) -> None:
        if self._driver is not None:
            self._driver.wake()

    def _end(self) -> None:
        if not self._told_end:
            self._told_end = True
            self._ended()

    def _work(self, wait: bool) -> Next:
        """The body of the thread. However it ends, the loop is told."""
        following, worker = Next.ENDED, self._worker
        assert worker is not None, "its thread has not ended"
        try:
            following = worker.work(wait)
        finally:
            if following is Next.ENDED:
                self._outlet.end()
        return following


def worker_of(
    pipeline: Pipeline,
    settings: EngineSettings,
    report: Callable[[Report], None],
    drive: Drive = Thread,
    wake: Callable[[], None] = lambda: None,
) -> Worker:
    """The body of an engine. `wake` is called where something has come for it from a thread of its own, which `drive`
    stands for."""
    snapshots = None
    if settings.disk is not None and pipeline.cache_identity:
        try:
            snapshots = SnapshotStore(settings.disk.folder, pipeline.cache_identity, settings.disk.limits, drive)
        except (OSError, ConfigurationError) as error:
            logger.warning("no caches are kept on disk: %s", error)
    limits = CacheLimits(settings.host_cache_bytes, settings.lends_all)
    return Worker(pipeline, limits, settings.prefill_chunk, report, snapshots, settings.prefill_slowdown, wake)


class Outlet:
    """Carries what the engine's thread has to say to the loop on which it was made, in order.

    `report` and `end` are for the engine's thread and never wait. What is meant for a loop that is closed has no reader
    and is dropped.
    """

    def __init__(self, heard: Callable[[Report], None], ended: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._heard = heard
        self._ended = ended

    def report(self, report: Report) -> None:
        """Hand over what a step has brought."""
        self._call(partial(self._heard, report))

    def end(self) -> None:
        """Tell that nothing more will come."""
        self._call(self._ended)

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

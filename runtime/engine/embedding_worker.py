"""The engine's thread where the model embeds: takes commands, embeds a batch of texts a step, and tells their vectors.

It owns its embedder; nobody else touches it. A step that raises fails the requests that were in it and nothing else.
"""

import logging
import queue
from collections.abc import Callable, Sequence

import numpy as np

from tenuto.pipelines.embedding import Embedder, Vectors
from tenuto.runtime.engine.messages import (
    LASTING,
    Command,
    Embed,
    Embedded,
    EmbeddingFailed,
    EngineStatus,
    Event,
    Report,
    State,
    Stop,
    Withdraw,
)
from tenuto.runtime.engine.text_queue import Taken, TextQueue
from tenuto.threads import Next

logger = logging.getLogger(__name__)

_NOT_FINITE = "the model's output is not finite"


class EmbeddingWorker:
    """The body of such an engine's thread. Only `commands` may be touched from outside."""

    def __init__(self, embedder: Embedder, report: Callable[[Report], None]) -> None:
        self.commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._embedder = embedder
        self._report_to = report
        self._queue = TextQueue()
        self._taken = self._steps = self._computed = 0
        self._status = EngineStatus()
        self._events: list[Event] = []

    def work(self, wait: bool) -> Next:
        """Take what has come, and make one step; with nothing to do, `wait` for a command. It ends with Stop.

        A bug in here ends the thread, and with it all requests; the engine tells them.
        """
        try:
            if self._take_commands(wait):
                self._report()
                if len(self._queue):
                    self._step()
                    self._report()
                return Next.MORE if len(self._queue) or not self.commands.empty() else Next.IDLE
        except Exception:
            logger.exception("the engine's thread ends")
        self._report()
        self._embedder.close()
        return Next.ENDED

    def _take_commands(self, wait: bool) -> bool:
        """Read what has come; `wait` only when there is nothing to do. False on Stop."""
        idle = not len(self._queue)
        while True:
            if self.commands.empty() and not (idle and wait):
                return True
            command = self.commands.get()
            self._taken += 1
            idle = False
            match command:
                case Embed():
                    self._queue.add(command)
                case Withdraw():
                    self._queue.remove(command.request)
                case Stop():
                    return False
                case _:
                    raise AssertionError(f"a model that embeds takes no {command}")

    def _step(self) -> None:
        info = self._embedder.info
        taken = self._queue.take(info.backend.batch_tokens, info.texts)
        try:
            vectors = self._embedder.embed([one.tokens for one in taken])
        except Exception as error:
            logger.exception("a step over %d texts failed", len(taken))
            for request in dict.fromkeys(one.request for one in taken):
                self._fail(request, f"{type(error).__name__}: {error}")
            return
        finally:
            self._steps += 1
        self._computed += sum(len(one.tokens) for one in taken)
        self._tell(taken, vectors)

    def _tell(self, taken: Sequence[Taken], vectors: Vectors) -> None:
        for request in dict.fromkeys(one.request for one in taken):
            rows = [row for row, one in enumerate(taken) if one.request == request]
            if np.isfinite(vectors[rows]).all():
                self._events.append(Embedded(request, tuple(taken[row].place for row in rows), vectors[rows]))
            else:
                self._fail(request, _NOT_FINITE)

    def _fail(self, request: str, error: str) -> None:
        self._queue.remove(request)
        self._events.append(EmbeddingFailed(request, error))

    def _report(self) -> None:
        """Tell what has happened since the last report, if anything has."""
        requests = {**dict.fromkeys(LASTING, 0), State.WAITING: len(self._queue)}
        status = EngineStatus(
            self._taken, bool(requests[State.WAITING]), self._steps, self._computed, sequences=requests
        )
        if self._events or status != self._status:
            events, self._events, self._status = self._events, [], status
            self._report_to(Report(events, status))

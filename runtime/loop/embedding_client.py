"""The engine of a model that embeds, as the loop uses it: places in its queue, and the requests under way."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tenuto.errors import GenerationFailed, ShuttingDown, TenutoError
from tenuto.pipelines.embedding import EmbedderInfo, TextTokens, Vectors
from tenuto.runtime.engine.messages import (
    Embed,
    Embedded,
    EmbeddingFailed,
    EngineStatus,
    Event,
    RoundUsage,
    Withdraw,
)
from tenuto.runtime.engine.port import EnginePort
from tenuto.runtime.loop.engine_client import STOP_S, QueueLimits
from tenuto.runtime.loop.engine_line import EngineHealth, EngineLine
from tenuto.sessions.ids import new_hex
from tenuto.sessions.shares import Shares

QUEUED_BYTES = 1 << 26
"""So many bytes of tokens and vectors may be waited for."""
_NUMBER_BYTES = 4


@dataclass(eq=False, slots=True)
class _Open:
    """A request under way."""

    texts: Sequence[TextTokens]
    vectors: Vectors
    left: int
    done: "asyncio.Future[None]"

    def fail(self, error: TenutoError) -> None:
        """Nobody gets its vectors."""
        if not self.done.done():
            self.done.set_exception(error)


class EmbeddingClient:
    """Begins an engine and has it embed. Event-loop thread only; made inside a running loop, freed by `stop`.

    `meter` is told what has been computed for those who wait.
    """

    def __init__(
        self,
        model: str,
        info: EmbedderInfo,
        engine: EnginePort,
        limits: QueueLimits | None = None,
        meter: Callable[[RoundUsage], None] = lambda _: None,
    ) -> None:
        limits = limits or QueueLimits()
        self._width, self._meter = info.width, meter
        self._least_bytes = QUEUED_BYTES // (limits.rounds + info.texts)
        self._places: Shares[str] = Shares(f"the queue of model {model}", QUEUED_BYTES, lambda _: False)
        """Of requests, by what they take; each takes so much that there are no more than the limits allow."""
        self._open: dict[str, _Open] = {}
        self._request_s = 1.0
        self._line = EngineLine(model, engine, self._hear, self._end, self._end, self._end)

    @property
    def is_alive(self) -> bool:
        """Whether the engine has not ended."""
        return self._line.is_alive

    @property
    def health(self) -> EngineHealth:
        """How the engine does."""
        return self._line.health

    @property
    def silent_s(self) -> float:
        """For how long it has said nothing although it has something to do, in seconds; 0 where it rests."""
        return self._line.silent_s

    @property
    def status(self) -> EngineStatus:
        """As of its last report."""
        return self._line.status

    @property
    def remembered_bytes(self) -> int:
        """What requests under way take in memory, at most."""
        return self._places.used

    @property
    def requests(self) -> int:
        """How many are under way."""
        return len(self._open)

    async def embed(self, texts: Sequence[TextTokens], principal: str) -> Vectors:
        """A row for each text. Whoever is cancelled withdraws what has not been computed.

        Raises:
            Overloaded: the queue is full, or what is free is kept for others, who have less.
            ShuttingDown: the engine is stopping.
            GenerationFailed: a text failed.
        """
        self._line.check_alive()
        began, id = time.monotonic(), new_hex()
        self._places.admit(id, principal, began, self._retry_after(), self._weight(texts))
        vectors = np.empty((len(texts), self._width), np.float32)
        opened = _Open(texts, vectors, len(texts), asyncio.get_running_loop().create_future())
        self._open[id] = opened
        self._line.tell(Embed(id, principal, texts))
        try:
            await opened.done
        finally:
            self._places.remove(id)
            if self._open.pop(id, None) is not None and self.is_alive:
                self._line.tell(Withdraw(id))
        self._request_s += 0.1 * (time.monotonic() - began - self._request_s)
        return vectors

    def close(self) -> None:
        """Let all who wait go without what they wait for."""
        for opened in self._open.values():
            opened.fail(ShuttingDown("the server is stopping"))

    async def stop(self, timeout_s: float = STOP_S) -> None:
        """End the engine. Nobody waits any more when this returns."""
        await self._line.stop(timeout_s)

    def _hear(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Embedded():
                    self._take(event)
                case EmbeddingFailed() if (failed := self._open.pop(event.request, None)) is not None:
                    failed.fail(GenerationFailed(f"the model's step failed: {event.error}"))

    def _take(self, event: Embedded) -> None:
        opened = self._open.get(event.request)
        if opened is None:
            return
        self._meter(RoundUsage(computed=sum(len(opened.texts[place]) for place in event.places)))
        opened.vectors[list(event.places)] = event.vectors
        opened.left -= len(event.places)
        if not opened.left:
            del self._open[event.request]
            if not opened.done.done():
                opened.done.set_result(None)

    def _end(self) -> None:
        """The engine has ended, or is given up."""
        for opened in self._open.values():
            opened.fail(GenerationFailed("the engine has stopped"))
        self._open.clear()

    def _weight(self, texts: Sequence[TextTokens]) -> int:
        numbers = sum(map(len, texts)) + len(texts) * self._width
        return min(max(_NUMBER_BYTES * numbers, self._least_bytes), QUEUED_BYTES)

    def _retry_after(self) -> float:
        """About the time in which the queue gets a place free."""
        return round(min(max(self._request_s, 1.0), 60.0))

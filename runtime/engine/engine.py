"""An engine as the event loop sees it: one thread for one model, commands in, a stream of events out for each round."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import anyio

from tenuto.errors import GenerationFailed, ShuttingDown
from tenuto.pipelines.base import Pipeline
from tenuto.runtime.engine.messages import (
    Cancel,
    Command,
    Event,
    Failed,
    Read,
    Release,
    Residency,
    Round,
    RoundUsage,
    Stop,
    StopCause,
    Stopped,
    Submit,
    Unknown,
)
from tenuto.runtime.engine.sequence import State
from tenuto.runtime.engine.stream import Outlet, RoundStream
from tenuto.runtime.engine.worker import Worker
from tenuto.sessions.shares import Shares
from tenuto.sessions.tokens import NOTHING, Prefix
from tenuto.threads import Drive, Next, Thread

log = logging.getLogger(__name__)

SEQUENCE_TOKENS = 64
"""What a sequence weighs besides its tokens, in tokens."""
REMEMBERED_TOKENS = 1 << 22


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The limits of one engine. `queue` counts the rounds that may wait beside those that have a slot."""

    queue: int = 64
    prefill_chunk: int = 256
    host_cache_bytes: int = 1 << 30
    remembered_tokens: int = REMEMBERED_TOKENS
    """How many tokens the known sequences may have together, with or without a cache. It is more than the slots have
    room for."""


@dataclass(frozen=True, slots=True)
class EngineState:
    """An engine at a glance."""

    alive: bool
    steps: int
    seconds_since_step: float
    """While there is work to do, the time since the last step; else 0."""
    sequences: dict[State, int]
    cache_bytes: dict[Residency, int]
    computed: int
    sampled: int


@dataclass(slots=True)
class _OpenRound:
    """A round as the loop sees it: what it may be asked for once more, and whether anybody still wants it."""

    stream: RoundStream
    command: Submit
    whole: Callable[[], Sequence[int]] | None
    unwanted: bool = False


class Engine:
    """One model's engine. Event-loop thread only; made inside a running loop, freed by `stop`.

    `drive` is what stands for its thread.
    """

    def __init__(self, name: str, pipeline: Pipeline, settings: EngineSettings, drive: Drive = Thread) -> None:
        self._name = name
        self._settings = settings
        self._slots = pipeline.backend.info.slots
        self._rounds: dict[str, _OpenRound] = {}
        places = self._slots + settings.queue
        # Rounds and reservations.
        self._places: Shares[str] = Shares(f"the queue of model {name}", places, lambda _: False)
        self._reserved: dict[str, list[str]] = {}  # what each principal has reserved
        self._count = count()
        self._known: Shares[str] = Shares(
            f"the memory of model {name}", settings.remembered_tokens, lambda sequence: sequence not in self._rounds
        )
        self._lengths: dict[str, int] = {}  # tokens of each known sequence
        self._stopping = False
        self._round_s = 1.0
        self._outlet = Outlet(self._deliver, self._end)
        self._worker = Worker(pipeline, settings.host_cache_bytes, settings.prefill_chunk, self._outlet.send)
        self._driver = drive(f"engine-{name}", self._work)

    def reserve(self, principal: str) -> None:
        """Take a place for one round to come. `unreserve` gives it back, at the latest right before that round.

        Raises:
            Overloaded: as many rounds are open or reserved as there are slots and places in the queue, or what is free
                is kept for others, who have less.
            ShuttingDown: the engine is stopping.
        """
        self._check_alive()
        place = f"reserved {next(self._count)}"
        self._places.admit(place, principal, time.monotonic(), self._retry_after())
        self._reserved.setdefault(principal, []).append(place)

    def unreserve(self, principal: str) -> None:
        """Give a reserved place back."""
        assert self._reserved.get(principal), "what is given back was reserved"
        self._places.remove(self._reserved[principal].pop())
        if not self._reserved[principal]:
            del self._reserved[principal]

    def submit(
        self,
        sequence: str,
        tokens: Sequence[int],
        round: Round,
        had: int = 0,
        *,
        principal: str,
        named: int = 0,
        known: Prefix = NOTHING,
        whole: Callable[[], Sequence[int]] | None = None,
    ) -> RoundStream:
        """Generate after those tokens of the sequence that `known` names and then `tokens`, whatever else it has seen.

        `whole` gives all of them; it is asked for where the engine does not have those that are named, and so at any
        time before the first event. The sequence must not have an open round. `principal` is whose it is; with others
        it shares nothing but its first `named` tokens. Never refused by a full queue: what may be refused is `reserve`,
        before a run is begun.
        """
        self._check_alive()
        if sequence in self._rounds:  # it was cancelled, and the step that it was in has not ended yet
            raise GenerationFailed("the model has not stopped the last round of this session yet; try again")
        command = Submit(sequence, principal, known, tokens, round, had, named)
        if known.length and not self.holds(sequence, known.length):
            command = _sent_whole(command, whole)
        opened = self._rounds[sequence] = _OpenRound(self._stream(sequence), command, whole)
        self._places.settle(sequence, principal)
        self._remember(sequence, principal, known.length + len(tokens))
        self._tell(command)
        return opened.stream

    def _stream(self, sequence: str) -> RoundStream:
        def read(tokens: int) -> None:
            if (opened := self._rounds.get(sequence)) is not None and opened.stream is stream:
                self._tell(Read(sequence, tokens))

        stream = RoundStream(read)
        return stream

    def holds(self, sequence: str, tokens: int) -> bool:
        """Whether a paused sequence is known here that has so many tokens or more."""
        return sequence not in self._rounds and self._lengths.get(sequence, -1) >= tokens

    def cancel(self, sequence: str) -> None:
        """Stop the sequence's open round within a step; its stream ends with Stopped."""
        if (opened := self._rounds.get(sequence)) is not None:
            opened.unwanted = True
        self._tell(Cancel(sequence))

    def release(self, sequence: str) -> None:
        """Forget a sequence and free its cache."""
        if (opened := self._rounds.get(sequence)) is not None:
            opened.unwanted = True
        self._forget(sequence)
        self._tell(Release(sequence))

    def state(self) -> EngineState:
        """How it is doing. Any thread."""
        counters = self._worker.counters
        idle_s = time.monotonic() - counters.last_step if counters.busy else 0.0
        return EngineState(
            alive=self._driver.is_alive(),
            steps=counters.steps,
            seconds_since_step=idle_s,
            sequences=self._worker.states(),
            cache_bytes=self._worker.residency.cache_bytes(),
            computed=counters.computed,
            sampled=counters.sampled,
        )

    async def stop(self, timeout_s: float = 10.0) -> None:
        """Cancel all rounds and end the thread, which may take a step. All streams have ended when this returns."""
        self._stopping = True
        self._tell(Stop())
        with anyio.move_on_after(timeout_s + 1):
            await anyio.to_thread.run_sync(partial(self._driver.join, timeout_s), abandon_on_cancel=True)
        if self._driver.is_alive():
            log.error("the engine of %s did not stop within %g s", self._name, timeout_s)
        self._end()

    def _work(self, wait: bool) -> Next:
        """The body of the thread. However it ends, the loop is told."""
        following = Next.ENDED
        try:
            following = self._worker.work(wait)
        finally:
            if following is Next.ENDED:
                self._outlet.end()
        return following

    def _tell(self, command: Command) -> None:
        self._worker.commands.put(command)
        self._driver.wake()

    def _check_alive(self) -> None:
        if self._stopping or not self._driver.is_alive():
            raise ShuttingDown(f"the engine of {self._name} has stopped")

    def _remember(self, sequence: str, principal: str, length: int) -> None:
        """A sequence has so many tokens now. Others may have to be forgotten for it."""
        self._lengths[sequence] = length
        for other in self._known.settle(sequence, principal, SEQUENCE_TOKENS + length):
            self.release(other)

    def _forget(self, sequence: str) -> None:
        self._lengths.pop(sequence, None)
        self._known.remove(sequence)

    def _close(self, sequence: str) -> None:
        """A round is over: its place is free."""
        del self._rounds[sequence]
        self._places.remove(sequence)

    def _deliver(self, events: Sequence[Event]) -> None:
        for event in events:
            opened = self._rounds.get(event.sequence)
            if opened is None:
                continue
            match event:
                case Unknown() if not opened.unwanted:
                    self._tell(_sent_whole(opened.command, opened.whole))
                    continue
                case Unknown():  # nothing has begun, so nothing else will end it
                    event = Stopped(event.sequence, StopCause.CANCELLED, RoundUsage())
                    self._close(event.sequence)
                    self._forget(event.sequence)
                case Stopped():
                    self._close(event.sequence)
                    if event.sequence in self._lengths:
                        length = event.usage.prompt + event.usage.sampled
                        self._remember(event.sequence, opened.command.principal, length)
                    self._round_s += 0.1 * (event.usage.total_s - self._round_s)
                case Failed():
                    self._close(event.sequence)
                    self._forget(event.sequence)
            opened.stream.put(event)

    def _end(self) -> None:
        """The thread has ended, or is given up: no round goes on, not even one that it has never heard of."""
        self._stopping = True
        rounds, self._rounds = self._rounds, {}
        self._lengths.clear()
        self._known.clear()
        for sequence in rounds:
            self._places.remove(sequence)
        for sequence, opened in rounds.items():
            opened.stream.put(Failed(sequence, "the engine has stopped", RoundUsage()))

    def _retry_after(self) -> float:
        """About the time in which the queue gets a place free."""
        return round(min(max(self._round_s, 1.0), 60.0))


def _sent_whole(command: Submit, whole: Callable[[], Sequence[int]] | None) -> Submit:
    assert whole is not None, "who names a prefix can give the whole"
    return replace(command, known=NOTHING, tokens=whole())

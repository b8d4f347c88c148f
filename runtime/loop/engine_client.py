"""A model's engine as the loop uses it: places in its queue, its open rounds, and which sequences it knows."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tenuto.errors import GenerationFailed
from tenuto.pipelines.images import Piece
from tenuto.runtime.engine.messages import (
    THE_SERVER,
    Admitted,
    Cancel,
    Command,
    EmbeddingEvent,
    EngineStatus,
    Event,
    Failed,
    Forget,
    Forgotten,
    Hint,
    Read,
    Release,
    Round,
    RoundEvent,
    RoundUsage,
    StopCause,
    Stopped,
    Submit,
    Unknown,
)
from tenuto.runtime.engine.port import EnginePort
from tenuto.runtime.loop.engine_line import EngineHealth, EngineLine
from tenuto.runtime.loop.forgetting import Forgetting
from tenuto.runtime.loop.open_round import OpenRound
from tenuto.runtime.loop.suspects import Suspects
from tenuto.sessions.priority import Priority
from tenuto.sessions.shares import Shares
from tenuto.sessions.tokens import NOTHING, Prefix

SEQUENCE_TOKENS = 384
"""What a sequence weighs besides its tokens, in tokens: its names, its state, and its places in tables."""
TOKEN_BYTES = 4
REMEMBERED_TOKENS = 1 << 22
STOP_S = 10.0
MOST_LOSSES = 2
"""So many engines may end under a round, one after the other, without a token of it."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much one engine takes on."""

    rounds: int = 64
    """How many may be open or reserved beside those that have a slot."""
    remembered_tokens: int = REMEMBERED_TOKENS
    """How many tokens the known sequences may have together, with or without a cache. It is more than the slots have
    room for."""


@dataclass(eq=False)
class Place:
    """One in the queue, for a round to come."""

    _shares: Shares[object]

    def give_back(self) -> None:
        """Free it, where it is still held."""
        self._shares.remove(self)


class EngineClient:
    """Begins an engine and speaks with it. Event-loop thread only; made inside a running loop, freed by `stop`.

    Whoever opens a round for a request reserves its place first, so that what is refused is refused before anything
    has changed. `meter` is told what each round of a client has cost, also where nobody reads it to its end.
    """

    def __init__(
        self,
        model: str,
        slots: int,
        engine: EnginePort,
        limits: QueueLimits | None = None,
        meter: Callable[[RoundUsage], None] = lambda _: None,
    ) -> None:
        limits = limits or QueueLimits()
        self._meter = meter
        self._rounds: dict[str, OpenRound] = {}
        self._places: Shares[object] = Shares(f"the queue of model {model}", slots + limits.rounds, lambda _: False)
        """Of rounds, by their sequence, and of those to come."""
        self._known: Shares[str] = Shares(
            f"the token memory of model {model}",
            limits.remembered_tokens,
            lambda sequence: sequence not in self._rounds,
        )
        self._lengths: dict[str, int] = {}  # tokens of each known sequence
        self._round_s = 1.0
        self._suspects = Suspects()
        self._line = EngineLine(model, engine, self._hear, self._end, self._lose, self._begin_anew)
        self._forgetting = Forgetting(self._line.tell)

    @property
    def is_alive(self) -> bool:
        """Whether the engine has not ended."""
        return self._line.is_alive

    @property
    def health(self) -> EngineHealth:
        """How the engine does."""
        return self._line.health

    @property
    def status(self) -> EngineStatus:
        """As of its last report."""
        return self._line.status

    @property
    def places(self) -> int:
        """How many are taken: of open rounds, and of those to come."""
        return len(self._places)

    def reserve(self, principal: str) -> Place:
        """Take a place for one round to come.

        Raises:
            Overloaded: as many rounds are open or reserved as there are slots and places in the queue, or what is free
                is kept for others, who have less.
            ShuttingDown: the engine is stopping.
        """
        self._line.check_alive()
        place = Place(self._places)
        self._places.admit(place, principal, time.monotonic(), self._retry_after())
        return place

    def submit(
        self,
        sequence: str,
        tokens: Sequence[int],
        round: Round,
        computed_before: int = 0,
        *,
        principal: str,
        place: Place | None = None,
        named: int = 0,
        known: Prefix = NOTHING,
        whole: Callable[[], Sequence[int]] | None = None,
        said: Sequence[int] = (),
        pieces: Sequence[Piece] = (),
        kept_as: str = "",
        priority: Priority = Priority.INTERACTIVE,
    ) -> OpenRound:
        """Generate after those tokens of the sequence that `known` names and then `tokens`, whatever else it has seen.

        `whole` gives all of them; it is asked for where the engine does not have those that are named, and so at any
        time until the round's end. The sequence must not have an open round. `principal` is whose it is; with others
        it shares nothing but its first `named` tokens. It takes the `place` that was reserved for it; without one it
        is not refused either, since what goes on with a run that was admitted must go on. `said`: the round goes on
        after these tokens, which it has sampled before the engine began. `pieces` are those of the images
        among all tokens. Its cache may be written to disk as `kept_as`.
        """
        if place is not None:
            place.give_back()
        self._line.check_alive()
        if sequence in self._rounds:  # it was cancelled, and the step that it was in has not ended yet
            raise GenerationFailed("the last round of this session is still stopping; try again")
        command = Submit(
            sequence, principal, known, tokens, round, computed_before, named, said, pieces, kept_as, priority
        )
        if known.length and not self.holds(sequence, known.length):
            command = _sent_whole(command, whole)
        self._places.settle(sequence, principal)
        opened = self._rounds[sequence] = OpenRound(command, whole, self._tell)
        if not self._line.is_away:
            opened.is_told, opened.is_whole = True, not command.known.length
            self._remember(sequence, principal, known.length + len(tokens) + len(said))
            self._line.tell(command)
        return opened

    def holds(self, sequence: str, tokens: int) -> bool:
        """Whether a paused sequence is known here that has so many tokens or more."""
        length = self._lengths.get(sequence)
        return length is not None and length >= tokens and sequence not in self._rounds

    def expect(self, sequence: str, seconds: float, spread_s: float) -> None:
        """A paused sequence goes on in about so long: where its cache waits is chosen by that, and it is back by then.

        It promises nothing, and says nothing of a sequence that is unknown, or not paused.
        """
        if self.holds(sequence, 0) and not self._line.is_away:
            self._line.tell(Hint(sequence, seconds, spread_s))

    def release(self, sequence: str) -> None:
        """Forget a sequence and free its cache. An open round is cancelled first."""
        self._let_go(sequence)
        self._line.tell(Release(sequence))

    async def forget(self, sequence: str, kept_as: str) -> None:
        """Forget a sequence, and take what is kept as `kept_as` off the disk: it is gone when this returns.

        Raises:
            StoreFailed: it may still be there.
        """
        if not self._line.is_alive:
            return  # what it has written is found by who looks at the disk
        self._let_go(sequence)
        if self._line.is_away:
            return  # so is what the one has written that has ended; the next one has nothing yet
        await self._forgetting.ask(Forget(sequence, kept_as))

    @property
    def remembered_bytes(self) -> int:
        """About what the known sequences take in memory, besides their caches."""
        return TOKEN_BYTES * self._known.used

    async def stop(self, timeout_s: float = STOP_S) -> None:
        """Cancel all rounds and end the engine. All of them have ended when this returns."""
        await self._line.stop(timeout_s)

    def _remember(self, sequence: str, principal: str, length: int) -> None:
        """A sequence has so many tokens now. Others may have to be forgotten for it."""
        self._lengths[sequence] = length
        for other in self._known.settle(sequence, principal, SEQUENCE_TOKENS + length):
            self.release(other)

    def _let_go(self, sequence: str) -> None:
        """Know a sequence no more. What an engine has been told of ends there first."""
        self._forget(sequence)
        if (opened := self._rounds.get(sequence)) is not None:
            opened.is_wanted = False
            if not opened.is_told:
                self._cancelled(opened)

    def _forget(self, sequence: str) -> None:
        self._lengths.pop(sequence, None)
        self._known.remove(sequence)

    def _tell(self, command: Command) -> None:
        """Pass on what the reader of a round has to say. An engine that has not been told of it has nothing to stop."""
        opened = self._rounds.get(command.sequence) if isinstance(command, Cancel | Read) else None
        if opened is None or opened.is_told:
            self._line.tell(command)
        elif isinstance(command, Cancel):
            self._cancelled(opened)

    def _hear(self, events: Sequence[Event]) -> None:
        for event in events:
            assert not isinstance(event, EmbeddingEvent), "its model generates"
            if isinstance(event, Forgotten):
                self._forgetting.hear(event)
            elif (opened := self._rounds.get(event.sequence)) is not None and opened.is_told:
                self._take(event, opened)
        self._try_suspect()

    def _take(self, event: RoundEvent | Admitted | Unknown, opened: OpenRound) -> None:
        match event:
            case Admitted():
                opened.is_admitted = True
            case Unknown() if not opened.is_wanted:  # nothing has begun, so nothing else will end it
                self._forget(event.sequence)
                self._cancelled(opened)
            case Unknown() if opened.is_whole:
                self._fail(opened, "the engine does not know what it was sent")
            case Unknown():
                opened.is_whole = True
                self._line.tell(_sent_whole(opened.command, opened.whole))
            case Stopped():
                if event.sequence in self._lengths:
                    self._remember(event.sequence, opened.command.principal, event.usage.prompt + event.usage.sampled)
                self._round_s += 0.1 * (event.usage.total_s - self._round_s)
                self._close(opened, event)
            case Failed():
                self._forget(event.sequence)
                self._close(opened, event)
            case _:
                opened.put(event)
                if opened.is_ahead:
                    self._line.tell(Release(event.sequence))
                    self._fail(opened, "the engine does not wait for its reader")

    def _close(self, opened: OpenRound, last: Stopped | Failed) -> None:
        """A round is over: its place is free."""
        del self._rounds[last.sequence]
        self._places.remove(last.sequence)
        if opened.command.principal != THE_SERVER:
            self._meter(last.usage)
        opened.close(last)

    def _cancelled(self, opened: OpenRound) -> None:
        """End a round that nobody wants; what was heard of it counts."""
        self._close(opened, Stopped(opened.command.sequence, StopCause.CANCELLED, opened.usage()))

    def _fail(self, opened: OpenRound, told: str) -> None:
        """End a round as nothing that the engine says of it could."""
        self._forget(opened.command.sequence)
        self._close(opened, Failed(opened.command.sequence, told, opened.usage()))

    def _lose(self) -> None:
        """The engine has ended: what nobody wants is over, and so is what has ended engines time and again."""
        self._lengths.clear()
        self._known.clear()
        self._suspects.clear()
        self._forgetting.end()
        for opened in list(self._rounds.values()):
            opened.losses += opened.is_admitted
            opened.is_told = opened.is_admitted = False
            if not opened.is_wanted:
                self._cancelled(opened)
            elif opened.losses > MOST_LOSSES:
                self._fail(opened, f"the engine has ended {opened.losses} times while it was at work on this")

    def _begin_anew(self) -> None:
        """It has begun again with nothing: what is open goes on after the last token that was heard."""
        for sequence, opened in list(self._rounds.items()):
            if opened.losses < MOST_LOSSES:
                self._repeat(opened)
            else:
                self._suspects.add(sequence)
        self._try_suspect()

    def _try_suspect(self) -> None:
        while (sequence := self._suspects.next(self._rounds)) is not None:
            self._repeat(self._rounds[sequence])

    def _repeat(self, opened: OpenRound) -> None:
        try:
            command = opened.again()
        except Exception as error:  # whoever wrote the prompt gives it: what is wrong there concerns this round alone
            self._fail(opened, f"the engine has ended, and this cannot go on: {error}")
            return
        opened.is_told = opened.is_whole = True
        self._remember(command.sequence, command.principal, len(command.tokens) + len(command.said))
        self._line.tell(command)

    def _end(self) -> None:
        """The engine has ended, or is given up: no round goes on, not even one that it has never heard of."""
        self._lengths.clear()
        self._known.clear()
        for sequence, opened in list(self._rounds.items()):
            end = Failed(sequence, "the engine has stopped", RoundUsage())
            self._close(opened, end) if opened.is_wanted else self._cancelled(opened)
        self._forgetting.end()

    def _retry_after(self) -> float:
        """About the time in which the queue gets a place free."""
        return round(min(max(self._round_s, 1.0), 60.0))


def _sent_whole(command: Submit, whole: Callable[[], Sequence[int]] | None) -> Submit:
    assert whole is not None, "who names a prefix can give the whole"
    return replace(command, known=NOTHING, tokens=whole())

"""What is known of one leg while its run is in memory: its answer, its place in the feed, and who waits for it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from tenuto.runtime.loop import answer as answers
from tenuto.runtime.loop.events import Answer, RunEvent, ToolCalling
from tenuto.runtime.loop.unfinished import OpenTokens
from tenuto.sessions.records import LegEnd, LegRecord


@dataclass(slots=True, eq=False)
class LegState:
    """One leg as its run has it. Event-loop thread only."""

    answer: Answer
    first_round: int = 1
    """The number, among those of the run, of the first round that belongs to its request."""
    start: int = 0
    """Its events are those of the run's feed from this place on..."""
    end: int | None = None
    """... to this one, once it is over."""
    record: LegRecord | None = None
    """Its stored form as of the last commit, where its client can ask for it again."""
    kept: int = 0
    """Up to this place of the feed what it has told is in the store, where it is kept."""
    is_ending: bool = False
    """Whether its end is being kept, and with it all that it has told: nobody else keeps any of that now."""
    is_settling: bool = False
    """Whether a round's start or its end is to be kept, and with it all that was told before: as for `is_ending`."""
    is_detached: bool = False
    """Whether it goes on without anybody who follows it, and tells only what has been kept."""
    open: OpenTokens | None = None
    """What the round that is open has sampled."""
    begun: set[str] = field(default_factory=set)
    """The ids of the server's calls that it has told of."""
    scope: anyio.CancelScope | None = None
    """Set while the leg is under way."""
    when_further: Callable[[], None] | None = None
    """Called once, when more of it has been kept."""
    grace_s: float = 0.0
    """How much longer it goes on when the last follower has left, for a client that comes again."""
    is_claimed: bool = False
    """Whether it is a request's, and ends when the last who follows it leaves."""
    _followers: int = 0
    _until: float | None = None
    """When its grace is over, once the last has left. In the event loop's time."""

    @property
    def is_under_way(self) -> bool:
        """Whether the model or a tool is at work on it."""
        return self.scope is not None

    @property
    def is_recoverable(self) -> bool:
        """Whether it goes on after a crash."""
        return self.is_detached and self.record is not None

    @property
    def is_alone(self) -> bool:
        """Whether nobody waits for its answer: it is in the background."""
        return self.is_detached and not self.is_claimed

    def close_round(self) -> None:
        """The open round is over, which is kept next."""
        self.open = None
        self.is_settling = self.is_recoverable

    def has_come_further(self) -> None:
        """More of it has been kept, or nothing more will be."""
        called, self.when_further = self.when_further, None
        if called is not None:
            called()

    @property
    def is_abandoned(self) -> bool:
        """Whether it is under way, all have left it, and it goes on for whoever comes again."""
        return self.is_under_way and self._until is not None

    def join(self, *, claims: bool) -> None:
        """One more follows it."""
        self._followers += 1
        self._until = None
        self.is_claimed |= claims

    def leave(self) -> bool:
        """One who followed it has left. Whether nobody wants it any more, so that it is to be stopped."""
        self._followers -= 1
        if self._followers or not self.is_claimed:
            return False
        if self.grace_s:
            self._until = anyio.current_time() + self.grace_s
            return False
        return True

    def is_overdue(self, now: float) -> bool:
        """Whether it was abandoned, and its grace is over."""
        return self._until is not None and self._until <= now

    def take(self, event: RunEvent) -> None:
        """Add to the answer what an event tells. The answer of a leg that is over has been given away."""
        if self.end is not None:
            self.answer = answers.copied(self.answer)
        if isinstance(event, ToolCalling):
            self.begun.add(event.call.id)
        answers.gather(self.answer, event)

    def ended(self, end: LegEnd | None, kept: int) -> None:
        """How it ends is in the store, where it is kept, and what it has told up to this place of the feed."""
        self.kept = kept
        if self.record is not None and end is not None:
            self.record = self.record.ended(end)

    def close(self, end: int) -> None:
        """The leg is over; `end` is the place after its last event."""
        self.end, self.scope = self.end or end, None

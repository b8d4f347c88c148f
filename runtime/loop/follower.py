"""A request that waits for the answer of one leg of a run. Event-loop thread only."""

from collections.abc import AsyncIterator

from tenuto.runtime.loop.events import Answer, RunEvent
from tenuto.runtime.loop.run import Run
from tenuto.sessions.records import LegRecord, RunRecord


class Follower:
    """Follows the leg that is the run's present one when it is made, and no other.

    A request's leg lasts while anybody follows it who does not leave: the last to leave cancels it, unless it is over;
    where it has a grace time it goes on that long, and on if anybody comes again.
    A leg after a decision goes on by itself, unless who has decided `claims` it; who comes later only looks on.
    """

    def __init__(self, run: Run, *, claims: bool = False) -> None:
        self.run = run
        self._leg = run.leg
        self._leg.join(claims=claims)
        self._has_left = False

    @property
    def id(self) -> str:
        """The run's id."""
        return self.run.id

    @property
    def leg_id(self) -> str:
        """The id of the leg: of this answer, among those of the run."""
        return self._leg.answer.leg_id

    @property
    def kept(self) -> LegRecord | None:
        """The stored form of the leg as of its last commit, where its client can ask for it again."""
        return self._leg.record

    @property
    def is_under_way(self) -> bool:
        """Whether more may come."""
        return self._leg.is_under_way

    @property
    def session_id(self) -> str:
        """The id of the run's session."""
        return self.run.session_id

    @property
    def model(self) -> str:
        """The model's public id."""
        return self.run.model

    @property
    def created_at(self) -> float:
        """When the run began, in seconds since the epoch."""
        return self.run.created_at

    @property
    def record(self) -> RunRecord:
        """The run's record as of its last commit."""
        return self.run.record

    def events(self, after: int | None = None) -> AsyncIterator[tuple[int, RunEvent]]:
        """The leg's events with their numbers; with `after`, those of the run from there to the leg's end."""
        return self.run.events(after, leg=self._leg)

    def batches(self) -> AsyncIterator[list[RunEvent]]:
        """The leg's events, those together that are there together: what is sent of them is sent at once."""
        return self.run.batches(self._leg)

    def told(self) -> list[RunEvent]:
        """What the leg has told so far."""
        return self.run.told(self._leg)

    async def answer(self) -> Answer:
        """The leg's whole answer, once it is there."""
        await self.run.rest(self._leg)
        return self.snapshot()

    def snapshot(self) -> Answer:
        """What there is of the leg's answer now."""
        return self.run.snapshot() if self._leg is self.run.leg else self._leg.answer

    def claim(self) -> None:
        """A detached leg, too, ends from now on when the last who follows it leaves."""
        self._leg.is_claimed = True

    def let_go(self) -> None:
        """The leg goes on by itself from now on, whoever leaves."""
        self._leg.is_claimed = False

    async def disconnected(self) -> None:
        """The client is gone. If it is the last to leave a leg without grace, this returns when the leg is over."""
        if not self._has_left:
            self._has_left = True
            if self._leg.leave():
                await self.run.stop(self._leg)

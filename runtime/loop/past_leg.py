"""A leg that is over, as it was kept: it tells the events that it told, and has the answer that they make. Pure."""

from collections.abc import AsyncIterator, Sequence

from tenuto.runtime.loop import answer as answers
from tenuto.runtime.loop.events import Answer, RunEvent
from tenuto.sessions.records import LegRecord


class PastLeg:
    """Is followed as one that is under way is, and all of it is there at once."""

    is_under_way = False

    def __init__(self, record: LegRecord, session_id: str, events: Sequence[RunEvent]) -> None:
        self.kept = record
        self.session_id = session_id
        self._events = events

    @property
    def id(self) -> str:
        """The run's id."""
        return self.kept.run_id

    @property
    def leg_id(self) -> str:
        """The id of the leg."""
        return self.kept.id

    @property
    def model(self) -> str:
        """The model's public id."""
        return self.kept.model

    def told(self) -> list[RunEvent]:
        """What it has told so far."""
        return [*self._events]

    async def events(self) -> AsyncIterator[tuple[int, RunEvent]]:
        """The events, numbered from 1."""
        for number, event in enumerate(self._events, 1):
            yield number, event

    async def answer(self) -> Answer:
        """The whole answer."""
        return self.snapshot()

    def snapshot(self) -> Answer:
        """The whole answer."""
        record = self.kept
        answer = Answer(record.run_id, self.session_id, record.model, record.id)
        answers.gathered(answer, self._events, record.answer or {})
        answer.status = record.status
        if record.usage is not None:
            answers.restore_figures(answer, record.usage)
        return answer

    async def disconnected(self) -> None:
        """Nobody follows it any more."""

"""A run while it is in memory: its record, the feed of its events, and its present leg. Event-loop thread only.

A leg goes from the run's start, or from the answer to a pause, to the next pause or the end. The feed is of all legs.
"""

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import anyio

from tenuto.errors import RunUnreadable
from tenuto.pipelines.turns import CallBroken
from tenuto.runtime.engine.messages import RoundUsage
from tenuto.runtime.loop import answer as answers
from tenuto.runtime.loop import told
from tenuto.runtime.loop.event_feed import EventFeed
from tenuto.runtime.loop.events import LAST, Answer, RunDone, RunEvent, RunPaused
from tenuto.runtime.loop.leg_state import LegState
from tenuto.runtime.loop.options import RunOptions
from tenuto.runtime.loop.pending import PendingCall
from tenuto.runtime.loop.sample_figures import RunSamples
from tenuto.sessions.blobs import Shared
from tenuto.sessions.changes import AddSampled, AddTold
from tenuto.sessions.records import LegEnd, LegRecord, PauseRecord, RunRecord, RunStatus

logger = logging.getLogger(__name__)

STOP_S = 60.0
"""How long a run may take to stop: a step of its model, and its tools to hear of the cancel."""


@dataclass(eq=False)
class Run:
    """One answer to one request. There is one object for a run; the owner of its session alone changes it.

    `record` is its stored form as of the last commit.
    """

    record: RunRecord
    session_id: str
    stored: bool
    tool_rounds: int = 0
    ledger_tokens: int = 0
    rounds: list[RoundUsage] = field(default_factory=list)
    samples: RunSamples = field(default_factory=RunSamples)
    computed_before: int = 0
    """How many of the prompt's tokens had a cache before the run began."""
    cancelling: bool = False
    pending: list[PendingCall] = field(default_factory=list)
    """The calls of the last round while the run waits, where they are in memory."""
    pause: PauseRecord | None = None
    """What is asked while the run waits, where it is in memory."""
    past_pauses: dict[str, PauseRecord] = field(default_factory=dict)
    """What was asked before and is over, of a run that is in memory only."""
    is_in_doubt: bool = False
    """Whether it is not known what was kept of it last: then this object is given up, and the run is read again."""
    unkept_end: RunDone | None = None
    """How it ended where that could not be kept: the record says that it is open until it has been closed."""
    untold_end: RunDone | None = None
    """The same of a leg that goes on after a crash: it is told when it is kept, since it may yet turn out otherwise."""

    def __post_init__(self) -> None:
        self._feed = EventFeed()
        self.leg = LegState(self._fresh_answer(1))

    @property
    def id(self) -> str:
        """The run's id."""
        return self.record.id

    @property
    def model(self) -> str:
        """The model's public id."""
        return self.record.model

    @property
    def created_at(self) -> float:
        """Seconds since the epoch."""
        return self.record.created_at

    @property
    def status(self) -> RunStatus:
        """Where it stands for those who ask."""
        return self.record.status if self.unkept_end is None else self.unkept_end.status

    @property
    def nbytes(self) -> int:
        """About what it takes in memory: what it has told, the answer made of it, and what it is held to."""
        held_to = (value for value in self.record.options.values() if isinstance(value, Shared))
        return 2 * self._feed.nbytes + sum(value.nbytes for value in held_to)

    @property
    def working(self) -> bool:
        """Whether a leg is under way."""
        return self.leg.is_under_way

    @cached_property
    def options(self) -> RunOptions:
        """What it is held to. `keep_options` replaces them.

        Raises:
            RunUnreadable: another version has kept them in a form that this one does not know.
        """
        try:
            return RunOptions.load(self.record.options)
        except ValueError as exc:
            raise RunUnreadable(self.id) from exc

    # For the loop.

    def keep_options(self, options: RunOptions) -> None:
        """What it is held to from its next leg on."""
        self.__dict__["options"] = options.shared()

    def forget_options(self) -> None:
        """It has ended and that is kept: nobody asks any more what it was held to, which may be more than it told."""
        self.record = replace(self.record, options={})
        self.__dict__.pop("options", None)

    def restore(self, last: RunEvent | None, at: float) -> None:
        """Fill in from the record what was kept of the answer; `last` is the event with which the last leg ended.

        The events are others than those that were told, fewer: so their numbers begin beyond all of those before. `at`
        is when the last of those may have been told, and the same each time while nothing more is.
        """
        kept = self.record.usage
        try:
            self._take_figures(kept)
            first = kept.get("first_round") or self.record.options.get("choice_round", 1)  # as it was named once
            self.leg = LegState(self._fresh_answer(first), first)
            answers.restore(self.leg.answer, self.record.answer or {})
        except (ValueError, TypeError, AttributeError):
            logger.warning("the answer of run %s was stored by another version and cannot be shown", self.id)
        self._feed.renumber(at, answers.events_of(self.leg.answer, self.rounds))
        if last is not None:
            self.emit(last)

    def _take_figures(self, kept: dict[str, Any]) -> None:
        self.rounds = [answers.usage_from_json(entry) for entry in kept.get("rounds", [])]
        self.ledger_tokens, self.tool_rounds = kept.get("ledger_tokens", 0), kept.get("tool_rounds", 0)
        self.samples.restore(kept)

    @property
    def request_rounds(self) -> list[RoundUsage]:
        """Those of the present request, which share its limits."""
        return self.rounds[self.leg.first_round - 1 :]

    @property
    def next_leg_id(self) -> str:
        """The id of the leg that the next request begins. No two requests of a run begin with the same round."""
        return self._leg_id(len(self.rounds) + 1)

    @property
    def leg_ids(self) -> str:
        """What the ids of the legs that requests begin have in common; one of a decision has another."""
        return self.id.removeprefix("run_")

    @property
    def request_leg_id(self) -> str:
        """The id of the leg that the last request began; decisions may have begun others since."""
        return self._leg_id(self.leg.first_round)

    def begin_leg(
        self,
        scope: anyio.CancelScope,
        *,
        of_request: bool,
        leg_id: str,
        grace_s: float = 0.0,
        record: LegRecord | None = None,
        is_detached: bool = False,
    ) -> None:
        """A leg begins. One of a request has an answer and rounds of its own; one after a decision goes on with what
        the last request led to."""
        if of_request:
            first = len(self.rounds) + 1
            answer = answers.with_shortfalls(Answer(self.id, self.session_id, self.model, leg_id), self.options)
        else:
            first, answer = self.leg.first_round, answers.gone_on(self.leg.answer, leg_id)
        start = len(self._feed)
        self.leg = LegState(
            answer,
            first,
            start,
            record=record,
            kept=start,
            is_detached=is_detached,
            scope=scope,
            is_claimed=of_request and not is_detached,
            grace_s=grace_s,
        )
        if is_detached:
            self._feed.hold()
        self.cancelling = False

    def go_on(self, told: Sequence[RunEvent], usage: dict[str, Any] | None, end: dict[str, Any]) -> None:
        """The present leg has begun in an earlier process, and goes on: it has told these events; `usage` are the run's
        figures then, if any round had begun, and `end` what its answer had beside the events."""
        leg = self.leg
        if usage is not None:
            self._take_figures(usage)
            leg.first_round = usage.get("first_round", 1)
        for event in told:
            self._feed.append(event)
            leg.take(event)
        answers.restore_end(leg.answer, end)

    def emit(self, event: RunEvent) -> None:
        """Tell everybody who follows the run; of a leg that is detached, once the event has been kept."""
        self._feed.append(event)
        self.leg.take(event)
        if isinstance(event, LAST):
            self.leg.close(len(self._feed))
            self._feed.release()
            self._feed.pack()
            self.snapshot()
        if not self.leg.is_under_way or not self.leg.is_detached:
            self._feed.wake()

    # What is kept of a leg.

    def to_keep(self, *last: RunEvent) -> tuple[int, list[AddTold]]:
        """What the present leg has told since that was kept last, and the place up to which it is kept then; `last` is
        what it will tell once that is done."""
        leg, end = self.leg, len(self._feed)
        events = [*self._feed.between(leg.kept, end), *last]
        if leg.record is None or not events:
            return end, []
        return end + len(last), [
            AddTold(leg.record.id, leg.record.session_uid, leg.kept - leg.start, told.dump(events))
        ]

    def sampled_to_keep(self) -> list[AddSampled]:
        """What the open round of the present leg has sampled since that was kept last, where the leg goes on after a
        crash."""
        leg = self.leg
        if leg.record is None or leg.open is None or not leg.is_recoverable:
            return []
        return leg.open.to_keep(leg.record)

    def keep_up_to(self, place: int) -> None:
        """What the present leg has told is kept up to here."""
        self.leg.kept = max(self.leg.kept, place)
        self.leg.has_come_further()
        self._feed.tell(place)

    def leg_end(self, record: RunRecord, until: int, answer: Answer) -> LegEnd:
        """How the present leg ends, with the record and answer as they will be; the session will have so many items."""
        return LegEnd(
            run_id=self.id,
            session_uid=record.session_uid,
            until=until,
            status=record.status,
            ended_at=record.updated_at,
            usage=record.usage,
            answer=answers.end_to_json(answer),
        )

    def drop_cut_calls(self) -> None:
        """The round was cut: the calls that it had begun are none."""
        self.leg.answer.calls.clear()

    def broken_call(self, event: CallBroken) -> None:
        """Note for the client that what looked like a call was none."""
        answers.with_broken_call(self.leg.answer, event)

    def answer_at(self, event: RunPaused | RunDone) -> Answer:
        """The answer as it will be when the leg has ended so."""
        ended = answers.copied(self.leg.answer)
        answers.gather(ended, event)
        return ended

    def usage_json(self) -> dict[str, Any]:
        """The stored form of the figures."""
        figures = {"rounds": [answers.usage_to_keep(usage) for usage in self.rounds], **self.samples.dump()}
        first = {"first_round": self.leg.first_round} if self.leg.first_round > 1 else {}
        return {**figures, "ledger_tokens": self.ledger_tokens, "tool_rounds": self.tool_rounds, **first}

    def leave(self) -> None:
        """Nobody works on the present leg any more, and no end is told: whoever follows it may read it again later."""
        self.leg.scope = None
        self._feed.wake()

    def interrupt(self) -> None:
        """The server is stopping: break the leg off where it is. What there is of it is kept as interrupted."""
        if self.leg.scope is not None:
            self.leg.scope.cancel()

    async def stop(self, leg: LegState) -> None:
        """Cancel a leg: the model stops within a step, tools are sent a cancel. Returns when the leg is over."""
        self.begin_to_stop(leg)
        await self.rest(leg)

    def begin_to_stop(self, leg: LegState) -> None:
        """Cancel a leg, and do not wait."""
        if leg.scope is not None:
            self.cancelling = True
            leg.scope.cancel()

    # For front ends.

    async def rest(self, leg: LegState | None = None) -> None:
        """Return when a leg, by default the present one, is over."""
        leg = leg or self.leg
        while leg.is_under_way:
            await self._feed.changed()

    def events(self, after: int | None = None, *, leg: LegState | None = None) -> AsyncIterator[tuple[int, RunEvent]]:
        """The events with their numbers (from 1), from `after`, or from the beginning of the present leg.

        Ends where the run waits or has ended; of one leg, where that is over. A run that was read from the store
        tells all again to those who saw it before that (`tells_again`), and its last event to everybody.
        """
        place = (leg or self.leg).start if after is None else self._feed.place_after(after)
        return self._feed.follow(place, lambda: self._end_of(leg))

    def batches(self, leg: LegState) -> AsyncIterator[list[RunEvent]]:
        """The events of a leg, those together that are there together."""
        return self._feed.batches(leg.start, lambda: self._end_of(leg))

    def told(self, leg: LegState) -> list[RunEvent]:
        """The events of a leg that have been told so far."""
        return self._feed.between(leg.start, self._feed.told if leg.end is None else leg.end)

    def _end_of(self, leg: LegState | None) -> int | None:
        """Where the events of one leg, or of all so far, end; None while more may come."""
        if leg is not None and leg.end is not None:
            return leg.end
        return None if (leg or self.leg).is_under_way else self._feed.told

    def tells_again(self, after: int) -> bool:
        """Whether who has seen the events up to number `after` is told them again, as far as they were kept."""
        return self._feed.was_told_before(after)

    def snapshot(self) -> Answer:
        """What there is of the present leg's answer now, with the figures so far."""
        answer = self.leg.answer
        answer.usage = answers.figures(self.request_rounds, self.ledger_tokens)
        answer.run_usage = answers.figures(self.rounds, self.ledger_tokens)
        answer.status = self.status
        return answer

    def _fresh_answer(self, first_round: int) -> Answer:
        return Answer(self.id, self.session_id, self.model, self._leg_id(first_round))

    def _leg_id(self, first_round: int) -> str:
        return f"{self.leg_ids}{first_round:04x}"

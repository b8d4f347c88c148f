"""A run while it is in memory: its record, its log of events, and its legs. Event-loop thread only.

A leg goes from the run's start, or from the answer to a pause, to the next pause or the end. The log goes on over all
of them; a request follows one.
"""

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import anyio

from tenuto.errors import RunUnreadable
from tenuto.pipelines.base import CallBroken
from tenuto.runtime.engine.messages import RoundUsage
from tenuto.runtime.loop import answer as answers
from tenuto.runtime.loop.event_log import EventLog
from tenuto.runtime.loop.events import Answer, RunDone, RunEvent, RunPaused
from tenuto.runtime.loop.options import RunOptions
from tenuto.runtime.loop.pending import PendingCall
from tenuto.sessions.blobs import Shared
from tenuto.sessions.records import PauseRecord, RunRecord, RunStatus

log = logging.getLogger(__name__)

_NUMBERS_A_SECOND = 1000
STOP_S = 60.0
"""How long a run may take to stop: a step of its model, and its tools to hear of the cancel."""


@dataclass(slots=True, eq=False)
class LegState:
    """One leg as its run has it. Its events are those after number `start`, up to number `end` once it is over."""

    answer: Answer
    start: int = 0
    end: int | None = None
    scope: anyio.CancelScope | None = None
    """Set while the leg is under way."""
    followers: int = 0
    """How many requests wait for its answer."""
    is_claimed: bool = False
    """Whether it is a request's, and ends when the last who follows it leaves."""
    grace_s: float = 0.0
    """How much longer it goes on then, for a client that comes again."""
    until: float | None = None
    """When that is over, once the last has left. In the event loop's time."""


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
    had: int = 0
    """How many of the prompt's tokens had a cache before the run began."""
    cancelling: bool = False
    pending: list[PendingCall] = field(default_factory=list)
    """The calls of the last round while the run waits, where they are in memory."""
    pause: PauseRecord | None = None
    """What is asked while the run waits, where it is in memory."""
    is_in_doubt: bool = False
    """Whether it is not known what was kept of it last: then this object is given up, and the run is read again."""
    unkept_end: RunDone | None = None
    """How it ended where that could not be kept: the record says that it is open until it has been closed."""

    def __post_init__(self) -> None:
        self._log = EventLog()
        self._before = 0
        """So many numbers of events were taken before; not 0 for a run that was read from the store."""
        self._wake = anyio.Event()
        self.leg = LegState(self._fresh_answer())

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
        return 2 * self._log.nbytes + sum(value.nbytes for value in held_to)

    @property
    def working(self) -> bool:
        """Whether a leg is under way."""
        return self.leg.scope is not None

    @property
    def is_abandoned(self) -> bool:
        """Whether a leg is under way that all have left, and that goes on for whoever comes again."""
        return self.working and self.leg.until is not None

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

        The events are others than those that were told, fewer: so their numbers begin beyond all of those before, with
        the time.
        """
        self._before = int(at) * _NUMBERS_A_SECOND
        kept = self.record.usage
        try:
            self.rounds = [answers.usage_from_json(entry) for entry in kept.get("rounds", [])]
            self.ledger_tokens, self.tool_rounds = kept.get("ledger_tokens", 0), kept.get("tool_rounds", 0)
            answers.restore(self.leg.answer, self.record.answer or {})
        except (ValueError, TypeError, AttributeError):
            log.warning("what run %s answered was kept by another version and cannot be shown", self.id)
        for event in answers.events_of(self.leg.answer, self.rounds):
            self._log.append(event)
        if last is not None:
            self.emit(last)

    def begin_leg(self, scope: anyio.CancelScope, *, of_request: bool, grace_s: float = 0.0) -> None:
        """A leg begins. One of a request has an answer of its own; one after a decision goes on with the last."""
        answer = self._fresh_answer() if of_request else answers.gone_on(self.leg.answer)
        self.leg = LegState(answer, start=len(self._log), scope=scope, is_claimed=of_request, grace_s=grace_s)
        self.cancelling = False

    def emit(self, event: RunEvent) -> None:
        """Tell everybody who follows the run."""
        self._log.append(event)
        if self.leg.end is not None:  # the answer of a leg that is over has been given away
            self.leg.answer = answers.copied(self.leg.answer)
        answers.gather(self.leg.answer, event)
        if isinstance(event, RunPaused | RunDone):
            self.leg.end, self.leg.scope = self.leg.end or len(self._log), None
            self._log.pack()
            self.snapshot()
        self.wake()

    def wake(self) -> None:
        """Let everybody who waits for the run look again."""
        wake, self._wake = self._wake, anyio.Event()
        wake.set()

    def drop_cut_calls(self) -> None:
        """The round was cut: the calls that it had begun are none."""
        self.leg.answer.calls.clear()

    def broken_call(self, event: CallBroken) -> None:
        """Note for the client that what looked like a call was none."""
        answers.with_broken_call(self.leg.answer, event)

    def answer_at(self, event: RunPaused | RunDone) -> dict[str, Any]:
        """The answer's stored form as it will be when the leg has ended so."""
        ended = answers.copied(self.leg.answer)
        answers.gather(ended, event)
        return answers.answer_to_json(ended)

    def usage_json(self) -> dict[str, Any]:
        """The stored form of the figures."""
        rounds = [answers.usage_to_keep(usage) for usage in self.rounds]
        return {"rounds": rounds, "ledger_tokens": self.ledger_tokens, "tool_rounds": self.tool_rounds}

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
        while leg.scope is not None:
            await self._wake.wait()

    async def events(
        self, after: int | None = None, *, leg: LegState | None = None
    ) -> AsyncIterator[tuple[int, RunEvent]]:
        """The events with their numbers (from 1), from `after`, or from the beginning of the present leg.

        Ends where the run waits or has ended; of one leg, where that is over. A run that was read from the store
        tells all again to those who saw it before that (`tells_again`), and its last event to everybody.
        """
        at = (leg or self.leg).start if after is None else min(max(after - self._before, 0), len(self._log))
        if self._before and at and at == len(self._log):
            at -= 1
        while True:
            while at < (len(self._log) if leg is None or leg.end is None else leg.end):
                at += 1
                yield self._before + at, self._log.at(at)
            if (leg or self.leg).scope is None:
                return
            await self._wake.wait()

    def tells_again(self, after: int) -> bool:
        """Whether who has seen the events up to number `after` is told them again, as far as they were kept."""
        return 0 < after < self._before

    def snapshot(self) -> Answer:
        """What there is of the present leg's answer now, with the figures so far."""
        answer = self.leg.answer
        answer.usage = answers.figures(self.rounds, self.ledger_tokens)
        answer.status = self.status
        return answer

    def _fresh_answer(self) -> Answer:
        return Answer(self.record.id, self.session_id, self.record.model)

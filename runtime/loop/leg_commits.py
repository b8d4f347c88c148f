"""What a leg keeps: rounds, results, its pause or its end, each committed before anybody is told of it.

Commit points: (a), the run and its input, is the intake's, before a leg begins. Here are (b) a round with its tokens
and the calls that it begins, (c) each result, (d) the pause and (e) the end.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio

from tenuto.errors import CommitUnsettled, TenutoError
from tenuto.runtime.loop.answer import announced, answer_to_json, end_to_json
from tenuto.runtime.loop.events import RunDone, RunPaused, StopReason
from tenuto.runtime.loop.pending import PendingCall
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.run_states import TABLE, RunTrigger, advanced
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.unfinished import Progress, RoundStart
from tenuto.sessions.changes import Beside, EndLeg, SaveCall, SavePause, SaveProgress, SaveRun
from tenuto.sessions.draft import Draft
from tenuto.sessions.ids import new_hex
from tenuto.sessions.items import ToolCall
from tenuto.sessions.records import PauseReason, PauseRecord, PauseStatus, RunStatus
from tenuto.sessions.session import Session

logger = logging.getLogger(__name__)


class LegCommits:
    """The draft of one leg and its commits. Event-loop thread only, as the leg is."""

    def __init__(self, services: Services, run: Run, session: Session, progress: Progress) -> None:
        self._services, self._run, self._session, self._progress = services, run, session, progress
        self.draft = Draft(session)
        """What the session will be with the next commit."""

    async def commit(self, *changes: Beside) -> None:
        """Keep the draft, and let the next one begin. One whose commit fails is kept with what comes after it."""
        leg = self._run.leg
        place, step = self._step() if leg.is_settling and not leg.is_ending else (0, [])
        try:
            await self._commit(*changes, *step)
        except CommitUnsettled:
            self._run.is_in_doubt = True
            raise
        if step:
            leg.is_settling = False
            self._run.keep_up_to(place)

    def _step(self) -> tuple[int, list[Beside]]:
        """What is kept of a leg that goes on after a crash, where a round begins or has ended."""
        record, run = self._run.leg.record, self._run
        assert record is not None
        place, told = run.to_keep()
        progress = self._progress.dump(run.usage_json(), end_to_json(run.leg.answer))
        return place, [*told, SaveProgress(record.id, record.session_uid, progress)]

    async def begin_round(self, start: RoundStart) -> None:
        """Keep that a round begins, which goes on after a crash."""
        self._progress.start = start
        self._run.leg.is_settling = True
        await self.commit()

    async def _commit(self, *changes: Beside) -> None:
        if self.draft.is_empty:  # results of calls that were made at once come at once
            try:
                await self._services.directory.commit(Draft(self._session), *changes)
            except TenutoError:
                self.draft.also(*changes)
                raise
            return
        await self._services.directory.commit(self.draft, *changes)
        self.draft = Draft(self._session)

    # Pauses. `calls` are all of the round; they are kept as they stand.

    async def pause_for_approval(self, pending: PendingCall, calls: Sequence[PendingCall]) -> None:
        """Wait for a person to decide about a call."""
        record = self._asked(pending, PauseReason.APPROVAL, f"appr_{new_hex(24)}")
        await self._pause_for_person(record, pending, calls)

    def _asked(self, pending: PendingCall, reason: PauseReason, id: str) -> PauseRecord:
        now, run = self._services.clock(), self._run
        return PauseRecord(
            id=id,
            run_id=run.id,
            session_uid=self._session.uid,
            principal=run.record.principal,
            reason=reason,
            call_id=pending.call.id,
            tool=pending.call.name,
            arguments=pending.call.arguments,
            status=PauseStatus.OPEN,
            created_at=now,
            expires_at=now + self._services.expiries.approval_s,
        )

    async def _pause_for_person(self, record: PauseRecord, pending: PendingCall, calls: Sequence[PendingCall]) -> None:
        asked = (pending.call,)
        event = RunPaused(record.reason, pending.record.round, asked, record.expires_at, record.id, record.question)
        await self._pause(event, calls, SavePause(record))
        self._run.pause = record

    async def pause_for_input(self, pending: PendingCall, calls: Sequence[PendingCall]) -> None:
        """Wait for a person to answer what a call asks."""
        assert pending.asks is not None
        record = replace(self._asked(pending, PauseReason.INPUT, pending.asks[0]), question=pending.asks[1])
        await self._pause_for_person(record, pending, calls)

    async def pause_for_client(self, missing: Sequence[PendingCall], calls: Sequence[PendingCall]) -> None:
        """Wait for the client to bring the results of its own calls."""
        told = tuple(pending.call for pending in missing)
        expires = self._services.clock() + self._services.expiries.client_tool_s
        self._announce(missing[0].record.round, told)
        await self._pause(RunPaused(PauseReason.CLIENT_TOOL, missing[0].record.round, told, expires), calls)

    def _announce(self, round: int, calls: Sequence[ToolCall]) -> None:
        """Tell of calls that the present leg has not told of: a person had to decide about others of their round."""
        told = self._run.leg.answer.calls
        known = {call.id for call in told}
        for call in calls:
            if call.id not in known:
                for event in announced(round, len(told), call):
                    self._run.emit(event)

    async def _pause(self, event: RunPaused, calls: Sequence[PendingCall], *changes: Beside) -> None:
        waiting = {"reason": event.reason, "expires_at": event.expires_at}
        saved = [SaveCall(pending.record) for pending in calls]
        await self._close(RunTrigger.PAUSE, event, calls, *saved, *changes, **waiting)

    # Ends.

    async def end(self, trigger: RunTrigger, stop_reason: StopReason, error: TenutoError | None = None) -> None:
        """The run has ended, with all that is in the draft."""
        self.draft.ahead.open_run = None
        text, code = (None, None) if error is None else (str(error), error.code)
        event = RunDone(TABLE[RunStatus.RUNNING, trigger].to, stop_reason, text, code)
        await self._close(trigger, event, (), stop_reason=stop_reason.value, error=text)
        self._count_end(event.status)

    def lose_end(self, failure: Exception, cause: TenutoError | None) -> None:
        """How the run ended cannot be kept: tell what ended it, else what went wrong with the end.

        The session is as it was last kept; housekeeping closes the run. An end of a leg that goes on after a crash is
        told only then: until it is kept, a crash would undo it.
        """
        run = self._run
        logger.error("the end of run %s could not be kept", run.id, exc_info=failure)
        error = cause or failure
        if not isinstance(error, TenutoError):
            error = TenutoError("internal error; the server's log has the details")
        end = RunDone(RunStatus.FAILED, StopReason.ERROR, str(error), error.code)
        if run.leg.is_recoverable:
            run.untold_end = end
            run.leave()
            return
        run.unkept_end = end
        run.emit(end)
        self._count_end(RunStatus.FAILED)

    async def _close(
        self,
        trigger: RunTrigger,
        event: RunPaused | RunDone,
        waiting: Sequence[PendingCall],
        *changes: Beside,
        **fields: Any,
    ) -> None:
        """Commit how the leg ended, then tell it. `waiting`: the calls that the run waits with."""
        run = self._run
        answer = run.answer_at(event)
        figures = {"usage": run.usage_json(), "answer": answer_to_json(answer)}
        record = advanced(run.record, trigger, self._services.clock(), **figures, **fields)
        end = None if run.leg.record is None else run.leg_end(record, len(self.draft.items), answer)
        run.leg.is_ending = True
        place, told = run.to_keep(event)
        self.draft.save()
        self.draft.mark_turns(record.first_item)
        with anyio.CancelScope(shield=True):  # a leg that has come to its end is not cancelled any more
            await self.commit(*changes, SaveRun(record), *told, *([] if end is None else [EndLeg(end)]))
        run.record = record
        run.pending = list(waiting)
        run.leg.ended(end, place)
        run.emit(event)

    def _count_end(self, status: RunStatus) -> None:
        run, clock = self._run, self._services.clock
        self._services.metrics.observe_run(run.model, status.value, clock() - run.created_at)

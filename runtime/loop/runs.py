"""The runs of this process: one object for each, found in memory or read from the store, and closed while they wait."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

from tenuto.errors import CommitUnsettled, ModelNotLoaded, NotFound, RunUnreadable
from tenuto.runtime.loop.events import RunDone, RunEvent, RunPaused, StopReason
from tenuto.runtime.loop.ledgers import fingerprint
from tenuto.runtime.loop.owners import Key
from tenuto.runtime.loop.pending import PendingCall, closing, last_calls, pending_of, results_of
from tenuto.runtime.loop.recent import Recent
from tenuto.runtime.loop.room import fit_all
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.run_states import RunTrigger, advanced
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.variables import with_variables
from tenuto.sessions.changes import EndLeg, SavePause, SaveRun
from tenuto.sessions.draft import Draft
from tenuto.sessions.items import ToolCall, ToolResultItem
from tenuto.sessions.locks import Locks
from tenuto.sessions.records import (
    CallStatus,
    LegEnd,
    PauseReason,
    PauseRecord,
    PauseStatus,
    RunRecord,
    RunStatus,
)
from tenuto.sessions.rounds import outstanding
from tenuto.sessions.session import Session
from tenuto.sessions.watchers import notify

logger = logging.getLogger(__name__)

MOST_LISTED = 100
"""Questions in one listing."""
DUE = 0.0
"""The deadline of a run that is to be closed as soon as that can be."""

_WHY = {
    RunTrigger.CANCEL: (StopReason.CANCELLED, "cancelled"),
    RunTrigger.INTERRUPT: (StopReason.INTERRUPTED, "interrupted"),
    RunTrigger.FAIL: (StopReason.ERROR, "error"),
    RunTrigger.EXPIRE: (StopReason.EXPIRED, "no answer came in time"),
    RunTrigger.SUPERSEDE: (StopReason.SUPERSEDED, "the client went on"),
}
"""How a run that waits ends: its stop reason, and what its calls without a result get to say."""


class Runs:
    """Where runs are looked up. Event-loop thread only.

    Runs that work, and those that wait and are in memory only, are held; of the others the recent ones, for whoever
    follows their events. Everything else is read from the store, and is one object for as long as anybody has it.
    """

    def __init__(self, services: Services, watchers: Sequence[Callable[[Run], None]] = ()) -> None:
        self._services, self._watchers = services, watchers
        self._store = services.store
        self._models = services.models
        self._open: dict[str, Run] = {}
        self._recent = Recent(services.clock)
        self._live: WeakValueDictionary[str, Run] = WeakValueDictionary()
        self._told_until = services.clock()
        """Up to then events may have been told that are not among what was kept."""
        self._askers: WeakValueDictionary[str, Run] = WeakValueDictionary()
        """By the ids of what they asked that is over: the runs that are in memory only."""
        self._loading: Locks[str] = Locks()
        self._unkept: dict[str, Run] = {}
        self.deadlines: dict[str, tuple[float, Key]] = {}
        """When each run that waits expires, and its session. `DUE`: it is to be closed now."""

    @property
    def nbytes(self) -> int:
        """About what the runs at rest take in memory."""
        return self._recent.nbytes

    def working(self) -> list[Run]:
        """The runs that have a leg under way."""
        return [run for run in self._open.values() if run.working]

    def waiting(self) -> int:
        """How many runs wait, in memory or in the store."""
        return len(self.deadlines)

    def add(self, run: Run) -> None:
        """A leg of this run begins."""
        self._open[run.id] = self._live[run.id] = run
        self.deadlines.pop(run.id, None)

    def settle(self, run: Run) -> None:
        """A leg of this run is over."""
        if run.record.status is RunStatus.PAUSED:
            self._services.requested.rest(run.id)
        else:
            self._services.requested.forget(run.id)
            self._services.held.drop(run.id)
        if run.is_in_doubt:
            self._doubt(run)
            return
        self.expect(run)
        if run.stored or run.record.status is not RunStatus.PAUSED:
            self._open.pop(run.id, None)
            self._recent.put(run)
        if run.unkept_end is not None or run.untold_end is not None:
            self._unkept[run.id] = run

    def expect(self, run: Run) -> None:
        """Note when a run that has no leg under way is to be closed."""
        record = run.record
        if record.status is RunStatus.PAUSED and record.expires_at is not None:
            self.deadlines[run.id] = (record.expires_at, _key(run))
        elif run.unkept_end is not None or run.untold_end is not None:
            self.deadlines[run.id] = (DUE, _key(run))
        else:
            self.deadlines.pop(run.id, None)

    def overdue(self, now: float) -> list[tuple[str, Key]]:
        """The runs that are to be closed, and their sessions."""
        return [(id, key) for id, (due, key) in self.deadlines.items() if due <= now]

    def put_off(self, run_id: str) -> None:
        """A run could not be closed: next time the others come first."""
        if run_id in self.deadlines:
            self.deadlines[run_id] = self.deadlines.pop(run_id)

    def give_up(self, run_id: str) -> None:
        """Do not try any more to close a run."""
        self.deadlines.pop(run_id, None)
        self._unkept.pop(run_id, None)
        self._services.held.drop(run_id)

    @contextmanager
    def unsettling(self, *runs: Run) -> Iterator[None]:
        """For a commit that changes these runs. Where its outcome stays unknown they are read again, and what turns out
        to be open is closed by housekeeping, since nobody is at work on it."""
        try:
            yield
        except CommitUnsettled:
            for run in runs:
                self._doubt(run)
            raise

    def _doubt(self, run: Run) -> None:
        run.is_in_doubt = True
        self._told_until = self._services.clock()
        for table in (self._open, self._live, self._unkept):
            table.pop(run.id, None)
        self.deadlines[run.id] = (DUE, _key(run))

    def forget(self, principal: str, session_id: str) -> None:
        """A session has been deleted: nothing of it waits any more."""
        for run_id in [id for id, (_, key) in self.deadlines.items() if key == (principal, session_id)]:
            self.give_up(run_id)

    def forget_old(self) -> None:
        """Let runs go from memory that ended long ago; by itself the cache does so only where others come."""
        self._recent.expire()

    def known(self, run_id: str) -> Run | None:
        """A run by its id, where it is in memory."""
        return self._live.get(run_id)

    async def find(self, run_id: str, principal: str | None = None) -> Run:
        """A run by its id.

        Raises:
            NotFound: there is none, or it is another principal's.
        """
        run = self._live.get(run_id) or await self._load(run_id)
        if run is None or (principal is not None and run.record.principal != principal):
            raise NotFound("run", run_id)
        return run

    async def session(self, run: Run) -> Session:
        """The session of a run. Called by its owner."""
        session = await self._services.directory.get(run.record.principal, run.session_id)
        if session is None or session.uid != run.record.session_uid:
            raise NotFound("session", run.session_id)
        return session

    async def calls(self, run: Run, session: Session) -> list[PendingCall]:
        """The calls of the run's last round, while they wait for results."""
        if run.pending:
            return run.pending
        waiting = last_calls(session.items)
        if not waiting:
            return []
        records = {record.call_id: record for record in await self._store.calls(run.id)}
        return [pending_of(run.id, len(run.rounds), call, position, records) for position, call in enumerate(waiting)]

    async def pause(self, pause_id: str) -> PauseRecord | None:
        """An approval or question by its id."""
        if (asked_by := self._askers.get(pause_id)) is not None:
            return asked_by.past_pauses[pause_id]
        asked = (run.pause for run in self._open.values() if run.pause is not None and run.pause.id == pause_id)
        return next(asked, None) or await self._store.pause(pause_id)

    async def questions(self, principal: str, most: int = MOST_LISTED) -> list[PauseRecord]:
        """What the runs of a principal ask a person, the oldest first."""
        here = [run.pause for run in self._open.values() if not run.stored and run.pause is not None]
        own = [one for one in here if one.principal == principal and one.reason is PauseReason.INPUT]
        kept = await self._store.open_questions(principal, most)
        return sorted([*own, *kept], key=lambda one: one.created_at)[:most]

    async def asked(self, run: Run) -> PauseRecord | None:
        """What a run that waits asks a person."""
        if run.pause is not None:
            return run.pause
        kept = await self._store.run_pauses(run.id)
        return next((pause for pause in kept if pause.status is PauseStatus.OPEN), None)

    def end_pause(self, run: Run, status: PauseStatus) -> None:
        """What a run asked is over, and that is committed."""
        pause, run.pause = run.pause, None
        if pause is not None and not run.stored:
            run.past_pauses[pause.id] = pause.ended(status, self._services.clock())
            self._askers[pause.id] = run

    async def close(self, run: Run, session: Session, trigger: RunTrigger, error: str | None = None) -> None:
        """End a run that has no leg under way; calls without a result get one that says so. Commits, then tells."""
        draft = Draft(session)
        draft.save()
        draft.ahead.open_run = None
        record = await self.closing(run, draft, trigger, error)
        with self.unsettling(run):
            await self._services.directory.commit(draft)
        self.closed(run, record)

    async def closing(self, run: Run, draft: Draft, trigger: RunTrigger, error: str | None = None) -> RunRecord:
        """Let a draft end a run that has no leg under way; the record that the run has once the draft is kept."""
        now = self._services.clock()
        if (end := run.unkept_end or run.untold_end) is not None:
            trigger, error = RunTrigger.FAIL, end.error
        stop_reason, why = _WHY[trigger]
        calls = await self.calls(run, draft.session)
        results = await self._fitted(run, draft.session, results_of(calls, why))
        draft.also(*closing(calls, results, now))
        open_calls = {call.id for call in outstanding(draft.items)}
        if any(pending.call.id in open_calls for pending in calls):  # else the draft has cut their round
            draft.add(results)
        ended = _ended(trigger is RunTrigger.EXPIRE)
        asked = [run.pause] if run.pause is not None else await self._store.run_pauses(run.id)
        draft.also(*(SavePause(pause.ended(ended, now)) for pause in asked if pause.status is PauseStatus.OPEN))
        more = {} if error is None else {"error": error}
        record = advanced(run.record, trigger, now, stop_reason=stop_reason.value, **more)
        draft.also(SaveRun(record))
        if run.record.status is RunStatus.RUNNING:
            draft.also(*run.to_keep()[1], EndLeg(_end_of_leg(run, record, len(draft.items))))
        return record

    def closed(self, run: Run, record: RunRecord) -> None:
        """A run that waited has been ended, and that is committed: tell it."""
        run.record = record
        run.pending = []
        self._models.shelf.forget_run(run.id, run.model)
        self.end_pause(run, _ended(record.status is RunStatus.EXPIRED))
        was_told, run.unkept_end, run.untold_end = run.unkept_end is not None, None, None
        self.give_up(run.id)
        if was_told:
            return
        run.emit(RunDone(record.status, record.stop_reason or "", record.error))
        self.settle(run)
        self._services.metrics.observe_run(run.model, record.status.value, record.updated_at - record.created_at)
        notify(self._watchers, run)

    async def _fitted(self, run: Run, session: Session, results: list[ToolResultItem]) -> list[ToolResultItem]:
        """What the model gets to read of each result, where it is loaded and the run's options can be read."""
        try:
            model, options = self._models.get(run.model), run.options
        except (RunUnreadable, ModelNotLoaded):
            return results
        if model is None:
            return results
        codec = options.codec_of(await with_variables(model.codec, options.variables))
        ledger = session.ledgers.get(fingerprint(codec, options.tools))
        used = 0 if ledger is None else len(ledger.tokens)
        fitted, _ = await fit_all(model.codec, results, model.context - used)
        return fitted

    async def _load(self, run_id: str) -> Run | None:
        # One at a time for an id: whoever reads the record makes the object, before anybody else can have changed it.
        async with self._loading.of(run_id):
            return self._live.get(run_id) or await self._read(run_id)

    async def _read(self, run_id: str) -> Run | None:
        record = await self._store.run(run_id)
        address = None if record is None else await self._store.address(record.session_uid)
        if address is None:
            return None
        await self._services.directory.settle(*address)  # what was read before that may not be what is kept
        record = await self._store.run(run_id)
        if record is None:
            return None
        run = Run(record, address[1], stored=True)
        run.restore(await self._last_event(record), max(record.updated_at, self._told_until))
        self._live[run_id] = run
        if not record.status.is_open:
            self._recent.put(run)
        return run

    async def _last_event(self, record: RunRecord) -> RunEvent | None:
        if record.status is RunStatus.RUNNING:
            return None
        if record.status is not RunStatus.PAUSED or record.reason is None:
            return RunDone(record.status, record.stop_reason or "", record.error)
        records = [call for call in await self._store.calls(record.id) if call.status is not CallStatus.FINISHED]
        pauses = [pause for pause in await self._store.run_pauses(record.id) if pause.status is PauseStatus.OPEN]
        pause = pauses[0] if pauses and record.reason is not PauseReason.CLIENT_TOOL else None
        shown = [call for call in records if pause is None or call.call_id == pause.call_id]
        calls = tuple(ToolCall(call.call_id, call.name, call.arguments, call.server) for call in shown)
        round = records[0].round if records else 0
        expires_at = record.expires_at or 0.0
        if pause is None:
            return RunPaused(record.reason, round, calls, expires_at)
        return RunPaused(record.reason, round, calls, expires_at, pause.id, pause.question)


def _end_of_leg(run: Run, record: RunRecord, until: int) -> LegEnd:
    """The end of a leg that nobody is at work on: its run has crashed, or could not keep its own end."""
    return LegEnd(
        run_id=run.id,
        session_uid=record.session_uid,
        until=until,
        status=record.status,
        ended_at=record.updated_at,
        usage=None if run.unkept_end is None and run.untold_end is None else run.usage_json(),
        answer={"stop_reason": record.stop_reason, "error": record.error, **_why(record)},
    )


def _why(record: RunRecord) -> dict[str, Any]:
    """For the client: why a leg does not go on that would go on after a crash."""
    if record.status is not RunStatus.INTERRUPTED or record.error is None:
        return {}
    return {"diagnostics": [{"kind": "interrupted", "reason": record.error}]}


def _ended(expired: bool) -> PauseStatus:
    return PauseStatus.EXPIRED if expired else PauseStatus.CLOSED


def _key(run: Run) -> Key:
    return (run.record.principal, run.session_id)

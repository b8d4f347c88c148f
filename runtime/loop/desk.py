"""The runs of this process: finds them in memory or in the store, and closes those that wait."""

from collections.abc import Sequence
from dataclasses import replace

from cachetools import TTLCache

from tenuto.errors import NotFound
from tenuto.runtime.loop.events import RunDone, RunEvent, RunPaused
from tenuto.runtime.loop.ledgers import fingerprint
from tenuto.runtime.loop.leg import House
from tenuto.runtime.loop.models import Models
from tenuto.runtime.loop.pending import PendingCall, finished, stand_in
from tenuto.runtime.loop.room import fit_all
from tenuto.runtime.loop.run import Run
from tenuto.sessions.changes import AddItems, Change, SavePause, SaveRun, SaveSession
from tenuto.sessions.items import AssistantItem, Item, ToolCall, ToolResultItem
from tenuto.sessions.records import (
    CallRecord,
    CallStatus,
    PauseReason,
    PauseRecord,
    PauseStatus,
    RunRecord,
    RunStatus,
)
from tenuto.sessions.rounds import outstanding
from tenuto.sessions.session import Session
from tenuto.sessions.store import Store

REMEMBERED_RUNS = 2048
REMEMBERED_S = 600.0


class Desk:
    """Where runs are looked up. Event-loop thread only.

    Runs that work, and those that wait and are in memory only, are here; of the others the recent ones, for whoever
    follows their events. Everything else is read from the store.
    """

    def __init__(self, house: House, store: Store, models: Models) -> None:
        self._house = house
        self._store = store
        self._models = models
        self._open: dict[str, Run] = {}
        self._recent: TTLCache[str, Run] = TTLCache(REMEMBERED_RUNS, REMEMBERED_S, timer=house.clock)
        self.pauses: dict[str, float] = {}
        """When each run that waits expires."""

    def working(self) -> list[Run]:
        """The runs that have a leg under way."""
        return [run for run in self._open.values() if run.working]

    def waiting(self) -> int:
        """How many runs wait, in memory or in the store."""
        return len(self.pauses)

    def add(self, run: Run) -> None:
        """A leg of this run begins."""
        self._open[run.id] = run
        self.pauses.pop(run.id, None)

    def settle(self, run: Run) -> None:
        """A leg of this run is over."""
        record = run.record
        if record.status is RunStatus.PAUSED and record.expires_at is not None:
            self.pauses[run.id] = record.expires_at
        else:
            self.pauses.pop(run.id, None)
        if run.stored or record.status is not RunStatus.PAUSED:
            self._open.pop(run.id, None)
            self._recent[run.id] = run

    def forget_old(self) -> None:
        """Let runs go from memory that ended long ago; by itself the cache does so only where others come."""
        self._recent.expire()

    async def find(self, run_id: str, principal: str | None = None) -> Run:
        """A run by its id.

        Raises:
            NotFound: there is none, or it is another principal's.
        """
        run = self._open.get(run_id) or self._recent.get(run_id) or await self._load(run_id)
        if run is None or (principal is not None and run.record.principal != principal):
            raise NotFound("run", run_id)
        return run

    async def session(self, run: Run) -> Session:
        """The session of a run."""
        session = await self._house.directory.get(run.record.principal, run.session_id)
        if session is None or session.uid != run.record.session_uid:
            raise NotFound("session", run.session_id)
        return session

    async def calls(self, run: Run, session: Session) -> list[PendingCall]:
        """The calls of the run's last round, while they wait for results."""
        if run.pending:
            return run.pending
        waiting = _last_calls(session.items)
        if not waiting:
            return []
        records = {record.call_id: record for record in await self._store.calls(run.id)}
        return [_pending(run, call, position, records) for position, call in enumerate(waiting)]

    async def pause(self, pause_id: str) -> PauseRecord | None:
        """An approval or question by its id."""
        held = (run.pause for run in self._open.values() if run.pause is not None and run.pause.id == pause_id)
        return next(held, None) or await self._store.pause(pause_id)

    async def close(self, run: Run, session: Session, status: RunStatus, stop_reason: str, text: str) -> None:
        """End a run that has no leg under way; calls without a result get one that says so. Commits, then tells."""
        calls = await self.calls(run, session)
        changes = self.closing(session, calls, await self.results(run, session, calls, text))
        session.open_run = None
        now = self._house.clock()
        record = replace(
            run.record, status=status, stop_reason=stop_reason, updated_at=now, reason=None, expires_at=None
        )
        pauses = [run.pause] if run.pause is not None else await self._store.run_pauses(run.id)
        ended = PauseStatus.EXPIRED if status is RunStatus.EXPIRED else PauseStatus.CLOSED
        changes += [
            SavePause(replace(pause, status=ended, decided_at=now))
            for pause in pauses
            if pause.status is PauseStatus.OPEN
        ]
        await self._house.directory.commit(session, *changes, SaveRun(record), SaveSession(session))
        self.closed(run, record, stop_reason)

    def closed(self, run: Run, record: RunRecord, stop_reason: str) -> None:
        """A run that waited has been ended, and that is committed: tell it."""
        run.record = record
        run.pending, run.pause = [], None
        run.emit(RunDone(record.status, stop_reason, record.error))
        self.settle(run)
        self._house.metrics.observe_run(run.model, record.status.value, record.updated_at - record.created_at)

    async def results(
        self, run: Run, session: Session, calls: Sequence[PendingCall], text: str
    ) -> list[ToolResultItem]:
        """What stands where the results of the last round should: those that there are, else one that says `text`.

        With what the model gets to read of each, where the run's model is still served.
        """
        results = [pending.result or stand_in(pending.call, _said(pending, text)) for pending in calls]
        model = self._models.get(run.model)
        if model is None:
            return results
        ledger = session.ledgers.get(fingerprint(model.codec, run.options.tools))
        used = 0 if ledger is None else len(ledger.tokens)
        fitted, _ = await fit_all(model.codec, results, model.context - used)
        return fitted

    def closing(
        self, session: Session, calls: Sequence[PendingCall], results: Sequence[ToolResultItem]
    ) -> list[Change]:
        """Give the calls of the last round these results, append them to the session, and tell the changes."""
        now = self._house.clock()
        unanswered = [(call, result) for call, result in zip(calls, results, strict=True) if call.result is None]
        changes = [finished(call, result, now) for call, result in unanswered]
        if results and outstanding(session.items):
            changes.append(AddItems(session.uid, len(session.items), tuple(results)))
            session.items.extend(results)
        return changes

    async def _load(self, run_id: str) -> Run | None:
        record = await self._store.run(run_id)
        if record is None:
            return None
        address = await self._store.address(record.session_uid)
        if address is None:
            return None
        run = Run(record, address[1], stored=True)
        run.restore(record.answer or {}, await self._last_event(record))
        if not record.status.is_open:
            self._recent[run_id] = run
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
        return RunPaused(record.reason, round, calls, record.expires_at or 0.0, None if pause is None else pause.id)


def _last_calls(items: list[Item]) -> tuple[ToolCall, ...]:
    for item in reversed(items):
        if isinstance(item, AssistantItem):
            return item.calls if outstanding(items) else ()
        if not isinstance(item, ToolResultItem):
            return ()
    return ()


def _said(pending: PendingCall, text: str) -> str:
    started = pending.record.status is CallStatus.STARTED
    return f"{text}; it may have had an effect" if started else f"not executed: {text}"


def _pending(run: Run, call: ToolCall, position: int, records: dict[str, CallRecord]) -> PendingCall:
    record = records.get(call.id)
    if record is None:
        record = CallRecord(
            run.id, call.id, len(run.rounds), position, call.name, call.arguments, call.server, CallStatus.WAITING
        )
    return PendingCall(call, record)

"""The runs of this process: finds them in memory or in the store, and closes those that wait."""

import time
from collections.abc import Iterable
from dataclasses import replace

from cachetools import TTLCache

from tenuto.errors import NotFound
from tenuto.runtime.loop.events import RunDone, RunEvent, RunPaused
from tenuto.runtime.loop.leg import House
from tenuto.runtime.loop.pending import PendingCall, finished, stand_in
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

    def __init__(self, house: House, store: Store) -> None:
        self._house = house
        self._store = store
        self._open: dict[str, Run] = {}
        self._recent: TTLCache[str, Run] = TTLCache(REMEMBERED_RUNS, REMEMBERED_S)
        self.pauses: dict[str, float] = {}
        """When each run that waits expires."""

    def working(self) -> list[Run]:
        """The runs that have a leg under way."""
        return [run for run in self._open.values() if run.working]

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
        changes = self.closing(session, await self.calls(run, session), text)
        session.open_run = None
        now = time.time()
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

    def closing(self, session: Session, calls: Iterable[PendingCall], text: str) -> list[Change]:
        """Give every call of the last round a result, append them to the session, and tell the changes."""
        calls = list(calls)
        changes: list[Change] = []
        for pending in calls:
            if pending.result is None:
                started = pending.record.status is CallStatus.STARTED
                said = f"{text}; it may have had an effect" if started else f"not executed: {text}"
                changes.append(finished(pending, stand_in(pending.call, said)))
        results = tuple(pending.result for pending in calls if pending.result is not None)
        if results and outstanding(session.items):
            changes.append(AddItems(session.uid, len(session.items), results))
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


def _pending(run: Run, call: ToolCall, position: int, records: dict[str, CallRecord]) -> PendingCall:
    record = records.get(call.id)
    if record is None:
        record = CallRecord(
            run.id, call.id, len(run.rounds), position, call.name, call.arguments, call.server, CallStatus.WAITING
        )
    return PendingCall(call, record)

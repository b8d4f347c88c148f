"""From a turn to a run that is committed and may begin: which session, what is new, which run, does it fit.

Nothing of a session changes before everything has been checked; commit point (a) is here.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal
from uuid import uuid4

import anyio

from tenuto.errors import ContextTooLong, MissingToolResults, SessionBusy, SessionPaused
from tenuto.pipelines.base import Codec
from tenuto.runtime.loop.desk import Desk
from tenuto.runtime.loop.ledgers import Prompt, extend, prompt
from tenuto.runtime.loop.leg import House
from tenuto.runtime.loop.models import Model
from tenuto.runtime.loop.options import RunOptions
from tenuto.runtime.loop.pending import PendingCall, finished
from tenuto.runtime.loop.requests import Turn
from tenuto.runtime.loop.room import ANSWER_TOKENS
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.toolset import select
from tenuto.sessions.changes import AddItems, Change, CutItems, SaveKey, SaveRun, SaveSession
from tenuto.sessions.items import Item, ToolResultItem, UserItem, item_to_json
from tenuto.sessions.ledger import Ledger
from tenuto.sessions.records import CallStatus, PauseReason, RunRecord, RunStatus
from tenuto.sessions.session import Session
from tenuto.sessions.splice import plan

IDEMPOTENCY_S = 24 * 3600.0
BIG_TEXT = 1 << 14
"""New text of more characters than this is rendered in a worker thread."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds where a request says nothing, and what holds for all."""

    max_tokens: int = 4096
    max_tool_rounds: int = 16
    deadline_s: float = 600.0
    default_tools: Literal["all", "none"] | tuple[str, ...] = "all"
    max_runs: int = 1024


@dataclass(frozen=True, slots=True)
class Admitted:
    """A run that is committed and may begin its next leg: with these calls outstanding, and these items after them."""

    run: Run
    calls: list[PendingCall]
    then: tuple[Item, ...] = ()


class Intake:
    """Admits turns. Event-loop thread only; the caller holds the session's lock from `admit` to the leg's begin."""

    def __init__(self, house: House, desk: Desk, defaults: Defaults) -> None:
        self._house = house
        self._desk = desk
        self._defaults = defaults

    async def session(self, turn: Turn) -> Session:
        """The session that the turn goes on with, or a new one.

        By match, one that is at work or waits for a person is forked, and so is one that has gone further.
        """
        directory = self._house.directory
        if turn.session_id is not None:
            return await directory.get_or_create(turn.principal, turn.session_id)
        if turn.match and turn.stored:
            found = await directory.match(turn.principal, turn.user, turn.items)
            if found is not None:
                return await self._free(found)
        return directory.new(turn.principal, user=turn.user, stored=turn.stored)

    async def _free(self, session: Session) -> Session:
        if session.open_run is not None:
            run = await self._desk.find(session.open_run)
            if run.record.status is RunStatus.RUNNING or run.record.reason is not PauseReason.CLIENT_TOOL:
                return await self._house.directory.fork(session)
        return session

    async def admit(self, turn: Turn, model: Model, session: Session) -> Admitted:
        """Commit the turn to the session.

        Raises:
            SessionBusy, SessionPaused, MissingToolResults: the session's open run does not allow it.
            InvalidRequest and its kin: the turn is not valid; nothing has changed.
        """
        waiting = await self._waiting_run(session)
        splice = plan(turn.mode.value, session.items, turn.items)
        if waiting is None:
            return await self._begin(turn, model, session, splice.keep, splice.new, splice.miss_reason)
        results = _leading_results(splice.new)
        if splice.keep == len(session.items) and results:
            return await self._answer(turn, model, session, waiting, results, splice.new[len(results) :])
        return await self._begin(turn, model, session, splice.keep, splice.new, splice.miss_reason, waiting)

    async def _waiting_run(self, session: Session) -> Run | None:
        """The session's open run if it waits for its client; anything else that is open refuses the turn."""
        if session.open_run is None:
            return None
        run = await self._desk.find(session.open_run)
        if run.record.status is RunStatus.RUNNING:
            raise SessionBusy(session.id, run.id)
        if run.record.expires_at is not None and run.record.expires_at <= time.time():
            await self._desk.close(run, session, RunStatus.EXPIRED, "expired", "no answer came in time")
            return None
        if run.record.reason is not PauseReason.CLIENT_TOOL:
            pause = run.snapshot().pause
            pause_id = "" if pause is None else pause.pause_id or ""
            raise SessionPaused(session.id, run.id, pause_id, str(run.record.reason))
        return run

    # Going on with a run that waited for its client.

    async def _answer(
        self,
        turn: Turn,
        model: Model,
        session: Session,
        run: Run,
        results: Sequence[ToolResultItem],
        then: tuple[Item, ...],
    ) -> Admitted:
        brought = {result.call_id: result for result in results}
        calls = await self._desk.calls(run, session)
        changes: list[Change] = []
        for pending in calls:
            result = brought.get(pending.call.id)
            if result is not None and not pending.call.server:
                changes.append(finished(pending, replace(result, name=pending.call.name)))
        missing = [pending.call.id for pending in calls if pending.record.status is not CallStatus.FINISHED]
        run.pending = calls
        if missing:
            await self._house.directory.commit(session, *changes)
            raise MissingToolResults(missing)
        fresh = self._options(turn, model, session)
        run.options = replace(
            run.options,
            sampling=fresh.sampling,
            stop=fresh.stop,
            max_tokens=fresh.max_tokens,
            permission=fresh.permission,
            can_answer=fresh.can_answer,
            choice=fresh.choice,
            only=fresh.only,
            parallel=fresh.parallel,
            choice_round=len(run.rounds) + 1,
            spent_before=sum(usage.sampled for usage in run.rounds),
        )
        record = replace(run.record, status=RunStatus.RUNNING, reason=None, expires_at=None, options=run.options.dump())
        await self._house.directory.commit(session, *changes, SaveRun(record), *_key(turn, run.id))
        run.record = record
        run.pending = []
        return Admitted(run, calls, then)

    # A new run.

    async def _begin(
        self,
        turn: Turn,
        model: Model,
        session: Session,
        keep: int,
        new: tuple[Item, ...],
        miss_reason: str | None,
        superseded: Run | None = None,
    ) -> Admitted:
        if session.server_tools is None:
            session.server_tools = tuple(exported.spec for exported in self._house.registry.list())
        options = self._options(turn, model, session, miss_reason)
        closing = [] if superseded is None else await self._desk.calls(superseded, session)
        if keep < len(session.items):
            kept = session.items[:keep]
        else:
            kept = [*session.items, *(pending.result_or("not executed: the client went on") for pending in closing)]
        ledger = session.ledgers.get(model.codec.fingerprint(options.tools))
        whole = await _render(model.codec, options, ledger, keep, [*kept, *new], turn)
        if whole.total >= model.context:
            raise ContextTooLong(whole.total, model.context, _fork_point(session.items[:keep], ledger, whole, model))
        if ledger is None and session.ledgers and keep:
            options = replace(options, miss_reason=options.miss_reason or "tools_changed")

        changes: list[Change] = [SaveSession(session)]
        if keep < len(session.items):
            changes.append(CutItems(session.uid, keep))
            del session.items[keep:]
            for other in session.ledgers.values():
                other.cut(keep)
        if superseded is not None:
            changes += self._supersede(superseded, session, closing)
        if new:
            changes.append(AddItems(session.uid, len(session.items), new))
            session.items.extend(new)
        assert session.items == [*kept, *new], "what was checked is what is kept"
        changes += extend(session, whole)
        run = self._record(turn, model, session, options, len(new), whole)
        session.open_run = run.id
        try:
            await self._house.directory.commit(session, *changes, SaveRun(run.record), *_key(turn, run.id))
        except BaseException:
            self._house.directory.discard(session)  # what is in memory is ahead of what is kept
            raise
        if superseded is not None:
            self._desk.closed(superseded, _superseded(superseded.record), "superseded")
        return Admitted(run, [])

    def _supersede(self, run: Run, session: Session, calls: Sequence[PendingCall]) -> list[Change]:
        changes = self._desk.closing(session, calls, "the client went on")
        return [*changes, SaveRun(_superseded(run.record))]

    def _record(self, turn: Turn, model: Model, session: Session, options: RunOptions, new: int, whole: Prompt) -> Run:
        now = time.time()
        record = RunRecord(
            id=f"run_{uuid4().hex}",
            session_uid=session.uid,
            principal=turn.principal,
            model=model.id,
            status=RunStatus.RUNNING,
            created_at=now,
            updated_at=now,
            first_item=len(session.items) - new,
            options=options.dump(),
            usage={},
            input_digest=_digest(turn.items),
        )
        run = Run(record, session.id, stored=session.stored)
        run.ledger_tokens = whole.total - len(whole.opening)
        run.had = whole.had
        return run

    def _options(self, turn: Turn, model: Model, session: Session, miss_reason: str | None = None) -> RunOptions:
        toolset = select(turn.tools, session.server_tools or (), self._defaults.default_tools)
        limits = turn.limits
        return RunOptions(
            sampling=turn.sampling,
            stop=turn.stop,
            max_tokens=limits.max_tokens or min(self._defaults.max_tokens, model.context),
            max_tool_rounds=_given(limits.max_tool_rounds, self._defaults.max_tool_rounds),
            deadline_s=limits.deadline_s or self._defaults.deadline_s,
            permission=turn.permission,
            can_answer=turn.wants_events,
            tools=toolset.tools,
            client_tools=toolset.client,
            choice=turn.tools.choice,
            only=turn.tools.only,
            parallel=turn.tools.parallel,
            miss_reason=miss_reason,
        )


async def _render(
    codec: Codec, options: RunOptions, ledger: Ledger | None, keep: int, items: Sequence[Item], turn: Turn
) -> Prompt:
    if sum(len(item.text) for item in turn.items) > BIG_TEXT:
        return await anyio.to_thread.run_sync(prompt, codec, options.tools, ledger, keep, items)
    return prompt(codec, options.tools, ledger, keep, items)


def _fork_point(items: Sequence[Item], ledger: Ledger | None, whole: Prompt, model: Model) -> int | None:
    """The latest turn before which a fork leaves room for what is new and an answer."""
    if ledger is None:
        return None
    fresh = sum(map(len, whole.spans)) + len(whole.opening) + ANSWER_TOKENS
    for at in range(min(len(items), ledger.items) - 1, 0, -1):
        if isinstance(items[at], UserItem) and ledger.offsets[at] + fresh < model.context:
            return at
    return None


def _superseded(record: RunRecord) -> RunRecord:
    return replace(record, status=RunStatus.SUPERSEDED, stop_reason="superseded", reason=None, expires_at=None)


def _leading_results(items: Sequence[Item]) -> list[ToolResultItem]:
    results: list[ToolResultItem] = []
    for item in items:
        if not isinstance(item, ToolResultItem):
            break
        results.append(item)
    return results


def _key(turn: Turn, run_id: str) -> list[Change]:
    if turn.idempotency_key is None:
        return []
    expires = time.time() + IDEMPOTENCY_S
    return [SaveKey(turn.principal, turn.idempotency_key, run_id, turn.body_digest or _digest(turn.items), expires)]


def _digest(items: Sequence[Item]) -> str:
    return hashlib.sha256("\n".join(map(item_to_json, items)).encode()).hexdigest()


def _given(value: int | None, default: int) -> int:
    return default if value is None else value

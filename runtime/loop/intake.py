"""From a turn to a run that is committed and may begin: which session, what is new, which run, does it fit.

Nothing of a session changes before everything has been checked; commit point (a) is here.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from uuid import uuid4

import anyio

from tenuto.errors import ContextTooLong, MissingToolResults, SessionBusy, SessionPaused
from tenuto.pipelines.base import Codec
from tenuto.runtime.loop.desk import Desk
from tenuto.runtime.loop.holding import check_bias, held
from tenuto.runtime.loop.ledgers import Prompt, extend, prompt
from tenuto.runtime.loop.leg import House
from tenuto.runtime.loop.models import Model
from tenuto.runtime.loop.options import RunOptions
from tenuto.runtime.loop.pending import PendingCall, finished
from tenuto.runtime.loop.requests import Turn
from tenuto.runtime.loop.room import ANSWER_TOKENS
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.toolset import select
from tenuto.sessions.changes import AddItems, Change, CutItems, MarkTurns, SaveKey, SaveRun, SaveSession
from tenuto.sessions.items import Item, ToolResultItem, ToolSpec, UserItem, item_to_json
from tenuto.sessions.ledger import Ledger
from tenuto.sessions.match import fits
from tenuto.sessions.records import CallStatus, PauseReason, RunRecord, RunStatus
from tenuto.sessions.session import Session
from tenuto.sessions.splice import Splice, plan

IDEMPOTENCY_S = 24 * 3600.0
WENT_ON = "the client went on"
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
class Found:
    """The session for a turn."""

    session: Session
    at: int | None = None
    """By match: how many of its items the turn repeats."""
    begin: Sequence[Change] = ()
    """What keeps the session, where it is a fork that is not kept yet."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A run that is committed and may begin its next leg: with these calls outstanding, and these items after them."""

    run: Run
    calls: list[PendingCall]
    then: tuple[Item, ...] = ()
    prompt: Prompt | None = None
    """What the first round reads, where it has been rendered already."""


class Intake:
    """Admits turns. Event-loop thread only; the caller holds the session's lock from `admit` to the leg's begin."""

    def __init__(self, house: House, desk: Desk, defaults: Defaults) -> None:
        self._house = house
        self._desk = desk
        self._defaults = defaults

    async def find(self, turn: Turn) -> Found:
        """The session that the turn names, or repeats, or a new one."""
        directory = self._house.directory
        if turn.session_id is not None:
            return Found(await directory.get_or_create(turn.principal, turn.session_id, stored=turn.stored))
        if turn.match and turn.stored:
            found = await directory.match(turn.principal, turn.user, turn.items)
            if found is not None:
                return Found(found[0], at=found[1])
        return self._new(turn)

    async def goes_on(self, turn: Turn, found: Found) -> bool:
        """Whether the turn goes on with the session itself; the caller holds the session's lock.

        One that was found by match must not be at work, nor wait for a person, nor have gone further.
        """
        if found.at is None:
            return True
        session = found.session
        if not fits(session.items, turn.items):
            return False
        if session.open_run is None:
            return True
        run = await self._desk.find(session.open_run)
        return not run.working and run.record.reason in (None, PauseReason.CLIENT_TOOL)

    def branch(self, turn: Turn, found: Found) -> Found:
        """A fork of the session that was found, where the turn leaves it; new if that place is no more."""
        session, at = found.session, found.at
        if at is None or not fits(session.items[:at], turn.items):
            return self._new(turn)
        twin, begin = self._house.directory.branch(session, at)
        return Found(twin, begin=begin)

    def _new(self, turn: Turn) -> Found:
        return Found(self._house.directory.new(turn.principal, user=turn.user, stored=turn.stored))

    async def admit(self, turn: Turn, model: Model, found: Found) -> Admitted:
        """Commit the turn to the session.

        Raises:
            SessionBusy, SessionPaused, MissingToolResults: the session's open run does not allow it.
            InvalidRequest and its kin: the turn is not valid; nothing has changed.
        """
        session = found.session
        waiting = await self._waiting_run(session)
        if waiting is not None and waiting.record.input_digest == _digest(turn.items):
            calls = await self._desk.calls(waiting, session)
            outstanding = ", ".join(call.call.id for call in calls if call.result is None)
            raise SessionPaused(session.id, waiting.id, outstanding, PauseReason.CLIENT_TOOL.value)
        splice = plan(turn.mode.value, session.items, turn.items)
        if waiting is not None:
            results = _leading_results(splice.new)
            if splice.keep == len(session.items) and results:
                return await self._answer(turn, model, session, waiting, results, splice.new[len(results) :])
        return await self._begin(turn, model, found, splice, waiting)

    async def preview(self, turn: Turn, model: Model) -> tuple[int, ...]:
        """What the model would read of the turn. Nothing is begun, and nothing changes.

        Raises:
            InvalidRequest and its kin: the turn is not valid.
        """
        known = None
        if turn.session_id is not None:
            known = await self._house.directory.get(turn.principal, turn.session_id)
        session = known or Session("", turn.principal, "", 0.0, 0.0)
        splice = plan(turn.mode.value, session.items, turn.items)
        options = self._options(turn, model, session)
        items = [*session.items[: splice.keep], *splice.new]
        return (await _render(model.codec, options, session.ledgers, splice.keep, items, turn)).whole()

    async def _waiting_run(self, session: Session) -> Run | None:
        """The session's open run if it waits for its client; anything else that is open refuses the turn."""
        if session.open_run is None:
            return None
        run = await self._desk.find(session.open_run)
        if run.working:
            raise SessionBusy(session.id, run.id)
        if run.record.status is not RunStatus.PAUSED:  # its end could not be kept
            await self._desk.close(run, session, RunStatus.INTERRUPTED, "interrupted", "interrupted")
            return None
        if run.record.expires_at is not None and run.record.expires_at <= self._house.clock():
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
        fresh = self._options(turn, model, session)
        brought = {result.call_id: result for result in results}
        calls = await self._desk.calls(run, session)
        changes: list[Change] = []
        for pending in calls:
            result = brought.get(pending.call.id)
            if result is not None and not pending.call.server:
                changes.append(finished(pending, replace(result, name=pending.call.name), self._house.clock()))
        missing = [pending.call.id for pending in calls if pending.record.status is not CallStatus.FINISHED]
        run.pending = calls
        if missing:
            await self._house.directory.commit(session, *changes)
            raise MissingToolResults(missing)
        # A request that says nothing of tools answers for those that the run has.
        tools = fresh if turn.tools.given else run.options
        options = replace(
            fresh,
            tools=tools.tools,
            client_tools=tools.client_tools,
            choice_round=len(run.rounds) + 1,
            spent_before=sum(usage.sampled for usage in run.rounds),
        )
        options = await held(model.codec, options, turn.response)
        record = replace(
            run.record,
            status=RunStatus.RUNNING,
            model=model.id,
            reason=None,
            expires_at=None,
            options=options.dump(),
            input_digest=_digest(turn.items),
        )
        await self._house.directory.commit(
            session, *changes, SaveSession(session), SaveRun(record), *self._key(turn, run.id)
        )
        run.record, run.options = record, options
        run.pending, run.tool_rounds = [], 0
        return Admitted(run, calls, then)

    # A new run.

    async def _begin(
        self,
        turn: Turn,
        model: Model,
        found: Found,
        splice: Splice,
        superseded: Run | None,
    ) -> Admitted:
        session, keep, new = found.session, splice.keep, splice.new
        options = self._options(turn, model, session, splice.miss_reason)
        options = await held(model.codec, options, turn.response)
        calls: list[PendingCall] = []
        results: list[ToolResultItem] = []
        if superseded is not None:
            calls = await self._desk.calls(superseded, session)
            results = await self._desk.results(superseded, session, calls, WENT_ON)
        kept = session.items[:keep] if keep < len(session.items) else [*session.items, *results]
        whole = await _render(model.codec, options, session.ledgers, keep, [*kept, *new], turn)
        if whole.total >= model.context:
            raise ContextTooLong(whole.total, model.context, _fork_point(session, keep, whole, model))
        if whole.tools_changed:
            options = replace(options, miss_reason=options.miss_reason or "tools_changed")

        if session.server_tools is None:
            session.server_tools = self._server_tools(session)
        changes: list[Change] = [*found.begin, SaveSession(session)]
        if keep < len(session.items):
            changes.append(CutItems(session.uid, keep))
            del session.items[keep:]
            for other in session.ledgers.values():
                other.cut(keep)
        if superseded is not None:
            changes += self._desk.closing(session, calls, results)
            changes.append(SaveRun(_superseded(superseded.record, self._house.clock())))
        if new:
            changes.append(AddItems(session.uid, len(session.items), new))
            session.items.extend(new)
        assert session.items == [*kept, *new], "what was checked is what is kept"
        changes += [MarkTurns(session, keep), *extend(session, whole)]
        run = self._record(turn, model, session, options, len(new), whole)
        session.open_run = run.id
        try:
            await self._house.directory.commit(session, *changes, SaveRun(run.record), *self._key(turn, run.id))
        except BaseException:
            self._house.directory.discard(session)  # what is in memory is ahead of what is kept
            raise
        if superseded is not None:
            self._desk.closed(superseded, _superseded(superseded.record, self._house.clock()), "superseded")
        return Admitted(run, [], prompt=whole.settled())

    def _record(self, turn: Turn, model: Model, session: Session, options: RunOptions, new: int, whole: Prompt) -> Run:
        now = self._house.clock()
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
        toolset = select(turn.tools, self._server_tools(session), self._defaults.default_tools)
        limits = turn.limits
        check_bias(model.codec, turn.sampling)
        return RunOptions(
            sampling=replace(
                turn.sampling, temperature=model.temperature if turn.temperature is None else turn.temperature
            ),
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
            allowed=turn.tools.allowed,
            parallel=turn.tools.parallel,
            miss_reason=miss_reason,
        )

    def _server_tools(self, session: Session) -> tuple[ToolSpec, ...]:
        """The server's tools as they were at the session's first turn."""
        if session.server_tools is not None:
            return session.server_tools
        return tuple(exported.spec for exported in self._house.registry.list())

    def _key(self, turn: Turn, run_id: str) -> list[Change]:
        if turn.idempotency_key is None:
            return []
        expires = self._house.clock() + IDEMPOTENCY_S
        return [SaveKey(turn.principal, turn.idempotency_key, run_id, body_digest(turn), expires)]


async def _render(
    codec: Codec, options: RunOptions, ledgers: Mapping[str, Ledger], keep: int, items: Sequence[Item], turn: Turn
) -> Prompt:
    if sum(len(item.text) for item in turn.items) > BIG_TEXT:
        return await anyio.to_thread.run_sync(prompt, codec, options.tools, ledgers, keep, items)
    return prompt(codec, options.tools, ledgers, keep, items)


def _fork_point(session: Session, keep: int, whole: Prompt, model: Model) -> int | None:
    """The latest turn before which a fork leaves room for what is new and an answer."""
    sizes = [*(len(span) for span in whole.spans), len(whole.opening)]
    ledger = session.ledgers.get(whole.fingerprint)
    offsets = [] if ledger is None else ledger.offsets[: whole.kept]
    at = len(whole.tokens)
    for size in sizes[: keep - whole.kept]:
        offsets.append(at)
        at += size
    fresh = whole.total - at + ANSWER_TOKENS
    for place in range(keep - 1, 0, -1):
        if isinstance(session.items[place], UserItem) and offsets[place] + fresh < model.context:
            return place
    return None


def body_digest(turn: Turn) -> str:
    """Names all that an Idempotency-Key came with."""
    return turn.body_digest or _digest(turn.items)


def _superseded(record: RunRecord, now: float) -> RunRecord:
    return replace(
        record, status=RunStatus.SUPERSEDED, stop_reason="superseded", reason=None, expires_at=None, updated_at=now
    )


def _leading_results(items: Sequence[Item]) -> list[ToolResultItem]:
    results: list[ToolResultItem] = []
    for item in items:
        if not isinstance(item, ToolResultItem):
            break
        results.append(item)
    return results


def _digest(items: Sequence[Item]) -> str:
    return hashlib.sha256("\n".join(map(item_to_json, items)).encode()).hexdigest()


def _given(value: int | None, default: int) -> int:
    return default if value is None else value

"""From a turn to a run that is committed and may begin: which session, what is new, which run, does it fit.

Nothing of a session changes before everything has been checked; commit point (a) is here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import anyio
import anyio.to_thread

from tenuto.errors import ContextTooLong, MissingToolResults, SessionPaused
from tenuto.runtime.loop.attach import in_place
from tenuto.runtime.loop.constraints import constrained
from tenuto.runtime.loop.images import check_images
from tenuto.runtime.loop.keys import Keys
from tenuto.runtime.loop.ledgers import Prompt, extend, read
from tenuto.runtime.loop.models import Model
from tenuto.runtime.loop.options import RunOptions, inherited
from tenuto.runtime.loop.pending import PendingCall, finished, stand_ins
from tenuto.runtime.loop.requests import Turn
from tenuto.runtime.loop.room import ANSWER_TOKENS, check_length
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.run_states import RunTrigger, advanced
from tenuto.runtime.loop.runs import Runs
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.turn_options import Defaults, TurnOptions, held, without_default_tools
from tenuto.runtime.loop.unfinished import at_begin
from tenuto.runtime.loop.waiting import waiting_run
from tenuto.sessions.changes import BeginLeg, Beside, Change, SaveCall, SaveRun
from tenuto.sessions.draft import Draft
from tenuto.sessions.ids import new_hex
from tenuto.sessions.items import Item, ToolResultItem, UserItem
from tenuto.sessions.match import fits
from tenuto.sessions.records import CallRecord, CallStatus, LegRecord, PauseReason, RunRecord, RunStatus
from tenuto.sessions.session import Session
from tenuto.sessions.splice import Splice, follow, plan
from tenuto.sessions.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Found:
    """The session for a turn, and the first changes of its first commit, where it is not kept yet."""

    session: Session
    begin: Sequence[Change] = ()
    is_named: bool = False
    """Whether the turn names its end, to which the items are added."""
    made: Sequence[ToolResultItem] = ()
    """The results of the server's calls in the session's last round, where it waits for others of them."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A run that is committed and may begin its next leg: with these calls outstanding, and these items after them."""

    run: Run
    calls: list[PendingCall]
    leg_id: str
    then: tuple[Item, ...] = ()
    prompt: Prompt | None = None
    """What the first round reads, where it has been rendered already."""
    leg: LegRecord | None = None
    """Of a leg for which its client can ask again."""
    is_detached: bool = False
    """Whether it goes on without anybody who follows it."""


class Intake:
    """Admits turns. Event-loop thread only; called by the session's owner."""

    def __init__(self, services: Services, runs: Runs, keys: Keys, defaults: Defaults) -> None:
        self._services = services
        self._runs = runs
        self._keys = keys
        self._options = TurnOptions(services.registry, defaults)

    async def goes_on(self, turn: Turn, session: Session) -> bool:
        """Whether a turn that was found by match goes on with the session itself.

        It must not be at work, nor wait for a person, nor have gone further.
        """
        if not fits(session.items, session.history, turn.request_items):
            return False
        if session.open_run is None:
            return True
        run = await self._runs.find(session.open_run)
        return not run.working and run.record.reason in (None, PauseReason.CLIENT_TOOL)

    async def admit(self, turn: Turn, model: Model, found: Found) -> Admitted:
        """Commit the turn to the session.

        Raises:
            SessionBusy, SessionPaused, MissingToolResults: the session's open run does not allow it.
            InvalidRequest and its kin: the turn is not valid; nothing has changed.
            Unread: it names something of an MCP server that is not at hand.
        """
        session = found.session
        turn.expect_kept_in(session)
        waiting = await waiting_run(self._services, self._runs, session)
        if waiting is not None and waiting.record.input_digest == turn.request_items.digest:
            calls = await self._runs.calls(waiting, session)
            outstanding = ", ".join(call.call.id for call in calls if call.result is None)
            raise SessionPaused(session.id, waiting.id, outstanding, PauseReason.CLIENT_TOOL.value)
        splice = self._splice(turn, found)
        splice = replace(splice, new=in_place(splice.new, turn.brought))
        if waiting is not None:
            results = _leading_results(splice.new)
            if splice.keep == len(session.items) and results:
                return await self._answer(turn, model, session, waiting, results, splice.new[len(results) :])
        return await self._begin(turn, model, found, splice, waiting)

    @staticmethod
    def _splice(turn: Turn, found: Found) -> Splice:
        session = found.session
        if found.is_named:
            return follow(session.items, turn.items[turn.is_instructed :], found.made)
        return plan(turn.mode.value, session.items, session.history, turn.request_items)

    async def preview(self, turn: Turn, model: Model, found: Found | None) -> Tokens:
        """What the model would read of the turn in its session. Nothing is begun, and nothing changes.

        Raises:
            InvalidRequest and its kin: the turn is not valid, or does not fit the model's context.
            Unread: it names something of an MCP server that is not at hand.
        """
        if found is None:
            found = Found(Session("", turn.principal.id, "", 0.0, 0.0))
        else:
            turn.expect_stored_as(found.session)
        session, splice = found.session, self._splice(turn, found)
        splice = replace(splice, new=in_place(splice.new, turn.brought))
        options = await held(model, await self._options.of(turn, model, session), turn)
        check_length(model.codec, (item.text for item in splice.new), model.context)
        await check_images(model.codec, splice.new)
        draft = Draft(session)
        _lead_in(draft, turn, splice, found)
        draft.add(splice.new)
        _, whole = await _read(turn, model, options, draft)
        return await anyio.to_thread.run_sync(whole.all_tokens, session.ledgers)

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
        await check_images(model.codec, then)
        calls = await self._runs.calls(run, session)
        brought = {result.call_id: result for result in results}
        now = self._services.clock()
        fresh: list[tuple[PendingCall, CallRecord]] = []
        for pending in calls:
            result = brought.get(pending.call.id)
            if result is not None and not pending.call.server:
                fresh.append((pending, finished(pending, replace(result, name=pending.call.name), now)))
        have = {pending.call.id for pending, _ in fresh}
        missing = [p.call.id for p in calls if p.call.id not in have and p.record.status is not CallStatus.FINISHED]
        kept = [SaveCall(record) for _, record in fresh]
        if missing:
            with self._runs.unsettling(run):
                await self._services.directory.commit(Draft(session), *kept)
            _take(run, calls, fresh)
            raise MissingToolResults(missing)
        options = inherited(await self._options.of(turn, model, session), run.options, turn)
        options = options.prefilled_in(len(run.rounds) + 1)
        options = await constrained(options.codec_of(model.codec), options, turn.response)
        record = advanced(
            run.record,
            RunTrigger.ANSWER,
            now,
            model=model.id,
            options=options.dump(),
            input_digest=turn.request_items.digest,
        )
        draft = Draft(session)
        draft.save()
        draft.ahead.hint = turn.hint or session.hint
        first_item = len(session.items)
        leg = self._leg(turn, session, run, first_item, first_item + len(calls) + len(then), then)
        saved: list[Beside] = [*kept, SaveRun(record), *_beginning(leg), *self._keys.saving(turn, run.id)]
        with self._runs.unsettling(run):
            await self._services.directory.commit(draft, *saved)
        _take(run, calls, fresh)
        run.record, run.pending, run.tool_rounds = record, [], 0
        run.keep_options(options)
        return Admitted(run, calls, run.next_leg_id, then, leg=leg, is_detached=turn.is_detached)

    # A new run.

    async def _begin(
        self,
        turn: Turn,
        model: Model,
        found: Found,
        splice: Splice,
        superseded: Run | None,
    ) -> Admitted:
        session, new = found.session, splice.new
        draft = Draft(session, *found.begin)
        miss_reason = _lead_in(draft, turn, splice, found)
        options = await self._options.of(turn, model, session, miss_reason)
        check_length(model.codec, (item.text for item in new), model.context)
        await check_images(model.codec, new)
        options = await held(model, options, turn)
        ended = None if superseded is None else await self._runs.closing(superseded, draft, RunTrigger.SUPERSEDE)
        draft.add(stand_ins(draft.items, new, "the client went on"))
        draft.add(new)
        options, whole = await _read(turn, model, options, draft)
        if options.miss_reason is None and whole.miss_reason is not None:
            options = replace(options, miss_reason=whole.miss_reason)
        extend(draft, whole)
        draft.mark_turns(draft.kept)
        run = self._run(turn, model, draft, options, len(new), whole)
        self._let_run(draft, turn, run)
        # A request that is a whole history has brought it all.
        first_item = int(turn.is_instructed) if splice.is_whole else run.record.first_item
        leg = self._leg(turn, session, run, first_item, len(draft.items))
        saved: list[Beside] = [SaveRun(run.record), *_beginning(leg), *self._keys.saving(turn, run.id)]
        with self._runs.unsettling(run, *([] if superseded is None else [superseded])):
            await self._services.directory.commit(draft, *saved)
        if superseded is not None and ended is not None:
            self._runs.closed(superseded, ended)
        return Admitted(run, [], run.next_leg_id, prompt=whole.settled(), leg=leg, is_detached=turn.is_detached)

    def _leg(
        self,
        turn: Turn,
        session: Session,
        run: Run,
        first_item: int,
        first_said: int,
        then: Sequence[Item] = (),
    ) -> LegRecord | None:
        """The leg that the turn begins, where its client can ask for it again."""
        if turn.keep_as is None or not session.stored:
            return None
        return LegRecord(
            id=run.next_leg_id,
            run_id=run.id,
            session_uid=session.uid,
            principal=turn.principal.id,
            model=run.model,
            first_item=first_item,
            first_said=first_said,
            created_at=self._services.clock(),
            request=turn.keep_as.request,
            progress=at_begin(then) if turn.is_detached else None,
        )

    def _let_run(self, draft: Draft, turn: Turn, run: Run) -> None:
        """The session's row with its open run. A session that its client names is an explicit one from then on."""
        draft.save()
        draft.ahead.open_run = run.id
        draft.ahead.hint = turn.hint or draft.ahead.hint
        if draft.ahead.server_tools is None:
            draft.ahead.server_instructions = self._options.server_instructions(draft.session)
            draft.ahead.server_tools = self._options.server_tools(draft.session)
        if turn.session_id is not None:
            draft.ahead.implicit, draft.ahead.expires_at = False, None

    def _run(self, turn: Turn, model: Model, draft: Draft, options: RunOptions, new: int, whole: Prompt) -> Run:
        now, session = self._services.clock(), draft.session
        record = RunRecord(
            id=f"run_{new_hex()}",
            session_uid=session.uid,
            principal=turn.principal.id,
            model=model.id,
            status=RunStatus.RUNNING,
            created_at=now,
            updated_at=now,
            first_item=len(draft.items) - new,
            options=options.dump(),
            usage={},
            input_digest=turn.request_items.digest,
        )
        run = Run(record, session.id, stored=session.stored)
        run.keep_options(options)
        run.ledger_tokens = whole.total - len(whole.opening)
        run.computed_before = whole.computed_before
        return run


def _beginning(leg: LegRecord | None) -> list[BeginLeg]:
    return [] if leg is None else [BeginLeg(leg)]


def _take(run: Run, calls: list[PendingCall], fresh: Sequence[tuple[PendingCall, CallRecord]]) -> None:
    """Results are committed: the calls have them."""
    for pending, record in fresh:
        pending.record = record
    run.pending = calls


def _lead_in(draft: Draft, turn: Turn, splice: Splice, found: Found) -> str | None:
    """Let the draft have what comes before the turn's new items; why not all of its tokens are those that were read."""
    draft.cut(splice.keep)
    if found.is_named:
        return "the instructions are others" if draft.instruct(turn.instructions) else None
    if not splice.keep:
        draft.ahead.instructed = turn.is_instructed
    return splice.miss_reason


async def _read(turn: Turn, model: Model, options: RunOptions, draft: Draft) -> tuple[RunOptions, Prompt]:
    """What the model is to read, without tools that nobody has asked for where it does not fit with them.

    Raises:
        ContextTooLong: it does not fit.
    """
    session, keep, items = draft.session, draft.kept, draft.items
    codec, begun = options.codec_of(model.codec), None if options.prefill is None else options.prefill.item
    whole = await read(codec, options.tools, session.ledgers, keep, items, begun)
    too_long = "the conversation does not fit the context with the server's {} default tools"
    bare = without_default_tools(options, turn, too_long) if whole.total >= model.context else None
    if bare is not None:
        options, whole = bare, await read(codec, (), session.ledgers, keep, items, begun)
    if whole.total >= model.context:
        raise ContextTooLong(whole.total, model.context, _fork_point(session, keep, whole, model))
    return options, whole


def _fork_point(session: Session, keep: int, whole: Prompt, model: Model) -> int | None:
    """The latest turn before which a fork leaves room for what is new and an answer."""
    sizes = [*(len(span) for span in whole.spans), len(whole.opening)]
    ledger = session.ledgers.get(whole.fingerprint)
    offsets = [] if ledger is None else ledger.offsets[: whole.kept]
    at = whole.known.length
    for size in sizes[: keep - whole.kept]:
        offsets.append(at)
        at += size
    fresh = whole.total - at + ANSWER_TOKENS
    for place in range(keep - 1, 0, -1):
        if isinstance(session.items[place], UserItem) and offsets[place] + fresh < model.context:
            return place
    return None


def _leading_results(items: Sequence[Item]) -> list[ToolResultItem]:
    results: list[ToolResultItem] = []
    for item in items:
        if not isinstance(item, ToolResultItem):
            break
        results.append(item)
    return results

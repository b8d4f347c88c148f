"""One leg of a run: rounds and calls, from a start or an answer to a pause, up to the next pause or the end.

Commit points: (a), the run and its input, is the runner's, before a leg begins. Here are (b) a round with its tokens
and the calls that it begins, (c) each result, (d) the pause and (e) the end, committed before the client is told.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

import anyio

from tenuto.errors import ShuttingDown, TenutoError
from tenuto.pipelines.base import GrammarSource, ToolChoice
from tenuto.runtime.engine.messages import Reading, Round, RoundUsage, StopCause
from tenuto.runtime.engine.stops import StopStrings
from tenuto.runtime.engine.stream import RoundStream
from tenuto.runtime.loop.calls import CallRunner
from tenuto.runtime.loop.events import RoundEnded, RunDone, RunPaused
from tenuto.runtime.loop.ledgers import Prompt, add_span, extend, prompt
from tenuto.runtime.loop.models import Model
from tenuto.runtime.loop.pending import PendingCall, finished, pending_calls, stand_in
from tenuto.runtime.loop.policy import Policy
from tenuto.runtime.loop.room import fit_all
from tenuto.runtime.loop.round import Outcome, RoundReader
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.sharing import SharedPrefixes
from tenuto.runtime.loop.text import TextStream
from tenuto.runtime.metrics import Metrics
from tenuto.sessions.changes import AddItems, Change, MarkTurns, SavePause, SaveRun, SaveSession
from tenuto.sessions.directory import Directory
from tenuto.sessions.items import Item
from tenuto.sessions.records import CallStatus, PauseReason, PauseRecord, PauseStatus, RunStatus
from tenuto.sessions.session import Session
from tenuto.tools.approvals import Permission
from tenuto.tools.registry import Registry

log = logging.getLogger(__name__)

CANCEL_WAIT_S = 30.0
"""How long a cancelled round may take to stop, which is one step of the engine."""


@dataclass(frozen=True, slots=True)
class Expiries:
    """How long a pause waits, in seconds."""

    client_tool_s: float = 24 * 3600.0
    approval_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class House:
    """What every run uses and none owns."""

    directory: Directory
    registry: Registry
    policy: Policy
    metrics: Metrics
    expiries: Expiries
    clock: Callable[[], float] = time.time
    """Seconds since the epoch."""
    shared_prefixes: SharedPrefixes = field(default_factory=SharedPrefixes)


@dataclass(slots=True)
class Leg:
    """Drives a run for one leg. Event-loop thread only; nobody else changes the session while a leg is under way.

    `calls` are those of the session's last round that have not all been answered. `reserved`: a place in the engine's
    queue is kept for the first round.
    """

    house: House
    run: Run
    session: Session
    model: Model
    calls: list[PendingCall] = field(default_factory=list)
    then: tuple[Item, ...] = ()
    """What follows the calls' results."""
    rendered: Prompt | None = None
    """What the first round reads, where it has been rendered already."""
    reserved: bool = False
    _unsaved: list[Change] = field(default_factory=list)
    """What has changed in memory since the last commit."""
    _deadline: float = 0.0
    _last_round: str | None = None
    """Why the next round is the last, once that is so."""
    _seen: set[tuple[tuple[str, str, str], ...]] = field(default_factory=set)
    _engine_tokens: int = -1
    """How many tokens the sequence had when this leg's last round stopped."""
    _prompt: Prompt | None = None
    _stream: RoundStream | None = None
    _reader: RoundReader | None = None

    @property
    def _sequence(self) -> str:
        return f"{self.session.uid}/{self.model.id}"

    async def drive(self) -> None:
        """Go on until the run waits or has ended. What goes wrong ends the run; only cancellation passes through."""
        self._deadline = anyio.current_time() + self.run.options.deadline_s
        try:
            while await self._settle_calls() and await self._round():
                pass
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._cancelled()
            raise
        except ShuttingDown:
            await self._break_off(RunStatus.INTERRUPTED, "interrupted", "the server is stopping", ShuttingDown.code)
        except TenutoError as error:
            log.warning("run %s failed: %s", self.run.id, error)
            await self._break_off(RunStatus.FAILED, "error", str(error), error.code)
        except Exception:
            log.exception("run %s failed", self.run.id)
            await self._break_off(RunStatus.FAILED, "error", "an internal error; the server's log has it", "internal")
        finally:
            self._give_back_place()

    # A round.

    async def _round(self) -> bool:
        """Let the model speak once. False where that ended the run."""
        options = self.run.options
        items = self.session.items
        self._prompt, self.rendered = self.rendered, None
        if self._prompt is None:
            self._prompt = prompt(self.model.codec, options.tools, self.session.ledgers, len(items), items)
        tokens = min(options.max_tokens - self._spent(), self.model.context - self._prompt.total)
        if tokens <= 0:
            await self._end(RunStatus.INCOMPLETE, "length")
            return False
        self._unsaved += extend(self.session, self._prompt)
        self._begin_round(tokens)
        assert self._reader is not None
        assert self._stream is not None
        outcome = await self._reader.read(self._stream)
        self._keep_round(outcome)
        return await self._after_round(outcome)

    def _spent(self) -> int:
        return sum(usage.sampled for usage in self.run.rounds) - self.run.options.spent_before

    def _begin_round(self, tokens: int) -> None:
        assert self._prompt is not None
        options, codec, engine = self.run.options, self.model.codec, self.model.engine
        choice, grammar = self._grammar()
        number = len(self.run.rounds) + 1
        calls = bool(options.tools) and choice is not ToolChoice.NONE
        clients = len(self.run.snapshot().calls)
        text = TextStream(codec, StopStrings(options.stop))
        self._reader = RoundReader(self.run, number, codec.parser(calls=calls), text, clients)
        reading = Reading.CALLS if calls else Reading.TURN
        round = Round(tokens, options.sampling, codec.info.stop_tokens, options.stop, grammar, reading)
        whole = self._prompt.whole()
        self._give_back_place()
        if engine.holds(self._sequence, self._engine_tokens):
            self._stream = engine.resume(self._sequence, self._engine_tokens, whole[self._engine_tokens :], round)
        else:
            had = self._prompt.had if self.run.rounds else self.run.had
            whose = self.session.principal
            self._stream = engine.submit(self._sequence, whole, round, had, principal=whose, named=self._named())

    def _named(self) -> int:
        assert self._prompt is not None
        ledger = self.session.ledgers[self._prompt.fingerprint]
        return self.house.shared_prefixes.of(ledger, self.session.items, self.model.codec, self.run.options.tools)

    def _grammar(self) -> tuple[ToolChoice, GrammarSource | None]:
        options = self.run.options
        choice = options.choice
        if self._last_round is not None:
            choice = ToolChoice.NONE
        elif choice is ToolChoice.REQUIRED and len(self.run.rounds) + 1 != options.choice_round:
            choice = ToolChoice.AUTO  # what was required has been done
        if not options.tools:
            choice = ToolChoice.NONE
        tools = options.callable(choice)
        grammar = self.model.codec.grammar(tools, choice, parallel=options.parallel, answer=options.answer)
        return choice, grammar

    def _keep_round(self, outcome: Outcome) -> None:
        """The round becomes an item with its tokens, in memory; the next commit keeps it."""
        assert self._prompt is not None
        usage = outcome.usage
        if not self.run.rounds and self.run.options.miss_reason is not None:
            usage = replace(usage, miss_reason=self.run.options.miss_reason)
        span = (*self._prompt.opening, *outcome.sampled)
        self._unsaved.append(AddItems(self.session.uid, len(self.session.items), (outcome.item,)))
        self._unsaved.append(add_span(self.session, self._prompt.fingerprint, span))
        self.session.items.append(outcome.item)
        self._engine_tokens = self.run.ledger_tokens = len(self.session.ledgers[self._prompt.fingerprint].tokens)
        self.run.rounds.append(usage)
        self._stream = self._reader = None
        self._meter(usage)
        self.run.emit(RoundEnded(len(self.run.rounds), usage))

    def _meter(self, usage: RoundUsage) -> None:
        metrics, model = self.house.metrics, self.model.id
        for kind, count in (("computed", usage.computed), ("cached", usage.cached), ("sampled", usage.sampled)):
            metrics.tokens(model, kind, count)
        if usage.first_token_s is not None:
            if len(self.run.rounds) == 1:
                metrics.first_token(model, usage.first_token_s)
            else:
                metrics.resume(model, usage.first_token_s)

    async def _after_round(self, outcome: Outcome) -> bool:
        match outcome.cause:
            case StopCause.CANCELLED:  # nobody here asked for it: the engine is stopping
                raise ShuttingDown("the engine has stopped")
            case StopCause.LIMIT:
                self.run.drop_cut_calls()
                await self._end(RunStatus.INCOMPLETE, "length")
                return False
        if not outcome.item.calls:
            await self._end(RunStatus.COMPLETED, self._last_round or outcome.cause.value)
            return False
        self.calls = pending_calls(self.run.id, len(self.run.rounds), outcome.item, self.house.policy.repeatable)
        return True

    # Its calls.

    async def _settle_calls(self) -> bool:
        """Bring the calls of the last round to their results. False where the run waits or has ended."""
        if not self.calls:
            return True
        runner = CallRunner(
            self.run,
            self.session.uid,
            self.house.registry,
            self._commit,
            self._count_call,
            self._deadline,
            self.house.clock,
        )
        waiting = [call for call in self.calls if call.record.status is not CallStatus.FINISHED and call.call.server]
        ask = await self._make_or_refuse(runner, waiting)
        if ask is not None:
            await self._pause_for_approval(ask)
            return False
        missing = [call for call in self.calls if call.record.status is not CallStatus.FINISHED]
        if missing:
            await self._pause_for_client(missing)
            return False
        self.run.tool_rounds += any(call.call.server for call in self.calls)
        self._decide_last_round()
        return await self._append_results()

    async def _make_or_refuse(self, runner: CallRunner, waiting: Sequence[PendingCall]) -> PendingCall | None:
        """Make what may be made, refuse what may not; give the first call that a person must be asked about."""
        options = self.run.options
        if options.max_tool_rounds == 0:
            for pending in waiting:
                await runner.settle(pending, stand_in(pending.call, "not executed: max_tool_rounds is 0"), "not_run")
            return None
        ready: list[PendingCall] = []
        ask: PendingCall | None = None
        for pending in waiting:
            if pending.denial is not None:
                await runner.deny(pending, pending.denial)
                continue
            decision = self.house.policy.decide(
                pending.call.name,
                request=options.permission,
                can_answer=options.can_answer,
                remembered=pending.call.name in self.session.approved,
            )
            if pending.approved or decision.permission is Permission.AUTO:
                ready.append(pending)
            elif decision.permission is Permission.DENY:
                await runner.deny(pending, decision.reason)
            elif ask is None:
                ask = pending
        if ready:
            await runner.make(ready)
        return ask

    def _decide_last_round(self) -> None:
        made = tuple((c.call.name, c.call.arguments, c.result.text) for c in self.calls if c.result is not None)
        if self.run.tool_rounds >= self.run.options.max_tool_rounds and any(c.call.server for c in self.calls):
            self._last_round = "max_tool_rounds"
        elif made in self._seen:
            self._last_round = "repeat"
        elif anyio.current_time() >= self._deadline:
            self._last_round = "deadline"
        self._seen.add(made)

    async def _append_results(self) -> bool:
        """All results are there: they become items, in call order, each with what the model gets to read of it."""
        results = [call.result for call in self.calls if call.result is not None]
        not_run = all(call.call.server for call in self.calls) and self.run.options.max_tool_rounds == 0
        shown, fits = await fit_all(self.model.codec, results, self.model.context - self.run.ledger_tokens)
        self._append([*shown, *self.then])
        self.calls, self.then = [], ()
        if not_run:
            await self._end(RunStatus.COMPLETED, "max_tool_rounds")
        elif not fits:
            await self._end(RunStatus.INCOMPLETE, "length")
        return fits and not not_run

    def _append(self, items: Sequence[Item]) -> None:
        self._unsaved.append(AddItems(self.session.uid, len(self.session.items), tuple(items)))
        self.session.items.extend(items)

    def _count_call(self, name: str, status: str) -> None:
        found = self.house.registry.find(name)
        if found is not None:
            self.house.metrics.tool_call(found.server, name, status)

    # Pauses.

    async def _pause_for_approval(self, pending: PendingCall) -> None:
        now = self.house.clock()
        record = PauseRecord(
            id=f"appr_{uuid4().hex[:24]}",
            run_id=self.run.id,
            session_uid=self.session.uid,
            principal=self.run.record.principal,
            reason=PauseReason.APPROVAL,
            call_id=pending.call.id,
            tool=pending.call.name,
            arguments=pending.call.arguments,
            status=PauseStatus.OPEN,
            created_at=now,
            expires_at=now + self.house.expiries.approval_s,
        )
        event = RunPaused(
            PauseReason.APPROVAL, pending.record.round, (pending.call,), record.expires_at, pause_id=record.id
        )
        self.run.pause = record
        await self._pause(event, SavePause(record))

    async def _pause_for_client(self, missing: Sequence[PendingCall]) -> None:
        calls = tuple(pending.call for pending in missing)
        expires = self.house.clock() + self.house.expiries.client_tool_s
        await self._pause(RunPaused(PauseReason.CLIENT_TOOL, missing[0].record.round, calls, expires))

    async def _pause(self, event: RunPaused, *changes: Change) -> None:
        self.run.pending = self.calls
        from_calls = [pending.save() for pending in self.calls]
        await self._finish_leg(RunStatus.PAUSED, event, *from_calls, *changes)

    # Ends.

    async def _end(
        self, status: RunStatus, stop_reason: str, error: str | None = None, code: str | None = None
    ) -> None:
        self.session.open_run = None
        await self._finish_leg(status, RunDone(status, stop_reason, error, code))
        self._count_end(status)

    def _count_end(self, status: RunStatus) -> None:
        self.house.metrics.observe_run(self.model.id, status.value, self.house.clock() - self.run.created_at)

    async def _finish_leg(self, status: RunStatus, event: RunPaused | RunDone, *changes: Change) -> None:
        """Commit how the leg ended, then tell it."""
        now = self.session.updated_at = self.house.clock()
        self.run.finish_answer(event)
        record = replace(
            self.run.record,
            status=status,
            updated_at=now,
            usage=self.run.usage_json(),
            answer=self.run.answer_json(),
            reason=event.reason if isinstance(event, RunPaused) else None,
            expires_at=event.expires_at if isinstance(event, RunPaused) else None,
            stop_reason=event.stop_reason if isinstance(event, RunDone) else None,
            error=event.error if isinstance(event, RunDone) else None,
        )
        marks = MarkTurns(self.session, record.first_item)
        with anyio.CancelScope(shield=True):  # a leg that has come to its end is not cancelled any more
            await self._commit(*changes, SaveRun(record), SaveSession(self.session), marks)
        self.run.record = record
        self.run.emit(event)

    async def _cancelled(self) -> None:
        """The run was cancelled: stop the model, close the calls, keep what there is."""
        if self._stream is not None and self._reader is not None:
            self.model.engine.cancel(self._sequence)
            with anyio.move_on_after(CANCEL_WAIT_S) as waiting:
                outcome = await self._reader.read(self._stream)
                if outcome.sampled:
                    self._keep_round(replace(outcome, item=replace(outcome.item, incomplete=True, calls=())))
            if waiting.cancelled_caught:
                log.error("the round of run %s did not stop within %g s", self.run.id, CANCEL_WAIT_S)
        if self.run.cancelling:
            await self._break_off(RunStatus.CANCELLED, "cancelled", None, None)
        else:
            await self._break_off(RunStatus.INTERRUPTED, "interrupted", "the server is stopping", ShuttingDown.code)

    async def _break_off(self, status: RunStatus, stop_reason: str, error: str | None, code: str | None) -> None:
        """End the run before its time: calls without a result get one that says so."""
        self.run.drop_cut_calls()
        try:
            with anyio.CancelScope(shield=True):
                if self.calls:
                    await self._append_stand_ins(stop_reason)
                await self._end(status, stop_reason, error, code)
        except TenutoError as failure:  # the store is broken too: tell it, and forget what was not kept
            log.error("the end of run %s could not be kept: %s", self.run.id, failure)
            self.house.directory.discard(self.session)
            self.model.engine.release(self._sequence)
            self.run.record = replace(self.run.record, status=RunStatus.FAILED, error=str(failure))
            self.run.emit(RunDone(RunStatus.FAILED, "error", str(failure), failure.code))
            self._count_end(RunStatus.FAILED)

    async def _append_stand_ins(self, stop_reason: str) -> None:
        now = self.house.clock()
        for pending in self.calls:
            if pending.result is None:
                self._unsaved.append(finished(pending, stand_in(pending.call, _why(pending, stop_reason)), now))
        results = [pending.result for pending in self.calls if pending.result is not None]
        shown, _ = await fit_all(self.model.codec, results, self.model.context - self.run.ledger_tokens)
        self._append(shown)
        self.calls = []

    async def _commit(self, *changes: Change) -> None:
        unsaved, self._unsaved = self._unsaved, []
        try:
            await self.house.directory.commit(self.session, *unsaved, *changes)
        except TenutoError:  # nothing is kept, so the next commit must bring it; a cancelled wait takes nothing back
            self._unsaved = [*unsaved, *self._unsaved]
            raise

    def _give_back_place(self) -> None:
        if self.reserved:
            self.reserved = False
            self.model.engine.unreserve()


def _why(pending: PendingCall, stop_reason: str) -> str:
    if pending.record.status is CallStatus.STARTED:
        return f"{stop_reason}; it may have had an effect"
    return f"not executed: the run was {stop_reason}" if stop_reason != "error" else "not executed: the run failed"

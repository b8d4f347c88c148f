"""One leg of a run: rounds and calls, from a start or an answer to a pause, up to the next pause or the end.

What is to be kept goes through `LegCommits`, before the client is told.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import anyio

from tenuto.errors import GenerationFailed, ShuttingDown, TenutoError
from tenuto.pipelines.base import GrammarSource, ToolChoice
from tenuto.runtime.engine.messages import Reading, Round, RoundUsage, StopCause
from tenuto.runtime.engine.stops import StopStrings
from tenuto.runtime.loop.calls import CallRunner
from tenuto.runtime.loop.engine_client import Place
from tenuto.runtime.loop.events import RoundEnded, StopReason, ToolStatus
from tenuto.runtime.loop.ledgers import Prompt, extend, read
from tenuto.runtime.loop.leg_commits import LegCommits
from tenuto.runtime.loop.models import Model
from tenuto.runtime.loop.open_round import OpenRound
from tenuto.runtime.loop.pending import PendingCall, closing, pending_calls, results_of, stand_in
from tenuto.runtime.loop.room import fit_all
from tenuto.runtime.loop.round import Outcome, RoundReader
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.run_states import RunTrigger
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.text import TextStream
from tenuto.sessions.items import Item
from tenuto.sessions.records import CallStatus
from tenuto.sessions.session import Session
from tenuto.tools.approvals import Permission

logger = logging.getLogger(__name__)

CANCEL_WAIT_S = 30.0
"""How long a cancelled round may take to stop, which is one step of the engine."""


@dataclass(slots=True)
class Leg:
    """Drives a run for one leg. Event-loop thread only; nobody else changes the session while a leg is under way.

    `calls` are those of the session's last round that have not all been answered. `place` is the first round's in the
    engine's queue, where it has been reserved.
    """

    services: Services
    run: Run
    session: Session
    model: Model
    calls: list[PendingCall] = field(default_factory=list)
    then: tuple[Item, ...] = ()
    """What follows the calls' results."""
    rendered: Prompt | None = None
    """What the first round reads, where it has been rendered already."""
    place: Place | None = None
    _kept: LegCommits = field(init=False)
    _deadline: float = 0.0
    _last_round: StopReason | None = None
    """Why the next round is the last, once that is so."""
    _seen: set[tuple[tuple[str, str, str], ...]] = field(default_factory=set)
    _prompt: Prompt | None = None
    _opened: OpenRound | None = None
    _reader: RoundReader | None = None

    def __post_init__(self) -> None:
        self._kept = LegCommits(self.services, self.run, self.session)

    @property
    def _sequence(self) -> str:
        return f"{self.session.uid}/{self.model.id}"

    async def drive(self) -> None:
        """Go on until the run waits or has ended. What goes wrong ends the run; only cancellation passes through."""
        try:
            self._deadline = anyio.current_time() + self.run.options.deadline_s
            while await self._settle_calls() and await self._round():
                pass
        except anyio.get_cancelled_exc_class():
            if self.run.cancelling:
                await self._break_off(RunTrigger.CANCEL, StopReason.CANCELLED)
            else:
                await self._break_off(
                    RunTrigger.INTERRUPT, StopReason.INTERRUPTED, ShuttingDown("the server is stopping")
                )
            raise
        except ShuttingDown as error:
            await self._break_off(RunTrigger.INTERRUPT, StopReason.INTERRUPTED, error)
        except TenutoError as error:
            logger.warning("run %s failed: %s", self.run.id, error)
            await self._break_off(RunTrigger.FAIL, StopReason.ERROR, error)
        except Exception:
            logger.exception("run %s failed", self.run.id)
            await self._break_off(
                RunTrigger.FAIL, StopReason.ERROR, TenutoError("internal error; the server's log has the details")
            )
        finally:
            self._give_back_place()

    def _give_back_place(self) -> None:
        if self.place is not None:
            self.place.give_back()

    # A round.

    async def _round(self) -> bool:
        """Let the model speak once. False where that ended the run."""
        options = self.run.options
        items = self._kept.draft.items
        self._prompt, self.rendered = self.rendered, None
        if self._prompt is None:
            self._prompt = await read(self.model.codec, options.tools, self.session.ledgers, len(items), items)
        tokens = min(options.max_tokens - self._spent(), self.model.context - self._prompt.total)
        if tokens <= 0:
            await self._kept.end(RunTrigger.CUT, StopReason.LENGTH)
            return False
        extend(self._kept.draft, self._prompt)
        self._begin_round(tokens)
        assert self._reader is not None
        assert self._opened is not None
        outcome = await self._reader.read(self._opened)
        self._keep_round(outcome)
        return await self._after_round(outcome)

    def _spent(self) -> int:
        """What the model has said for the present request."""
        return sum(usage.sampled for usage in self.run.rounds[self.run.leg.first_round - 1 :])

    def _begin_round(self, tokens: int) -> None:
        assert self._prompt is not None
        options, codec, engine = self.run.options, self.model.codec, self.model.engine
        choice, grammar = self._grammar()
        number = len(self.run.rounds) + 1
        calls = bool(options.tools) and choice is not ToolChoice.NONE
        clients = len(self.run.leg.answer.calls)
        text = TextStream(codec, StopStrings(options.stop))
        self._reader = RoundReader(self.run, number, codec.parser(calls=calls), text, clients)
        reading = Reading.CALLS if calls else Reading.TURN
        round = Round(tokens, options.sampling, codec.info.stop_tokens, options.stop, grammar, reading)
        self._opened = engine.submit(
            self._sequence,
            self._prompt.fresh,
            round,
            self._prompt.computed_before if self.run.rounds else self.run.computed_before,
            principal=self.session.principal,
            place=self.place,
            named=self._named(),
            known=self._prompt.known,
            whole=partial(self._prompt.all_tokens, self.session.ledgers),
        )

    def _named(self) -> int:
        assert self._prompt is not None
        ledger = self.session.ledgers.get(self._prompt.fingerprint)
        if ledger is None:
            return 0
        return self.services.shared_prefixes.of(ledger, self.session.items, self.model.codec, self.run.options.tools)

    def _grammar(self) -> tuple[ToolChoice, GrammarSource | None]:
        options = self.run.options
        choice = options.choice
        if self._last_round is not None:
            choice = ToolChoice.NONE
        elif choice is ToolChoice.REQUIRED and len(self.run.rounds) + 1 != self.run.leg.first_round:
            choice = ToolChoice.AUTO  # what was required has been done
        if not options.tools:
            choice = ToolChoice.NONE
        tools = options.callable(choice)
        grammar = self.model.codec.grammar(tools, choice, parallel=options.parallel, answer=options.answer)
        return choice, grammar

    def _keep_round(self, outcome: Outcome) -> None:
        """The round becomes an item with its tokens, which the next commit keeps."""
        assert self._prompt is not None
        usage = outcome.usage
        if not self.run.rounds and self.run.options.miss_reason is not None:
            usage = replace(usage, miss_reason=self.run.options.miss_reason)
        self._kept.draft.add((outcome.item,))
        self._kept.draft.grow(self._prompt.fingerprint, [(*self._prompt.opening, *outcome.sampled)])
        self.run.ledger_tokens = self._prompt.total + len(outcome.sampled)
        self.run.rounds.append(usage)
        self._opened = self._reader = None
        self._observe(usage)
        self.run.emit(RoundEnded(len(self.run.rounds), usage))

    def _observe(self, usage: RoundUsage) -> None:
        """How long the round's first token took."""
        metrics, model = self.services.metrics, self.model.id
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
                await self._kept.end(RunTrigger.CUT, StopReason.LENGTH)
                return False
        if not outcome.item.calls:
            await self._kept.end(RunTrigger.COMPLETE, self._last_round or StopReason(outcome.cause.value))
            return False
        self.calls = pending_calls(self.run.id, len(self.run.rounds), outcome.item, self.services.policy.repeatable)
        return True

    # Its calls.

    async def _settle_calls(self) -> bool:
        """Bring the calls of the last round to their results. False where the run waits or has ended."""
        if not self.calls:
            return True
        runner = CallRunner(
            self.run,
            self.session.uid,
            self.services.registry,
            self._kept.commit,
            self._count_call,
            self._deadline,
            self.services.clock,
        )
        waiting = [call for call in self.calls if call.record.status is not CallStatus.FINISHED and call.call.server]
        ask = await self._make_or_refuse(runner, waiting)
        if ask is not None:
            await self._kept.pause_for_approval(ask, self.calls)
            return False
        missing = [call for call in self.calls if call.record.status is not CallStatus.FINISHED]
        if missing:
            await self._kept.pause_for_client(missing, self.calls)
            return False
        self.run.tool_rounds += any(call.call.server for call in self.calls)
        self._decide_last_round()
        return await self._append_results()

    async def _make_or_refuse(self, runner: CallRunner, waiting: Sequence[PendingCall]) -> PendingCall | None:
        """Make what may be made, refuse what may not; give the first call that a person must be asked about."""
        options = self.run.options
        if options.max_tool_rounds == 0:
            for pending in waiting:
                await runner.settle(
                    pending, stand_in(pending.call, "not executed: max_tool_rounds is 0"), ToolStatus.NOT_RUN
                )
            return None
        ready: list[PendingCall] = []
        ask: PendingCall | None = None
        for pending in waiting:
            if pending.denial is not None:
                await runner.deny(pending, pending.denial)
                continue
            decision = self.services.policy.decide(
                pending.call.name,
                request=options.permission_for(pending.call.name),
                can_answer=options.can_answer,
                remembered=self._is_remembered(pending.call.name),
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

    def _is_remembered(self, tool: str) -> bool:
        approved = self.session.approved
        return bool(approved) and self.services.policy.remembered_as(tool) in approved

    def _decide_last_round(self) -> None:
        made = tuple((c.call.name, c.call.arguments, c.result.text) for c in self.calls if c.result is not None)
        if self.run.tool_rounds >= self.run.options.max_tool_rounds and any(c.call.server for c in self.calls):
            self._last_round = StopReason.MAX_TOOL_ROUNDS
        elif made in self._seen:
            self._last_round = StopReason.REPEAT
        elif anyio.current_time() >= self._deadline:
            self._last_round = StopReason.DEADLINE
        self._seen.add(made)

    async def _append_results(self) -> bool:
        """All results are there: they become items, in call order, each with what the model gets to read of it."""
        results = [call.result for call in self.calls if call.result is not None]
        not_run = all(call.call.server for call in self.calls) and self.run.options.max_tool_rounds == 0
        shown, fits = await fit_all(self.model.codec, results, self.model.context - self.run.ledger_tokens)
        self._kept.draft.add([*shown, *self.then])
        self.calls, self.then = [], ()
        if not_run:
            await self._kept.end(RunTrigger.COMPLETE, StopReason.MAX_TOOL_ROUNDS)
        elif not fits:
            await self._kept.end(RunTrigger.CUT, StopReason.LENGTH)
        return fits and not not_run

    def _count_call(self, name: str, status: ToolStatus) -> None:
        found = self.services.registry.find(name)
        if found is not None:
            self.services.metrics.tool_call(found.server, name, status)

    # An end before its time.

    async def _break_off(self, trigger: RunTrigger, stop_reason: StopReason, error: TenutoError | None = None) -> None:
        """End the run before its time: the model stops, and calls without a result get one that says so."""
        with anyio.CancelScope(shield=True):
            try:
                await self._stop_round()
                self.run.drop_cut_calls()
                if self.calls:
                    await self._draft_stand_ins(stop_reason)
                await self._kept.end(trigger, stop_reason, error)
            except Exception as failure:
                self._lose_end(failure, error)

    async def _stop_round(self) -> None:
        """Stop the round that is under way, if there is one; what it has said is kept where it can be read."""
        opened, reader = self._opened, self._reader
        if opened is None or reader is None or opened.is_over:
            return
        opened.cancel()
        try:
            with anyio.fail_after(CANCEL_WAIT_S):
                outcome = await reader.read(opened)
        except TimeoutError:
            logger.error("the round of run %s did not stop within %g s", self.run.id, CANCEL_WAIT_S)
        except GenerationFailed as failure:
            logger.warning("what run %s had said when it was stopped is lost: %s", self.run.id, failure)
        except Exception:  # what broke the run off may break its reading too; it ends all the same
            logger.exception("what run %s had said when it was stopped is lost", self.run.id)
        else:
            if outcome.sampled:
                self._keep_round(replace(outcome, item=replace(outcome.item, incomplete=True, calls=())))

    async def _draft_stand_ins(self, why: str) -> None:
        results = results_of(self.calls, why)
        self._kept.draft.also(*closing(self.calls, results, self.services.clock()))
        shown, _ = await fit_all(self.model.codec, results, self.model.context - self.run.ledger_tokens)
        self._kept.draft.add(shown)
        self.calls = []

    def _lose_end(self, failure: Exception, cause: TenutoError | None) -> None:
        """How the run ended cannot be kept: its sequence may be ahead of the session, so the model forgets it."""
        self.model.engine.release(self._sequence)
        self._kept.lose_end(failure, cause)

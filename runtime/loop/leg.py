"""One leg of a run: rounds and calls, from a start or an answer to a pause, up to the next pause or the end.

What is to be kept goes through `LegCommits`, before the client is told.
"""

import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace

import anyio

from tenuto.errors import GenerationFailed, ShuttingDown, TenutoError
from tenuto.runtime.engine.messages import RoundUsage, StopCause
from tenuto.runtime.loop.broken_calls import may_tell, note
from tenuto.runtime.loop.calls import CallRunner
from tenuto.runtime.loop.engine_client import Place
from tenuto.runtime.loop.events import RoundEnded, StopReason, ToolStatus
from tenuto.runtime.loop.ledgers import Prompt, extend, read
from tenuto.runtime.loop.leg_commits import LegCommits
from tenuto.runtime.loop.models import Model
from tenuto.runtime.loop.open_round import OpenRound
from tenuto.runtime.loop.pending import LOST, PendingCall, closing, named, pending_calls, results_of, stand_in
from tenuto.runtime.loop.room import ANSWER_TOKENS, fit_all
from tenuto.runtime.loop.round import Outcome, RoundReader
from tenuto.runtime.loop.round_start import NOTHING_SAID, RoundStarter
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.run_states import RunTrigger
from tenuto.runtime.loop.run_tools import RunTools
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.unfinished import Progress, RoundStart, Said, weights_of
from tenuto.runtime.loop.variables import with_variables
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
    progress: Progress = field(default_factory=Progress)
    said: Said | None = None
    """What the first round has said already, where it began in an earlier process; `rendered` is what it read."""
    turn: AbstractAsyncContextManager[None] = field(default_factory=nullcontext)
    """Entered when it may go on, where an earlier process has begun it."""
    _kept: LegCommits = field(init=False)
    _tools: RunTools = field(init=False)
    _starter: RoundStarter = field(init=False)
    _deadline: float = 0.0
    _prompt: Prompt | None = None
    _opened: OpenRound | None = None
    _reader: RoundReader | None = None

    def __post_init__(self) -> None:
        self._kept = LegCommits(self.services, self.run, self.session, self.progress)
        self._tools = RunTools(self.services, self.run, session=self.session)
        self._starter = RoundStarter(self.services, self.run, self.session, self.model)

    async def drive(self) -> None:
        """Go on until the run waits or has ended. What goes wrong ends the run; only cancellation passes through."""
        try:
            async with self.turn:
                self._deadline = anyio.current_time() + self.run.options.deadline_s
                while await self._settle_calls() and await self._round():
                    pass
        except anyio.get_cancelled_exc_class():
            if self.run.cancelling:
                await self._break_off(RunTrigger.CANCEL, StopReason.CANCELLED)
            elif self.run.leg.is_recoverable:
                self._leave()
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
            codec = options.codec_of(await with_variables(self.model.codec, options.variables))
            begun = options.prefill_of(len(self.run.rounds) + 1)
            turn = None if begun is None else begun.item
            self._prompt = await read(codec, options.tools, self.session.ledgers, len(items), items, turn)
        tokens = min(options.max_tokens - self._spent(), self.model.context - self._prompt.total)
        if tokens <= 0:
            await self._kept.end(RunTrigger.CUT, StopReason.LENGTH)
            return False
        extend(self._kept.draft, self._prompt)
        outcome = await self._speak(self._prompt, tokens)
        self._keep_round(outcome)
        return await self._after_round(outcome)

    async def _speak(self, prompt: Prompt, tokens: int) -> Outcome:
        """Let the model say at most so many tokens after a prompt. A round that goes on after a crash is kept so that
        it can, before any of its tokens."""
        said, self.said = self.said, None
        is_last = self.progress.last_round is not None
        await self._starter.prepare(self._tools.found(self._kept.draft.items), is_last=is_last)
        if said is None and self.run.leg.is_recoverable:
            before = prompt.computed_before if self.run.rounds else self.run.computed_before
            weights = weights_of(self.model)
            await self._kept.begin_round(RoundStart(prompt.fingerprint, prompt.opening, before, weights))
        opened, reader = self._begin(prompt, tokens, said or NOTHING_SAID)
        return await reader.read(opened)

    def _begin(self, prompt: Prompt, tokens: int, said: Said) -> tuple[OpenRound, RoundReader]:
        is_last = self.progress.last_round is not None
        found = self._tools.found(self._kept.draft.items)
        opened, reader = self._starter.begin(prompt, tokens, self.place, is_last=is_last, found=found, said=said)
        self._opened, self._reader = opened, reader
        self.run.leg.open = reader.sampled
        return opened, reader

    def _spent(self) -> int:
        """What the model has said for the present request."""
        return sum(usage.sampled for usage in self.run.request_rounds)

    def _keep_round(self, outcome: Outcome) -> None:
        """The round becomes an item with its tokens, which the next commit keeps."""
        assert self._prompt is not None
        why = self._prompt.miss_reason or (None if self.run.rounds else self.run.options.miss_reason)
        usage = outcome.usage if why is None else replace(outcome.usage, miss_reason=why)
        self._kept.draft.add((outcome.item,))
        self._kept.draft.grow(self._prompt.fingerprint, [(*self._prompt.opening, *outcome.sampled)])
        self.run.leg.close_round()
        self.progress.start = None
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
            if await self._tell_broken(outcome):
                return True
            await self._kept.end(RunTrigger.COMPLETE, self.progress.last_round or StopReason(outcome.cause.value))
            return False
        self.calls = pending_calls(self.run.id, len(self.run.rounds), outcome.item, self._tools.repeatable)
        return True

    async def _tell_broken(self, outcome: Outcome) -> bool:
        """Where the round has a call that could not be read: tell the model, if it may, and whether it was told."""
        run, items = self.run, self._kept.draft.items
        if outcome.broken is None or outcome.cause is not StopCause.END or self.progress.last_round is not None:
            return False
        if not may_tell(run.options, items[run.record.first_item :]) or anyio.current_time() >= self._deadline:
            return False
        said = note(outcome.broken)
        left = self.model.context - run.ledger_tokens - len(self.model.codec.tokenize(said.text))
        if min(run.options.max_tokens - self._spent(), left) < ANSWER_TOKENS:
            return False
        self._kept.draft.add((said,))
        await self._kept.commit()
        return True

    # Its calls.

    async def _settle_calls(self) -> bool:
        """Bring the calls of the last round to their results. False where the run waits or has ended."""
        if not self.calls:
            return True
        of, services = self.run, self.services
        runner = CallRunner(
            of, self.session.uid, self._tools, self._kept.commit, services.held, self._deadline, services.clock
        )
        waiting = [call for call in self.calls if call.record.status is not CallStatus.FINISHED and call.call.server]
        ask = await self._make_or_refuse(runner, waiting)
        if (asking := next((call for call in waiting if call.asks is not None), None)) is not None:
            await self._kept.pause_for_input(asking, self.calls)
            return False
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
            if runner.goes_on(pending):
                ready.append(pending)
                continue
            if pending.was_lost:
                await runner.settle(pending, stand_in(pending.call, LOST), ToolStatus.FAILED)
                continue
            decision = self._tools.decide(pending.call, self.session, self._kept.draft.items)
            if pending.approved or decision.permission is Permission.AUTO:
                ready.append(pending)
            elif decision.permission is Permission.DENY:
                await runner.deny(pending, decision.reason)
            elif ask is None:
                ask = pending
        if ready:
            self._starter.expect_results(self._tools.counted_as(one.call.name) for one in ready)
            await runner.make(ready)
        return ask

    def _decide_last_round(self) -> None:
        progress, made = self.progress, named([call for call in self.calls if call.result is not None])
        if self.run.tool_rounds >= self.run.options.max_tool_rounds and any(c.call.server for c in self.calls):
            progress.last_round = StopReason.MAX_TOOL_ROUNDS
        elif made in progress.seen:
            progress.last_round = StopReason.REPEAT
        elif anyio.current_time() >= self._deadline:
            progress.last_round = StopReason.DEADLINE
        progress.seen.add(made)

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

    def _leave(self) -> None:
        """The server is stopping, and the next process goes on with the leg: it is left as a crash would leave it."""
        if self._opened is not None:
            self._opened.cancel()
        self.run.leave()

    async def _stop_round(self) -> None:
        """Stop the round that is under way, if there is one; what it has said is kept where it can be read."""
        if self.said is not None and self.rendered is not None:  # in an earlier process, and its turn has not come yet
            self._prompt = self.rendered
            extend(self._kept.draft, self._prompt)
            self._begin(self._prompt, self.run.options.max_tokens - self._spent(), self.said)
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
        self.model.engine.release(self._starter.sequence)
        self._kept.lose_end(failure, cause)

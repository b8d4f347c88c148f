"""The engine's thread: takes commands, admits, feeds one batch a step, samples, and tells what happened.

It owns its backend and everything about it; nobody else touches them. A step that raises fails what was in it and
nothing else.
"""

import logging
import queue
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain

from tenuto.pipelines.backend import Row, RowFailed, Sampled, TokenLogprob
from tenuto.pipelines.base import Pipeline
from tenuto.runtime.engine.image_turns import ImageReady, ImageTurns
from tenuto.runtime.engine.image_turns import Turn as ImageTurn
from tenuto.runtime.engine.messages import (
    Cancel,
    Command,
    EngineStatus,
    Event,
    Failed,
    Read,
    Release,
    Report,
    Residency,
    RoundUsage,
    State,
    Stop,
    StopCause,
    Stopped,
    Submit,
    TokensSampled,
    Unknown,
)
from tenuto.runtime.engine.opening import open_round
from tenuto.runtime.engine.residency import CacheResidency
from tenuto.runtime.engine.roster import Roster
from tenuto.runtime.engine.scheduler import Budget, Candidate, Prefill, admit, in_turn, plan
from tenuto.runtime.engine.sequence import Sequence, SequenceTrigger
from tenuto.threads import Next

logger = logging.getLogger(__name__)


class Worker:
    """The body of an engine's thread. Only `commands` may be touched from outside."""

    def __init__(
        self, pipeline: Pipeline, host_cache_bytes: int, prefill_chunk: int, report: Callable[[Report], None]
    ) -> None:
        self.commands: queue.SimpleQueue[Command | ImageReady] = queue.SimpleQueue()
        self._taken = self._steps = self._computed = self._sampled = 0
        self._residency = CacheResidency(pipeline.backend, host_cache_bytes)
        self._pipeline = pipeline
        self._backend = pipeline.backend
        self._budget = Budget(pipeline.backend.info.batch_tokens, prefill_chunk)
        self._report_to = report
        self._status = EngineStatus()
        self._roster = Roster()
        self._events: list[Event] = []
        self._images = ImageTurns(pipeline.images, partial(self.commands.put, ImageReady()))
        self._awaits = False

    def work(self, wait: bool) -> Next:
        """Take what has come, and make one step; with nothing to do, `wait` for a command. It ends with Stop.

        A bug in here ends the thread, and with it all open rounds; the engine tells them.
        """
        try:
            if self._take_commands(wait):
                self._awaits = False
                placed = self._admit()
                self._report()  # what the commands brought about does not wait for the step
                if self._roster.prefilling or self._roster.decoding:
                    self._step()
                    self._awaits = self._awaits and not placed
                    self._report()
                return Next.MORE if self._has_work or not self.commands.empty() else Next.IDLE
            for sequence in self._roster:
                self._cancel(sequence)
                self._release(sequence)
        except Exception:
            logger.exception("the engine's thread ends")
            for sequence in self._roster:
                if sequence.open is not None:
                    sequence.open.sampler.close()
        self._report()
        self._backend.close()
        return Next.ENDED

    @property
    def _has_work(self) -> bool:
        """Whether there is something to do before a command comes, or an image."""
        return self._roster.has_work and not self._awaits

    # Commands.

    def _take_commands(self, wait: bool) -> bool:
        """Read what has come; `wait` only when there is nothing to do. False on Stop."""
        idle = not self._has_work
        while True:
            if self.commands.empty() and not (idle and wait):
                return True
            command = self.commands.get()
            idle = False
            if isinstance(command, ImageReady):
                continue
            self._taken += 1
            match command:
                case Submit():
                    self._submit(command)
                case Cancel():
                    if (sequence := self._roster.get(command.sequence)) is not None:
                        self._cancel(sequence)
                case Read():
                    self._widen(command)
                case Release():
                    if (sequence := self._roster.get(command.sequence)) is not None:
                        self._cancel(sequence)
                        self._release(sequence)
                case Stop():
                    return False

    def _submit(self, command: Submit) -> None:
        """Let a sequence wait for its round, if it has the tokens that are said to be known."""
        sequence = self._roster.get(command.sequence) or Sequence(command.sequence, command.principal)
        assert sequence.principal == command.principal, "a sequence does not change hands"
        if not sequence.tokens.begins_with(command.known):
            self._events.append(Unknown(command.sequence))
            return
        sequence.named = command.named
        self._roster.on(sequence, SequenceTrigger.SUBMIT)
        try:
            sequence.open = open_round(sequence, command, self._pipeline, self._residency)
        except Exception as error:  # what is refused fails its own round
            logger.exception("the round of sequence %s cannot begin", sequence.id)
            self._fail(sequence, error)

    def _widen(self, command: Read) -> None:
        """A reader has caught up by some tokens. A round that has ended meanwhile has no use for them."""
        sequence = self._roster.get(command.sequence)
        if sequence is None or sequence.open is None:
            return
        sequence.open.window += command.tokens
        if sequence.state is State.BLOCKED:
            self._roster.on(sequence, SequenceTrigger.UNBLOCK)

    # Admission.

    def _admit(self) -> bool:
        """Let those that wait in, as far as there are slots; whether anybody came in."""
        if not self._roster.waiting:
            return False
        idle = [one.id for one in self._residency.holders() if one.state in (State.PAUSED, State.BLOCKED)]
        candidates = [
            Candidate(s.id, s.slot is not None, self._residency.where(s) is Residency.HOST, s.principal)
            for s in self._roster.waiting.values()
        ]
        at_work = chain(self._roster.prefilling.values(), self._roster.decoding.values())
        waiting = in_turn(candidates, Counter(s.principal for s in at_work))
        copied = placed = False
        for admission in admit(waiting, self._residency.free_slots, idle):
            sequence = self._roster.waiting[admission.id]
            if copied and sequence.slot is None:
                continue  # it could need a copy too; a step has time for one, since the others stand still for it
            victim = None if admission.evict is None else self._roster.get(admission.evict)
            copied |= self._place(sequence, victim)
            placed = True
        return placed

    def _place(self, sequence: Sequence, victim: Sequence | None) -> bool:
        """Give a sequence its place and begin to feed it. True where a cache was copied."""
        assert sequence.open is not None
        residency = self._residency.where(sequence)
        try:
            placed = self._residency.place(sequence, victim)
        except Exception as error:  # what the backend raises while it moves a cache concerns this sequence alone
            logger.exception("the cache of sequence %s cannot be placed", sequence.id)
            self._fail(sequence, error)
            return True
        self._roster.on(sequence, SequenceTrigger.ADMIT)
        sequence.open.computed += placed.lent
        self._computed += placed.lent
        if sequence.open.admitted is None:  # else it was blocked, and goes on
            sequence.open.residency = residency
            sequence.open.reused = sequence.cached - placed.lent
            sequence.open.admitted = time.monotonic()
        return placed.copied

    # Steps.

    def _step(self) -> None:
        """Feed everybody, or a piece of an image to one of them: these take turns."""
        roster = self._roster
        at_images = [s for s in roster.prefilling.values() if s.next_piece is not None]
        text = [s for s in roster.prefilling.values() if s.next_piece is None]
        turn = self._images.choose(at_images, others=bool(text or roster.decoding))
        if turn is not None:
            self._feed_image(turn)
            return
        self._awaits = bool(at_images) and not (text or roster.decoding)
        prefills = [Prefill(s.id, s.text_run) for s in text]
        shares = plan(list(roster.decoding), prefills, self._budget, self._steps)
        served = [(roster.decoding.get(one.id) or roster.prefilling[one.id], one.tokens) for one in shares]
        if len(served) < len(roster.decoding) + len(prefills):
            for sequence, _ in served:  # who is served stands behind those that were not, as `plan` asks for
                roster.send_back(sequence)
        fed: list[tuple[Sequence, int]] = []
        rows: list[Row] = []
        for sequence, tokens in served:
            row = self._row(sequence, tokens)
            if row is not None:
                fed.append((sequence, tokens))
                rows.append(row)
        if rows:
            self._feed(fed, rows)

    def _feed_image(self, turn: ImageTurn) -> None:
        sequence, placed = turn.sequence, turn.sequence.next_piece
        if isinstance(turn.made, Exception):
            self._fail(sequence, turn.made)
        elif placed is not None and (row := self._row(sequence, placed.end - placed.begin)) is not None:
            self._roster.send_back(sequence)
            self._feed([(sequence, len(row.tokens))], [replace(row, embeddings=turn.made)])

    def _feed(self, fed: list[tuple[Sequence, int]], rows: list[Row]) -> None:
        try:
            samples = self._backend.collect(self._backend.launch(rows))
        except Exception as error:  # the caches of the batch are undefined now; all others are as they were
            logger.exception("a step over %d sequences failed", len(rows))
            for sequence, _ in fed:
                self._fail(sequence, error)
            return
        finally:
            self._steps += 1
        self._advance(fed, samples)

    def _row(self, sequence: Sequence, tokens: int) -> Row | None:
        assert sequence.open is not None
        assert sequence.slot is not None
        start = sequence.cached
        if tokens < sequence.pending:
            return Row(sequence.slot, start, sequence.tokens[start : start + tokens])
        try:
            constraint = sequence.open.constraint
            mask = None if constraint is None else constraint.mask()
        except Exception as error:  # a grammar that fails is its own sequence's affair
            logger.exception("the grammar of sequence %s failed", sequence.id)
            self._fail(sequence, error)
            return None
        return Row(sequence.slot, start, sequence.tokens[start:], sequence.open.sampler, mask)

    def _advance(self, fed: list[tuple[Sequence, int]], samples: Sampled) -> None:
        now = time.monotonic()
        for (sequence, tokens), sample in zip(fed, samples, strict=True):
            sequence.cached += tokens
            assert sequence.open is not None
            if sequence.state is State.PREFILLING:
                sequence.open.computed += tokens
                self._computed += tokens
            if sample is None:
                continue
            if isinstance(sample, RowFailed):
                logger.error("sampling for sequence %s failed", sequence.id, exc_info=sample.error)
                self._fail(sequence, sample.error)
                continue
            if sequence.state is State.PREFILLING:
                self._roster.on(sequence, SequenceTrigger.READ)
                if sequence.open.first_token is None:
                    sequence.open.first_token = now
            self._take(sequence, sample)

    def _take(self, sequence: Sequence, sample: int | TokenLogprob) -> None:
        """A token has been sampled: keep it, tell it, and stop where it says so."""
        opened = sequence.open
        assert opened is not None
        token, logprobs = (sample, ()) if isinstance(sample, int) else (sample.token, (sample,))
        sequence.tokens.append(token)
        opened.sampled += 1
        opened.window -= 1
        self._sampled += 1
        self._events.append(TokensSampled(sequence.id, (token,), logprobs))
        try:
            if opened.constraint is not None:
                opened.constraint.accept(token)
        except Exception as error:  # as in _row
            logger.exception("the grammar of sequence %s failed", sequence.id)
            self._fail(sequence, error)
            return
        if token in opened.round.stop_tokens:
            self._stop(sequence, StopCause.END)
        elif opened.stops is not None and opened.stops.push(token):
            self._stop(sequence, StopCause.STOP_STRING)
        elif opened.sampled >= opened.round.max_tokens or len(sequence.tokens) >= self._backend.info.context:
            self._stop(sequence, StopCause.LIMIT)
        elif not opened.window:
            self._roster.on(sequence, SequenceTrigger.BLOCK)

    # Ends.

    def _stop(self, sequence: Sequence, cause: StopCause) -> None:
        self._roster.on(sequence, SequenceTrigger.STOP)
        matched = sequence.open.stops.matched if sequence.open is not None and sequence.open.stops is not None else None
        self._close(sequence, lambda usage: Stopped(sequence.id, cause, usage, matched))

    def _cancel(self, sequence: Sequence) -> None:
        if sequence.open is not None:
            self._roster.on(sequence, SequenceTrigger.CANCEL)
            self._close(sequence, lambda usage: Stopped(sequence.id, StopCause.CANCELLED, usage))

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        self._roster.on(sequence, SequenceTrigger.FAIL)
        self._close(sequence, lambda usage: Failed(sequence.id, f"{type(error).__name__}: {error}", usage))
        self._release(sequence)

    def _close(self, sequence: Sequence, event: Callable[[RoundUsage], Event]) -> None:
        """End the open round: free what belongs to it and tell; the cache stays."""
        opened, sequence.open = sequence.open, None
        self._residency.touch(sequence)
        sequence.computed_before = max(sequence.computed_before, sequence.cached)
        usage = RoundUsage() if opened is None else opened.usage(time.monotonic())
        if opened is not None:
            opened.sampler.close()
        self._events.append(event(usage))

    def _release(self, sequence: Sequence) -> None:
        self._roster.on(sequence, SequenceTrigger.RELEASE)
        try:
            self._residency.drop(sequence)
        except Exception:  # it is emptied again when it is used again
            logger.exception("the slot of sequence %s cannot be released", sequence.id)

    def _report(self) -> None:
        """Tell what has happened since the last report, if anything has."""
        status = EngineStatus(
            self._taken,
            self._has_work,
            self._steps,
            self._computed,
            self._sampled,
            self._roster.counts(),
            self._residency.cache_bytes(),
        )
        if self._events or status != self._status:
            events, self._events, self._status = self._events, [], status
            self._report_to(Report(events, status))

"""The engine's thread: takes commands, admits, feeds one batch a step, samples, and tells what happened.

It owns its backend and everything about it; nobody else touches them. A step that raises fails what was in it and
nothing else.
"""

import logging
import queue
import time
from collections import deque
from collections.abc import Callable, Iterable

from tenuto.errors import ContextTooLong, InvalidRequest
from tenuto.pipelines.base import Codec, Pipeline, Row, RowFailed, TokenLogprob
from tenuto.pipelines.base import Sampled as Samples
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
    Sampled,
    State,
    Stop,
    StopCause,
    Stopped,
    Submit,
    Unknown,
)
from tenuto.runtime.engine.residency import CacheResidency
from tenuto.runtime.engine.scheduler import Budget, Candidate, Prefill, Share, admit, plan
from tenuto.runtime.engine.sequence import Happening, OpenRound, Sequence
from tenuto.runtime.engine.stops import Stops
from tenuto.sessions.tokens import Tokens
from tenuto.threads import Next

log = logging.getLogger(__name__)

_DIGITS = 6
"""Figures are told to the microsecond."""


class Worker:
    """The body of an engine's thread. Only `commands` may be touched from outside."""

    def __init__(
        self, pipeline: Pipeline, host_cache_bytes: int, prefill_chunk: int, report: Callable[[Report], None]
    ) -> None:
        self.commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._taken = self._steps = self._computed = self._sampled = 0
        self._residency = CacheResidency(pipeline.backend, host_cache_bytes)
        self._codec: Codec = pipeline.codec
        self._backend = pipeline.backend
        self._budget = Budget(pipeline.backend.info.batch_tokens, prefill_chunk)
        self._report_to = report
        self._status = EngineStatus()
        self._sequences: dict[str, Sequence] = {}
        self._waiting: deque[Sequence] = deque()  # in order of arrival
        self._prefilling: dict[str, Sequence] = {}
        self._decoding: dict[str, Sequence] = {}
        self._held: dict[str, Sequence] = {}  # until their readers have caught up
        self._events: list[Event] = []

    def _states(self) -> dict[State, int]:
        waiting = len(self._waiting) + len(self._held)
        prefilling, decoding = len(self._prefilling), len(self._decoding)
        paused = len(self._sequences) - waiting - prefilling - decoding
        return {
            State.WAITING: waiting,
            State.PREFILLING: prefilling,
            State.DECODING: decoding,
            State.PAUSED: paused,
        }

    def work(self, wait: bool) -> Next:
        """Take what has come, and make one step; with nothing to do, `wait` for a command. It ends with Stop.

        A bug in here ends the thread, and with it all open rounds; the engine tells them.
        """
        try:
            if self._take_commands(wait):
                self._admit()
                self._report()  # what the commands brought about does not wait for the step
                if self._prefilling or self._decoding:
                    self._step()
                    self._report()
                return Next.IDLE if self._is_idle and self.commands.empty() else Next.MORE
            for sequence in list(self._sequences.values()):
                self._cancel(sequence)
                self._release(sequence)
        except Exception:
            log.exception("the engine's thread ends")
            for sequence in self._sequences.values():
                if sequence.open is not None:
                    sequence.open.sampler.close()
        self._report()
        self._backend.close()
        return Next.ENDED

    @property
    def _is_idle(self) -> bool:
        return not (self._waiting or self._prefilling or self._decoding)

    # Commands.

    def _take_commands(self, wait: bool) -> bool:
        """Read what has come; `wait` only when there is nothing to do. False on Stop."""
        idle = self._is_idle
        while True:
            if self.commands.empty() and not (idle and wait):
                return True
            command = self.commands.get()
            self._taken += 1
            idle = False
            match command:
                case Submit():
                    self._submit(command)
                case Cancel():
                    if (sequence := self._sequences.get(command.sequence)) is not None:
                        self._cancel(sequence)
                case Read():
                    self._widen(command)
                case Release():
                    if (sequence := self._sequences.get(command.sequence)) is not None:
                        self._cancel(sequence)
                        self._release(sequence)
                case Stop():
                    return False

    def _submit(self, command: Submit) -> None:
        """Let a sequence wait for its round, if it has the tokens that are said to be known."""
        sequence = self._sequences.get(command.sequence) or Sequence(command.sequence, command.principal)
        assert sequence.principal == command.principal, "a sequence does not change hands"
        if not sequence.tokens.begins_with(command.known):
            self._events.append(Unknown(command.sequence))
            return
        self._sequences[sequence.id] = sequence
        sequence.named = command.named
        sequence.on(Happening.SUBMIT)
        self._waiting.append(sequence)
        round = command.round
        try:
            diverged = self._take_prompt(sequence, command)
            sequence.open = OpenRound(
                round=round,
                arrived=time.monotonic(),
                prompt=len(sequence.tokens),
                had=sequence.had,
                diverged=diverged,
                constraint=None if round.grammar is None else self._codec.constraint(round.grammar),
                stops=Stops(self._codec, round) if round.stop_strings else None,
                # The last, so that an error leaves none to close.
                sampler=self._backend.sampler(round.sampling, sequence.tokens),
            )
        except Exception as error:  # a prompt, grammar or sampler that is refused fails its own round
            log.exception("the round of sequence %s cannot begin", sequence.id)
            self._fail(sequence, error)

    def _take_prompt(self, sequence: Sequence, command: Submit) -> bool:
        """Give a sequence the tokens to go on from, and keep what of its cache they have use for.

        True where they go on otherwise than what had a cache.
        """
        new, known = self._checked(command), command.known.length
        tokens, context = known + len(new), self._backend.info.context
        if tokens > context:
            raise ContextTooLong(tokens, context)
        had, same = sequence.had, min(sequence.had, known)
        if had > known:
            same += sequence.tokens.copy(had, since=known).shared(new)
        sequence.tokens.cut(known)
        sequence.tokens.extend(new)
        sequence.had = max(same, min(command.had, tokens))
        self._residency.keep(sequence, same)
        return same < had

    def _checked(self, command: Submit) -> Tokens:
        """Refuse what would make a whole step invalid."""
        try:
            new = Tokens(command.tokens)
            if (new or command.known.length) and max(new, default=0) < self._codec.info.vocabulary:
                return new
        except (OverflowError, TypeError):
            pass
        raise InvalidRequest("a prompt has tokens, and each is in the vocabulary")

    def _widen(self, command: Read) -> None:
        """A reader has caught up by some tokens. A round that has ended meanwhile has no use for them."""
        sequence = self._sequences.get(command.sequence)
        if sequence is None or sequence.open is None:
            return
        sequence.open.window += command.tokens
        if self._held.pop(sequence.id, None) is not None:
            self._waiting.append(sequence)

    def _hold(self, sequence: Sequence) -> None:
        """Let a sequence wait until its reader has caught up."""
        sequence.on(Happening.HOLD)
        del self._decoding[sequence.id]
        self._held[sequence.id] = sequence

    # Admission.

    def _admit(self) -> None:
        if not self._waiting:
            return
        idle = (holder for holder in self._residency.holders() if self._is_at_rest(holder))
        paused = [holder.id for holder in idle]
        candidates = [
            Candidate(s.id, s.slot is not None, self._residency.where(s) is Residency.HOST) for s in self._waiting
        ]
        copied = False
        for admission in admit(candidates, self._residency.free_slots, paused):
            sequence = self._sequences[admission.id]
            if copied and sequence.slot is None:
                continue  # it could need a copy too; a step has time for one, since the others stand still for it
            victim = None if admission.evict is None else self._sequences[admission.evict]
            copied |= self._place(sequence, victim)

    def _is_at_rest(self, sequence: Sequence) -> bool:
        return sequence.state is State.PAUSED or sequence.id in self._held

    def _place(self, sequence: Sequence, victim: Sequence | None) -> bool:
        """Give a sequence its place and begin to feed it. True where a cache was copied."""
        assert sequence.open is not None
        residency = self._residency.where(sequence)
        try:
            placed = self._residency.place(sequence, victim)
        except Exception as error:  # what the backend raises while it moves a cache concerns this sequence alone
            log.exception("the cache of sequence %s cannot be placed", sequence.id)
            self._fail(sequence, error)
            return True
        self._waiting.remove(sequence)
        sequence.on(Happening.ADMIT)
        sequence.open.computed += placed.lent
        self._computed += placed.lent
        if sequence.open.admitted is None:  # else it was held, and goes on
            sequence.open.residency = residency
            sequence.open.held = sequence.cached - placed.lent
            sequence.open.admitted = time.monotonic()
        self._prefilling[sequence.id] = sequence
        return placed.copied

    # Steps.

    def _step(self) -> None:
        waiting_prefill = [Prefill(s.id, s.pending) for s in self._prefilling.values()]
        shares = plan(list(self._decoding), waiting_prefill, self._budget, self._steps)
        if len(shares) < len(self._decoding) + len(self._prefilling):
            self._send_back(shares)
        fed: list[tuple[Sequence, int]] = []
        rows: list[Row] = []
        for share in shares:
            sequence = self._sequences[share.id]
            row = self._row(sequence, share.tokens)
            if row is not None:
                fed.append((sequence, share.tokens))
                rows.append(row)
        if not rows:
            return
        try:
            samples = self._backend.collect(self._backend.launch(rows))
        except Exception as error:  # the caches of the batch are undefined now; all others are as they were
            log.exception("a step over %d sequences failed", len(rows))
            for sequence, _ in fed:
                self._fail(sequence, error)
            return
        finally:
            self._steps += 1
        self._advance(fed, samples)

    def _send_back(self, shares: Iterable[Share]) -> None:
        """Whoever is served stands behind those that were not, as `plan` asks for."""
        for share in shares:
            line = self._decoding if share.id in self._decoding else self._prefilling
            line[share.id] = line.pop(share.id)

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
            log.exception("the grammar of sequence %s failed", sequence.id)
            self._fail(sequence, error)
            return None
        return Row(sequence.slot, start, sequence.tokens[start:], sequence.open.sampler, mask)

    def _advance(self, fed: list[tuple[Sequence, int]], samples: Samples) -> None:
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
                log.error("sampling for sequence %s failed", sequence.id, exc_info=sample.error)
                self._fail(sequence, sample.error)
                continue
            if sequence.state is State.PREFILLING:
                sequence.on(Happening.READ)
                del self._prefilling[sequence.id]
                self._decoding[sequence.id] = sequence
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
        self._events.append(Sampled(sequence.id, (token,), logprobs))
        try:
            if opened.constraint is not None:
                opened.constraint.accept(token)
        except Exception as error:  # as in _row
            log.exception("the grammar of sequence %s failed", sequence.id)
            self._fail(sequence, error)
            return
        if token in opened.round.stop_tokens:
            self._stop(sequence, StopCause.END)
        elif opened.stops is not None and opened.stops.push(token):
            self._stop(sequence, StopCause.STOP_STRING)
        elif opened.sampled >= opened.round.max_tokens or len(sequence.tokens) >= self._backend.info.context:
            self._stop(sequence, StopCause.LIMIT)
        elif not opened.window:
            self._hold(sequence)

    # Ends.

    def _stop(self, sequence: Sequence, cause: StopCause) -> None:
        sequence.on(Happening.STOP)
        matched = sequence.open.stops.matched if sequence.open is not None and sequence.open.stops is not None else None
        self._close(sequence, lambda usage: Stopped(sequence.id, cause, usage, matched))

    def _cancel(self, sequence: Sequence) -> None:
        if sequence.open is not None:
            sequence.on(Happening.CANCEL)
            self._close(sequence, lambda usage: Stopped(sequence.id, StopCause.CANCELLED, usage))

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        sequence.on(Happening.FAIL)
        self._close(sequence, lambda usage: Failed(sequence.id, f"{type(error).__name__}: {error}", usage))
        self._release(sequence)

    def _close(self, sequence: Sequence, event: Callable[[RoundUsage], Event]) -> None:
        """End the open round: free what belongs to it and tell; the cache stays."""
        opened, sequence.open = sequence.open, None
        if sequence in self._waiting:
            self._waiting.remove(sequence)
        self._prefilling.pop(sequence.id, None)
        self._decoding.pop(sequence.id, None)
        self._held.pop(sequence.id, None)
        self._residency.touch(sequence)
        sequence.had = max(sequence.had, sequence.cached)
        if opened is not None:
            opened.sampler.close()
        self._events.append(event(_usage(opened)))

    def _release(self, sequence: Sequence) -> None:
        sequence.on(Happening.RELEASE)
        del self._sequences[sequence.id]
        try:
            self._residency.drop(sequence)
        except Exception:  # it is emptied again when it is used again
            log.exception("the slot of sequence %s cannot be released", sequence.id)

    def _report(self) -> None:
        """Tell what has happened since the last report, if anything has."""
        status = EngineStatus(
            self._taken,
            not self._is_idle,
            self._steps,
            self._computed,
            self._sampled,
            self._states(),
            self._residency.cache_bytes(),
        )
        if self._events or status != self._status:
            events, self._events, self._status = self._events, [], status
            self._report_to(Report(events, status))


def _usage(opened: OpenRound | None) -> RoundUsage:
    if opened is None:
        return RoundUsage()
    now = time.monotonic()
    return RoundUsage(
        prompt=opened.prompt,
        computed=opened.computed,
        cached=opened.held,
        new=opened.prompt - opened.had,
        sampled=opened.sampled,
        residency=opened.residency,
        miss_reason=_miss_reason(opened),
        waited_s=round((opened.admitted or now) - opened.arrived, _DIGITS),
        first_token_s=None if opened.first_token is None else round(opened.first_token - opened.arrived, _DIGITS),
        total_s=round(now - opened.arrived, _DIGITS),
    )


def _miss_reason(opened: OpenRound) -> str | None:
    """Why tokens that had a cache were computed again; one always is, to sample from."""
    if opened.admitted is None or opened.had <= opened.held + 1:
        return None
    return "diverged" if opened.diverged else "not_resident"

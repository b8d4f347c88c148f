"""The engine's thread: takes commands, admits, feeds one batch a step, samples, and tells what happened.

It owns its backend and everything about it; nobody else touches them. A step that raises fails what was in it and
nothing else.
"""

import logging
import queue
import time
from collections.abc import Callable
from functools import partial

from tenuto.pipelines.base import Pipeline
from tenuto.runtime.engine.disk_caches import PATIENCE_S, CacheDropped, DiskCaches
from tenuto.runtime.engine.drafting import Speculation
from tenuto.runtime.engine.ends import Ends
from tenuto.runtime.engine.image_turns import ImageReady, ImageTurns
from tenuto.runtime.engine.messages import (
    Admitted,
    Cancel,
    Command,
    EngineStatus,
    Event,
    Forget,
    Forgotten,
    Hint,
    Read,
    Release,
    Report,
    State,
    Stop,
    Submit,
    Unknown,
)
from tenuto.runtime.engine.opening import open_round
from tenuto.runtime.engine.planner import Planner
from tenuto.runtime.engine.residency import CacheLimits, CacheResidency
from tenuto.runtime.engine.returning import Returning
from tenuto.runtime.engine.roster import Roster
from tenuto.runtime.engine.scheduler import Budget
from tenuto.runtime.engine.sequence import Sequence, SequenceTrigger
from tenuto.runtime.engine.snapshots import SnapshotStore
from tenuto.runtime.engine.stepping import Stepper
from tenuto.runtime.engine.waits import Waits
from tenuto.threads import Next

logger = logging.getLogger(__name__)

LAST_S = 0.5
"""For the last caches to be copied out when the engine ends."""


class Worker:
    """The body of an engine's thread. Only `commands` and `abandon` may be touched from outside.

    `wake` is called on any thread when something has been put there from within.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        limits: CacheLimits,
        prefill_chunk: int,
        report: Callable[[Report], None],
        snapshots: SnapshotStore | None = None,
        prefill_slowdown: float | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        commands = self.commands = queue.SimpleQueue[Command | ImageReady | CacheDropped | None]()

        def put(what: CacheDropped | None) -> None:
            commands.put(what)
            wake()

        self._taken = 0
        self._waits = Waits()
        self._disk = DiskCaches(snapshots, pipeline.backend.info.bytes_per_token, put)
        self._residency = CacheResidency(pipeline.backend, limits, self._disk, self._waits)
        self._pipeline, self._backend = pipeline, pipeline.backend
        self._report_to = report
        self._status = EngineStatus()
        self._roster = Roster()
        budget = Budget(pipeline.backend.info.batch_tokens, prefill_chunk)
        self._planner = Planner(self._roster, self._residency, budget, prefill_slowdown)
        self._events: list[Event] = []
        self._returning = Returning(self._disk, self._residency, self._roster)
        self._ends = Ends(self._roster, self._residency, self._events.append)
        info = self._backend.info
        self._speculation = Speculation(info.drafts, pipeline.codec.info.vocabulary, info.context)
        self._stepper = Stepper(
            self._backend,
            self._planner,
            self._roster,
            self._ends,
            ImageTurns(pipeline.images, partial(self.commands.put, ImageReady())),
            self._speculation,
            self._events.append,
            self._disk.measures.computed,
        )
        self._awaits = False

    def work(self, wait: bool) -> Next:
        """Take what has come, and make one step; with nothing to do, `wait` for a command. It ends with Stop.

        A bug in here ends the thread, and with it all open rounds; the engine tells them.
        """
        if wait:
            self._disk.begin()
        try:
            if self._take_commands(wait):
                self._awaits = False
                self._returning.adopt()
                placed = self._admit()
                self._returning.bring_back(time.monotonic(), may_copy=not placed)
                self._report()  # what the commands brought about does not wait for the step
                if self._roster.prefilling or self._roster.decoding:
                    self._awaits = not self._stepper.step() and not placed
                    self._report()
                else:
                    self._awaits = self._returning.is_awaited
                is_busy = self._has_work or not self.commands.empty()
                while wait and not is_busy and self._returning.keep_one(time.monotonic()):
                    is_busy = not self.commands.empty()
                return Next.MORE if is_busy else Next.IDLE
            until = time.monotonic() + LAST_S
            while (now := time.monotonic()) < until and self._returning.keep_one(now, settled=False):
                pass
            for sequence in self._roster:
                self._ends.cancel(sequence)
                self._ends.release(sequence)
        except Exception:
            logger.exception("the engine's thread ends")
            for sequence in self._roster:
                if sequence.open is not None:
                    sequence.open.sampler.close()
        self._report()
        self._disk.close()
        self._backend.close()
        return Next.ENDED

    def abandon(self) -> None:
        """Nobody is there any more who could have caches forgotten: none are written from now on."""
        self._disk.abandon()

    @property
    def _has_work(self) -> bool:
        """Whether there is something to do before a command comes, an image, or a cache from the disk."""
        return self._roster.has_work and not self._awaits

    # Commands.

    def _take_commands(self, wait: bool) -> bool:
        """Read what has come; `wait` only when there is nothing to do. False on Stop."""
        idle = not self._has_work
        while True:
            if self.commands.empty() and not (idle and wait):
                return True
            try:
                command = self.commands.get(timeout=self._due_in())
            except queue.Empty:
                if self._awaits:
                    self._returning.give_up()
                return True
            idle = False
            if command is None or isinstance(command, ImageReady):
                continue
            if isinstance(command, CacheDropped):
                self._events.append(Forgotten(command.sequence, command.error))
                continue
            self._taken += 1
            if not self._obey(command):
                return False

    def _due_in(self) -> float | None:
        """After how many seconds there is something to do, though no command comes."""
        if self._awaits:
            return PATIENCE_S
        now = time.monotonic()
        due = (self._returning.due_in(now), self._disk.due_in(now))
        return min((seconds for seconds in due if seconds is not None), default=None)

    def _obey(self, command: Command) -> bool:
        """Carry a command out. False on Stop."""
        match command:
            case Submit():
                self._submit(command)
            case Cancel(sequence=id):
                self._ends.cancel_if_known(id)
            case Read():
                self._widen(command)
            case Release(sequence=id):
                self._release(id)
            case Hint():
                self._expect(command)
            case Forget(sequence=id, kept_as=name):
                self._release(id)
                self._disk.forget(id, name)
            case Stop():
                return False
        return True

    def _submit(self, command: Submit) -> None:
        """Let a sequence wait for its round, if it has the tokens that are said to be known."""
        sequence = self._roster.get(command.sequence) or Sequence(command.sequence, command.principal)
        assert sequence.principal == command.principal, "a sequence does not change hands"
        if not sequence.tokens.begins_with(command.known):
            self._events.append(Unknown(command.sequence))
            return
        sequence.named, sequence.kept_as = command.named, command.kept_as
        self._roster.on(sequence, SequenceTrigger.SUBMIT)
        self._waits.resumed(sequence, time.monotonic())
        self._returning.forget(sequence.id)
        try:
            sequence.open = open_round(sequence, command, self._pipeline, self._residency)
            self._returning.fetch(sequence)
        except Exception as error:  # what is refused fails its own round
            logger.exception("the round of sequence %s cannot begin", sequence.id)
            self._ends.fail(sequence, error)

    def _widen(self, command: Read) -> None:
        """A reader has caught up by some tokens. A round that has ended meanwhile has no use for them."""
        sequence = self._roster.get(command.sequence)
        if sequence is None or sequence.open is None:
            return
        sequence.open.window += command.tokens
        if sequence.state is State.BLOCKED:
            self._roster.on(sequence, SequenceTrigger.UNBLOCK)

    def _expect(self, hint: Hint) -> None:
        """A sequence is told to come back. Where it is not paused, it is back already, or gone."""
        sequence, now = self._roster.get(hint.sequence), time.monotonic()
        if sequence is not None and sequence.state is State.PAUSED:
            sequence.expected = self._waits.hinted(hint.expected_s, hint.spread_s, now)
            self._returning.expect(sequence, now)

    def _release(self, id: str) -> None:
        self._returning.forget(id)
        self._ends.forget(id)

    # Admission.

    def _admit(self) -> bool:
        """Let those that wait in, as far as there are slots; whether anybody came in."""
        if not self._roster.waiting:
            return False
        copied = placed = False
        for admission in self._planner.admissions():
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
        if victim is not None and victim.state is State.DECODING:  # in the background
            self._roster.on(victim, SequenceTrigger.INTERRUPT)
            self._planner.interrupted += 1
        try:
            placed = self._residency.place(sequence, victim)
        except Exception as error:  # what the backend raises while it moves a cache concerns this sequence alone
            logger.exception("the cache of sequence %s cannot be placed", sequence.id)
            self._ends.fail(sequence, error)
            return True
        self._roster.on(sequence, SequenceTrigger.ADMIT)
        self._planner.admitted(sequence)
        self._events.append(Admitted(sequence.id))
        sequence.open.computed += placed.lent
        self._stepper.computed += placed.lent
        if sequence.open.admitted is None:  # else it was blocked, and goes on
            sequence.open.residency = residency
            sequence.open.reused = sequence.cached - placed.lent
            sequence.open.admitted = time.monotonic()
            self._residency.tally.saved(placed.by, sequence.cached - placed.lent)
        return placed.copied

    # What is told.

    def _report(self) -> None:
        """Tell what has happened since the last report, if anything has."""
        status = EngineStatus(
            self._taken,
            self._has_work,
            self._stepper.steps,
            self._stepper.computed,
            self._stepper.sampled,
            self._speculation.drafted,
            self._speculation.accepted,
            self._roster.counts(),
            *self._residency.figures(),
            round(self._planner.bystanders.slowdown, 2),
            self._planner.interrupted,
            self._residency.tally.counts(self._disk.figures),
            self._backend.threads,
        )
        if self._events or status != self._status:
            events, self._status = self._events.copy(), status
            self._events.clear()
            self._report_to(Report(events, status))

"""A sequence's life: a table of (state, event) -> state, and what the engine knows of one sequence.

Everything that changes a sequence's state goes through `Sequence.on`; the diagram in docs/ is made from the table.
"""

from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum

from tenuto.pipelines.backend import Sampler
from tenuto.pipelines.base import Constraint
from tenuto.pipelines.images import Piece
from tenuto.runtime.engine.messages import WINDOW, MissReason, Residency, Round, RoundUsage, State
from tenuto.runtime.engine.snapshots.state import Restored
from tenuto.runtime.engine.speculation.guesses import Guesses
from tenuto.runtime.engine.stops import Stops
from tenuto.sessions.priority import Priority
from tenuto.sessions.tokens import Tokens

_DIGITS = 6
"""Figures are told to the microsecond."""


@dataclass(frozen=True, slots=True)
class Expected:
    """When a sequence is expected back, as was told at a time, on the engine's clock, and how many seconds earlier or
    later that may be."""

    since: float
    at: float
    spread_s: float


class SequenceTrigger(StrEnum):
    """What can happen to a sequence."""

    SUBMIT = "submit"
    ADMIT = "admit"
    READ = "read"
    BLOCK = "block"
    UNBLOCK = "unblock"
    INTERRUPT = "interrupt"
    """An interactive round needs its slot, and this one is in the background."""
    STOP = "stop"
    CANCEL = "cancel"
    FAIL = "fail"
    RELEASE = "release"


TRANSITIONS: dict[tuple[State, SequenceTrigger], State] = {
    # A new sequence is a paused one that holds nothing yet.
    (State.PAUSED, SequenceTrigger.SUBMIT): State.WAITING,
    (State.WAITING, SequenceTrigger.ADMIT): State.PREFILLING,
    (State.PREFILLING, SequenceTrigger.READ): State.DECODING,
    (State.DECODING, SequenceTrigger.BLOCK): State.BLOCKED,
    (State.BLOCKED, SequenceTrigger.UNBLOCK): State.WAITING,
    (State.DECODING, SequenceTrigger.INTERRUPT): State.WAITING,
    (State.DECODING, SequenceTrigger.STOP): State.PAUSED,
    (State.WAITING, SequenceTrigger.CANCEL): State.PAUSED,
    (State.PREFILLING, SequenceTrigger.CANCEL): State.PAUSED,
    (State.DECODING, SequenceTrigger.CANCEL): State.PAUSED,
    (State.BLOCKED, SequenceTrigger.CANCEL): State.PAUSED,
    (State.WAITING, SequenceTrigger.FAIL): State.FAILED,
    (State.PREFILLING, SequenceTrigger.FAIL): State.FAILED,
    (State.DECODING, SequenceTrigger.FAIL): State.FAILED,
    (State.PAUSED, SequenceTrigger.RELEASE): State.RELEASED,
    (State.FAILED, SequenceTrigger.RELEASE): State.RELEASED,
}


class IllegalTransition(Exception):
    """A bug: what happened cannot happen in this state. The state is unchanged."""


@dataclass(slots=True, eq=False)
class OpenRound:
    """The generation that a sequence is in, from its command to its stop."""

    round: Round
    arrived: float
    prompt: int
    computed_before: int
    """How many of the prompt's tokens had a cache when the sequence last stopped."""
    diverged: bool
    """Whether that cache held more, which is of no use to this prompt."""
    sampler: Sampler
    constraint: Constraint | None
    stops: Stops | None = None
    priority: Priority = Priority.INTERACTIVE
    guesses: Guesses = field(default_factory=Guesses)
    residency: Residency = Residency.NONE
    reused: int = 0
    """How many of the prompt's tokens had a cache among its principal's when the sequence was admitted."""
    admitted: float | None = None
    first_token: float | None = None
    computed: int = 0
    sampled: int = 0
    sampled_elsewhere: int = 0
    """How many of these before it was admitted last."""
    window: int = WINDOW
    """How many tokens it may still sample before its reader has read some."""

    @property
    def miss_reason(self) -> MissReason | None:
        """Why tokens that had a cache were computed again; one always is, to sample from."""
        if self.admitted is None or self.computed_before <= self.reused + 1:
            return None
        return MissReason.DIVERGED if self.diverged else MissReason.NOT_RESIDENT

    def usage(self, now: float) -> RoundUsage:
        """What it has cost."""
        return RoundUsage(
            prompt=self.prompt,
            computed=self.computed,
            cached=self.reused,
            new=self.prompt - self.computed_before,
            sampled=self.sampled,
            residency=self.residency,
            miss_reason=self.miss_reason,
            waited_s=round((self.admitted or now) - self.arrived, _DIGITS),
            first_token_s=None if self.first_token is None else round(self.first_token - self.arrived, _DIGITS),
            total_s=round(now - self.arrived, _DIGITS),
        )


@dataclass(frozen=True, slots=True)
class PlacedPiece:
    """A piece of an image, and where the tokens that stand for it begin and end."""

    begin: int
    end: int
    piece: Piece


@dataclass(slots=True, eq=False)
class Sequence:
    """One stream of tokens and where its cache is. Engine thread only.

    `tokens` are all; the first `cached` of them have a cache, in `slot` if that is set, else in host memory.
    Invariant: in a slot, the backend holds exactly `cached` tokens there, equal to `tokens[:cached]`.
    """

    id: str
    principal: str
    """Whose it is; its cache serves no other, but for a prefix that both of them name."""
    named: int = 0
    """The first so many of its tokens are that prefix."""
    kept_as: str = ""
    """The name under which its cache may be kept on disk; empty: it never is."""
    kept: int = 0
    """How many tokens the cache has that was last written there."""
    state: State = State.PAUSED
    tokens: Tokens = field(default_factory=Tokens)
    images: tuple[PlacedPiece, ...] = ()
    """In order; a cache never ends in the middle of one."""
    cached: int = 0
    computed_before: int = 0
    """How many tokens had a cache at the last stop, wherever that cache has gone since."""
    slot: int | None = None
    open: OpenRound | None = None
    reading: "Future[Restored | None] | None" = None
    """While its cache is read back from the disk."""
    paused_at: float | None = None
    """When it last began to wait, on the engine's clock."""
    expected: Expected | None = None
    """When it is expected back, as far as that was told since."""

    def on(self, trigger: SequenceTrigger) -> None:
        """Move to the next state, or leave the state unchanged and raise."""
        try:
            self.state = TRANSITIONS[self.state, trigger]
        except KeyError:
            raise IllegalTransition(f"{trigger} while {self.state}") from None

    @property
    def pending(self) -> int:
        """How many tokens are still to be fed before the next one can be sampled."""
        return len(self.tokens) - self.cached

    @property
    def next_piece(self) -> PlacedPiece | None:
        """The piece of an image that is to be fed next, where it is one."""
        return next((one for one in self.images if one.begin == self.cached), None)

    @property
    def text_run(self) -> int:
        """How many tokens can be fed before the next piece of an image."""
        following = (one.begin for one in self.images if one.begin >= self.cached)
        return next(following, len(self.tokens)) - self.cached

    def uncut(self, tokens: int) -> int:
        """As many of the first so many tokens as end in the middle of no piece."""
        return next((one.begin for one in self.images if one.begin < tokens < one.end), tokens)

"""What goes into an engine and what comes out: values, no live objects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tenuto.pipelines.backend import Sampling, TokenLogprob
from tenuto.pipelines.base import GrammarSource
from tenuto.pipelines.embedding import TextTokens, Vectors
from tenuto.pipelines.images import Piece
from tenuto.pipelines.template_variables import NO_VARIABLES, TemplateVariables
from tenuto.runtime.engine.counts import NOTHING, Counts
from tenuto.sessions.priority import Priority
from tenuto.sessions.tokens import Prefix

THE_SERVER = ""
"""The principal of what the server itself lets a model read: no secret, and so lent to everybody."""
WINDOW = 512
"""So many tokens of a round may be sampled that its reader has not read."""


class State(StrEnum):
    """Where a sequence stands."""

    WAITING = "waiting"
    PREFILLING = "prefilling"
    DECODING = "decoding"
    BLOCKED = "blocked"
    PAUSED = "paused"
    FAILED = "failed"
    RELEASED = "released"


LASTING = (State.WAITING, State.PREFILLING, State.DECODING, State.BLOCKED, State.PAUSED)
"""The states that a sequence stays in after a step."""


class StopCause(StrEnum):
    """Why a round stopped. Whether that ends a run or pauses it is the loop's to know."""

    END = "end"
    """An end-of-turn token was sampled; it is the last of the round's tokens."""
    STOP_STRING = "stop_string"
    LIMIT = "limit"
    """`max_tokens` were sampled, or the context is full."""
    CANCELLED = "cancelled"


class MissReason(StrEnum):
    """Why tokens that had a cache are computed again, but for the item at which a request's history differs."""

    DIVERGED = "diverged"
    NOT_RESIDENT = "not_resident"
    TOOLS_CHANGED = "tools_changed"
    VARIABLES_CHANGED = "template_variables_changed"


class Residency(StrEnum):
    """Where a sequence's cache lives."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"
    NONE = "none"


class Reading(StrEnum):
    """What of a round is text, in which alone stop strings count."""

    RAW = "raw"
    """All of it."""
    TURN = "turn"
    """What a turn says: not its reasoning, nor the white space around it."""
    CALLS = "calls"
    """As in TURN, and not the calls either."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one generation is held to."""

    max_tokens: int
    sampling: Sampling
    stop_tokens: frozenset[int]
    stop_strings: tuple[str, ...] = ()
    grammar: GrammarSource | None = None
    reading: Reading = Reading.RAW
    callable: tuple[str, ...] = ()
    """The tools whose names tell a call from text, where stop strings are looked for."""
    variables: TemplateVariables = NO_VARIABLES
    """Of the template that has written the prompt: how a turn is to be read may depend on them."""
    begun: tuple[int, ...] = ()
    """What of the turn stands in the prompt already, as what holds and reads the round is to see it."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Generate after the tokens that `known` names and then `tokens`: all that the sequence's model shall have seen.

    The sequence begins with those that are known, or the answer is `Unknown` and nothing has changed. The engine finds
    by itself how many of all these have a cache, here or as a prefix of another sequence of the same `principal`.
    `computed_before` says how many of them had one when the sequence last stopped, where the engine cannot know: in an
    earlier process.
    The first `named` tokens are a prefix that those who have the very same one may share, whoever they are. What
    `THE_SERVER` has serves all.
    `pieces` are those of the images that stand among all these tokens.
    `said` are the tokens with which the round has begun already, in an earlier process: it goes on after the last of
    them as if it had never stopped, and tells only what comes then. None of them ends a round; its reader has not read
    the last `unread` of them.
    """

    sequence: str
    principal: str
    known: Prefix
    tokens: Sequence[int]
    """Not to be changed any more."""
    round: Round
    computed_before: int = 0
    named: int = 0
    said: Sequence[int] = ()
    pieces: Sequence[Piece] = ()
    kept_as: str = ""
    """The name under which its cache may be kept on disk; empty: it never is."""
    priority: Priority = Priority.INTERACTIVE
    unread: int = 0


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a sequence's round within a step. Nothing happens where none is open."""

    sequence: str


@dataclass(frozen=True, slots=True)
class Read:
    """So many more tokens of a sequence's round have been read.

    A round that is `WINDOW` tokens ahead of its reader is blocked, and its slot goes to who needs one. This
    unblocks it.
    """

    sequence: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Release:
    """Forget a sequence and free its cache. An open round is cancelled first."""

    sequence: str


@dataclass(frozen=True, slots=True)
class Hint:
    """A paused sequence is expected to go on in so many seconds from now, by `spread_s` more or less.

    It decides nothing but where the sequence's cache waits; one for a sequence that is not paused here says nothing.
    """

    sequence: str
    expected_s: float
    spread_s: float


@dataclass(frozen=True, slots=True)
class Forget:
    """Forget a sequence as by `Release`, and what is kept on disk as `kept_as`; answered by `Forgotten`."""

    sequence: str
    kept_as: str


@dataclass(frozen=True, slots=True, eq=False)
class Embed:
    """Make a vector, or a score, of each text. For engines whose model embeds; all others are for those that generate.

    Texts of several requests share a step, and nobody's request waits for all of another's.
    """

    request: str
    principal: str
    texts: Sequence[TextTokens]


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Embed no more of a request; nothing is said of it any more, but for the step that it is in."""

    request: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Cancel all rounds and end the thread."""


Command = Submit | Cancel | Read | Release | Hint | Forget | Embed | Withdraw | Stop


@dataclass(frozen=True, slots=True)
class RoundUsage:
    """What a round cost. `computed` counts prefill rows, `cached` the tokens of the prompt that were not computed,
    `sampled` the tokens generated, `new` the prompt's tokens less those whose cache existed at the last stop.

    A cache that another principal's sequence lent is told as computed: nobody learns here what others have said.
    """

    prompt: int = 0
    computed: int = 0
    cached: int = 0
    new: int = 0
    sampled: int = 0
    reasoning: int = 0
    """How many of these were reasoning, where the model marks it: counted by who reads the round."""
    residency: Residency = Residency.NONE
    """Where the cache lay when the round began."""
    miss_reason: str | None = None
    """Why tokens that had been computed before were computed again: `not_resident`, `diverged`, or None."""
    waited_s: float = 0.0
    first_token_s: float | None = None
    """From the command to the first token."""
    total_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Admitted:
    """The round is fed from now on: it may be what ends an engine that ends."""

    sequence: str


@dataclass(frozen=True, slots=True)
class TokensSampled:
    """Tokens of a round, in order, as they are sampled. `logprobs` is empty, or has one for each token."""

    sequence: str
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Stopped:
    """The round is over and the sequence is paused with its cache kept."""

    sequence: str
    cause: StopCause
    usage: RoundUsage
    stop_string: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The round failed; the sequence is gone and its next Submit computes it again."""

    sequence: str
    error: str
    usage: RoundUsage


@dataclass(frozen=True, slots=True)
class Unknown:
    """The sequence does not begin with what a Submit named. No round has begun; it is to be sent whole."""

    sequence: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Nothing of a sequence that was to be forgotten is on the disk any more; with an `error`, it may be."""

    sequence: str
    error: str | None = None


RoundEvent = TokensSampled | Stopped | Failed
"""What becomes of a round."""


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """Some texts of a request, by their places in it, with a row for each."""

    request: str
    places: tuple[int, ...]
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class EmbeddingFailed:
    """A text of a request failed, and the request with it."""

    request: str
    error: str


EmbeddingEvent = Embedded | EmbeddingFailed
"""What becomes of a request for vectors."""

Event = RoundEvent | Admitted | Unknown | Forgotten | EmbeddingEvent


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """An engine at a glance, as of its last report."""

    commands: int = 0
    """How many it has taken."""
    busy: bool = False
    """Whether it has work to do."""
    steps: int = 0
    computed: int = 0
    sampled: int = 0
    drafted: int = 0
    """Tokens that were guessed and fed; `accepted` of them were right, each of which saved its sequence a step."""
    accepted: int = 0
    sequences: Mapping[State, int] = field(default_factory=lambda: dict.fromkeys(LASTING, 0))
    """How many are in each state that lasts."""
    cache_bytes: Mapping[Residency, int] = field(default_factory=lambda: {Residency.DEVICE: 0, Residency.HOST: 0})
    shared: int = 0
    """How many tokens were not computed because another sequence had their cache, as far as that is told."""
    prefill_slowdown: float = 0.0
    """How many times as long steps of late have taken while there were prompts to feed beside others that decode."""
    interrupted: int = 0
    """How often a round in the background had to give up its slot to an interactive one."""
    counts: Counts = NOTHING
    """Of its caches, since it began."""
    threads: int = 0
    """How many its next step gets; 0 where that is not its own affair."""


@dataclass(frozen=True, slots=True)
class Report:
    """What an engine has to say after a step, or after commands that changed something."""

    events: Sequence[Event]
    status: EngineStatus

"""What a run tells while it goes on: the loop's own vocabulary, turned into wire forms by the front ends."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tenuto.runtime.engine.messages import RoundUsage as RoundUsage  # a part of this vocabulary
from tenuto.sessions.items import ToolCall
from tenuto.sessions.questions import Question
from tenuto.sessions.records import PauseReason, RunStatus


class StopReason(StrEnum):
    """Why a run has ended. What is read back may hold others: another version may have kept it."""

    END = "end"
    STOP_STRING = "stop_string"
    LENGTH = "length"
    MAX_TOOL_ROUNDS = "max_tool_rounds"
    REPEAT = "repeat"
    """The model made the same calls again, and they gave the same."""
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    ERROR = "error"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"


class ToolStatus(StrEnum):
    """What became of a server's tool call."""

    COMPLETED = "completed"
    FAILED = "failed"
    DENIED = "denied"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True)
class TextLogprob:
    """How likely a token of the text was. `data` is its bytes, which may be part of a character; `token` is them as
    text. `top` has the likeliest in its place, each as text, bytes and logprob, best first."""

    token: str
    data: bytes
    logprob: float
    top: tuple[tuple[str, bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TextAdded:
    """A piece of the answer's text. The texts of all rounds are one stream.

    `logprobs` are those of the tokens that have come since the piece before, where the request asks for them."""

    round: int
    text: str
    logprobs: tuple[TextLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningAdded:
    """A piece of the model's reasoning."""

    round: int
    text: str


@dataclass(frozen=True, slots=True)
class ClientCallStarted:
    """The model calls a tool that the client runs. `index` counts the client's calls of the turn from 0."""

    round: int
    index: int
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ClientCallArguments:
    """A piece of the JSON text of a client call's arguments."""

    round: int
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCalling:
    """The runtime has begun to call a server's tool (its start is committed)."""

    round: int
    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """A server's tool call has its result (committed). `status` is a `ToolStatus`, or what another version kept."""

    round: int
    call: ToolCall
    status: str
    result: str


@dataclass(frozen=True, slots=True)
class ToolTold:
    """What a server tells in the middle of a call: how far it is (`done`, of `total` where it knows that), or a message
    of its log (`level`)."""

    round: int
    call_id: str
    name: str
    text: str | None
    done: float | None = None
    total: float | None = None
    level: str | None = None


@dataclass(frozen=True, slots=True)
class ServerSampled:
    """An MCP server has had the model say something in the middle of a call. `asked` is what it had it read, or the
    beginning and the end of that; the calls are the server's to make."""

    round: int
    call_id: str
    server: str
    asked: str
    text: str
    calls: tuple[ToolCall, ...]
    usage: RoundUsage


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """A round is over."""

    round: int
    usage: RoundUsage


@dataclass(frozen=True, slots=True)
class RunPaused:
    """The run waits, durably. For `client_tool`, `calls` are outstanding; for `approval` and `input`, `pause_id`
    names what is to be answered and `calls` has the one call in question."""

    reason: PauseReason
    round: int
    calls: tuple[ToolCall, ...]
    expires_at: float
    pause_id: str | None = None
    question: Question | None = None
    """What is asked, for `input`."""


@dataclass(frozen=True, slots=True)
class RunDone:
    """The run has ended and its end is committed. `stop_reason` is a `StopReason`, or what another version kept."""

    status: RunStatus
    stop_reason: str
    error: str | None = None
    error_code: str | None = None


RunEvent = (
    TextAdded
    | ReasoningAdded
    | ClientCallStarted
    | ClientCallArguments
    | ToolCalling
    | ToolReturned
    | ToolTold
    | ServerSampled
    | RoundEnded
    | RunPaused
    | RunDone
)
LAST = (RunPaused, RunDone)
"""A request's stream ends with one of these."""


@dataclass(frozen=True, slots=True)
class ServerCall:
    """A server tool call of the run, as `agentic_tool_calls` shows it."""

    round: int
    name: str
    arguments: str
    result: str
    status: str


@dataclass(slots=True)
class Usage:
    """The figures of some rounds. `prompt` is the ledger's length after the last of them less `completion`."""

    prompt: int = 0
    completion: int = 0
    computed: int = 0
    cached: int = 0
    reasoning: int = 0
    """How much of `completion` the model has reasoned, where it marks that."""
    rounds: list[RoundUsage] = field(default_factory=list)


@dataclass(slots=True)
class Answer:
    """A request's whole answer, gathered from the same events that a stream shows.

    `leg_id` names it: a run that waits for its client is answered by several requests. `usage` has what this request
    took, `run_usage` what the whole run took so far.
    """

    run_id: str
    session_id: str
    model: str
    leg_id: str = ""
    text: str = ""
    reasoning: str = ""
    logprobs: list[TextLogprob] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    server_calls: list[ServerCall] = field(default_factory=list)
    status: RunStatus = RunStatus.RUNNING
    stop_reason: str | None = None
    stop_string: str | None = None
    """Which stop string ended it, where one did."""
    pause: RunPaused | None = None
    error: str | None = None
    error_code: str | None = None
    usage: Usage = field(default_factory=Usage)
    run_usage: Usage = field(default_factory=Usage)
    diagnostics: list[Any] = field(default_factory=list)

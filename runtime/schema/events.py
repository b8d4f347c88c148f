"""A run's events as Tenuto tells them, version 1: over server-sent events, WebSockets and MCP, and to the terminal.

Within a version, events and fields may join; none goes, and none changes its name or its meaning. Plain data: no loop.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from tenuto.runtime.http.shape import Shape
from tenuto.runtime.schema.questions import QuestionAnswer
from tenuto.sessions.records import PauseReason, RunStatus

VERSION = 1


class RoundFigures(Shape):
    """What a round took, in tokens and seconds."""

    prompt: int
    computed: int
    cached: int
    new: int
    sampled: int
    residency: str = Field(description="Where the cache was when the round began: `device`, `host`, `disk` or `none`.")
    miss_reason: str | None = Field(description="Why tokens were computed again.")
    waited_s: float
    first_token_s: float | None
    total_s: float


class CallAnswer(Shape):
    """A tool call; `arguments` is JSON text. `server`: whether it is the server that makes it, or the client."""

    id: str
    name: str
    arguments: str
    server: bool


Bytes = str | list[int]
"""Text, or bytes that are no text by themselves."""


class TokenLogprob(Shape):
    """How likely a token of the text was, and the likeliest in its place: text, bytes and logprob of each.

    The logprob of what could not be at all is null.
    """

    token: str
    data: Bytes
    logprob: float | None
    top: list[tuple[str, Bytes, float | None]]


class _Told(Shape):
    type: str

    def encode(self) -> bytes:
        """It as JSON, on one line, with all its fields."""
        return self.__pydantic_serializer__.to_json(self)


class _Event(_Told):
    number: int = Field(description="Only ever increases; pass it as `after`.")


class TextAdded(_Event):
    """A piece of the answer's text. The texts of all rounds are one."""

    type: Literal["text_added"] = "text_added"
    round: int
    text: str
    logprobs: list[TokenLogprob] = Field(description="Logprobs of the tokens since the previous piece, if requested.")


class ReasoningAdded(_Event):
    """A piece of the model's reasoning."""

    type: Literal["reasoning_added"] = "reasoning_added"
    round: int
    text: str


class ClientCallStarted(_Event):
    """The model calls a tool that the client runs. `index` counts such calls of the turn from 0."""

    type: Literal["client_call_started"] = "client_call_started"
    round: int
    index: int
    call_id: str
    name: str


class ClientCallArguments(_Event):
    """A piece of the JSON text of a client call's arguments."""

    type: Literal["client_call_arguments"] = "client_call_arguments"
    round: int
    index: int
    text: str


class ToolCalling(_Event):
    """The server has begun to call one of its tools."""

    type: Literal["tool_calling"] = "tool_calling"
    round: int
    call: CallAnswer


class ToolReturned(_Event):
    """Such a call has its result."""

    type: Literal["tool_returned"] = "tool_returned"
    round: int
    call: CallAnswer
    status: str = Field(description="`completed`, `failed`, `denied`, `not_run`, ...")
    result: str


class ToolTold(_Event):
    """What a server tells in the middle of a call of its tool: how far it is, or a message of its log."""

    type: Literal["tool_told"] = "tool_told"
    round: int
    call_id: str
    name: str
    text: str | None
    done: float | None
    total: float | None = Field(description="What `done` will be at the end, where the server knows that.")
    level: str | None = Field(description="Of a message of its log, by syslog's names; null where it tells progress.")


class ServerSampled(_Event):
    """An MCP server has had the model say something in the middle of a call. `calls` are for the server to make."""

    type: Literal["server_sampled"] = "server_sampled"
    round: int
    call_id: str
    server: str
    asked: str = Field(description="What the model was given to read; the middle is left out where that is long.")
    text: str
    calls: list[CallAnswer]
    usage: RoundFigures


class RoundEnded(_Event):
    """A round is over."""

    type: Literal["round_ended"] = "round_ended"
    round: int
    usage: RoundFigures


class RunPaused(_Event):
    """The run waits: for the results of `calls`, or for the answer that `pause_id` is asked for."""

    type: Literal["run_paused"] = "run_paused"
    reason: PauseReason
    round: int
    calls: list[CallAnswer]
    expires_at: float
    pause_id: str | None
    question: QuestionAnswer | None = Field(default=None, description="For `input`: what an MCP server asks.")


class RunDone(_Event):
    """The run has ended."""

    type: Literal["run_done"] = "run_done"
    status: RunStatus
    stop_reason: str
    error: str | None
    error_code: str | None


class ToldAgain(_Told):
    """The events up to `after` were told before the run was read from the store: all that was kept of it follows."""

    type: Literal["told_again"] = "told_again"
    after: int


Event = (
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
"""What a run tells, each with its number."""
Message = ToldAgain | Event
"""Whatever may stand in a stream of events."""
EVENTS: tuple[type[Message], ...] = (
    ToldAgain,
    TextAdded,
    ReasoningAdded,
    ClientCallStarted,
    ClientCallArguments,
    ToolCalling,
    ToolReturned,
    ToolTold,
    ServerSampled,
    RoundEnded,
    RunPaused,
    RunDone,
)

_MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="type")])


def read_event(value: Any) -> Message | None:
    """An event from JSON; None where it is none of this version's, as one that has joined since."""
    try:
        return _MESSAGE.validate_python(value)
    except ValidationError:
        return None

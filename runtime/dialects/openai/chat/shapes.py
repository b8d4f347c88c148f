"""What chat completions answer with: whole, as the chunks of a stream, and as the named events in it. No meaning.

https://platform.openai.com/docs/api-reference/chat/object. Bases stand in the reverse order of their fields.
"""

from typing import Literal

from pydantic import Field, JsonValue

from tenuto.runtime.dialects.openai.logprobs import LogprobsAnswer
from tenuto.runtime.dialects.openai.usage import UsageAnswer
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.schema.answers import RunStateAnswer, ServerCallAnswer
from tenuto.runtime.schema.questions import QuestionAnswer

FinishReason = Literal["stop", "length", "tool_calls"]


class FunctionAnswer(Shape):
    """The function that is called; `arguments` is JSON text."""

    name: str
    arguments: str


class ToolCallAnswer(Shape):
    """A call that the client is to make."""

    id: str
    type: Literal["function"]
    function: FunctionAnswer


class MessageAnswer(Shape):
    """The assistant's message."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallAnswer] = Field(default=[])


class ChoiceAnswer(Shape):
    """One answer."""

    index: int
    message: MessageAnswer
    logprobs: LogprobsAnswer | None
    finish_reason: FinishReason


class RunStatesAnswer(Shape):
    """How the runs of several answers stand, in their order."""

    choices: list[RunStateAnswer]


class RunFields(Shape):
    """What stock clients do not know: the session, the server's tool calls, and how the run stands."""

    session_id: str | None = Field(default=None, description="The session; send it to continue the conversation.")
    agentic_tool_calls: list[ServerCallAnswer] = Field(default=[])
    tenuto: RunStateAnswer | RunStatesAnswer | None = Field(
        default=None, description="The run's state, and what a paused run is waiting for."
    )


class _Completion(Shape):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChoiceAnswer]
    usage: UsageAnswer


class ChatAnswer(RunFields, _Completion):
    """A chat completion."""


class FunctionDelta(Shape):
    """A piece of a call: its name at first, then pieces of its arguments."""

    name: str | None = None
    arguments: str


class ToolCallDelta(Shape):
    """More of the call of that index."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionDelta


class Delta(Shape):
    """More of the message."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] = Field(default=[])


class ChunkChoice(Shape):
    """More of one answer."""

    index: int
    delta: Delta
    logprobs: LogprobsAnswer | None
    finish_reason: FinishReason | None


class ChunkEnvelope(Shape):
    """What all chunks of a stream have alike."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str


class _Choices(Shape):
    choices: list[ChunkChoice]
    usage: UsageAnswer | None = None


class ChunkFields(RunFields, _Choices):
    """What is a chunk's own. The last ones have how the run stands, and the figures where they are asked for."""


class ChatChunk(ChunkFields, ChunkEnvelope):
    """A chunk of a chat completion."""


class ProgressData(Shape):
    """The call, and its result when it is complete."""

    tool_type: Literal["custom"]
    call_id: str
    arguments: str
    content: str | None = None
    status: str | None = None


class ProgressFields(Shape):
    """What is the own of the event `agentic_tool_call_progress`."""

    choices: list[ChunkChoice] = Field(max_length=0)
    type: Literal["agentic_tool_call_progress"]
    round: int
    tool_name: str
    phase: Literal["calling", "complete"]
    data: ProgressData


class ToolCallProgress(ProgressFields, ChunkEnvelope):
    """A tool of the server's is called, or has answered. Also a chunk, for those who do not look at events' names."""


class AskedTool(Shape):
    """The tool that is asked for, as mistral.rs describes it."""

    source: Literal["mcp"]
    kind: Literal["custom"]
    label: str
    name: str


class ApprovalFields(Shape):
    """What is the own of the event `agentic_tool_approval_required`."""

    choices: list[ChunkChoice] = Field(max_length=0)
    type: Literal["agentic_tool_approval_required"]
    approval_id: str | None
    session_id: str
    round: int
    tool: AskedTool
    arguments: JsonValue = Field(
        description="An object if they parse as one, otherwise the text as the model wrote it."
    )
    expires_at: float


class ToolApprovalRequired(ApprovalFields, ChunkEnvelope):
    """A call waits for a person's answer. Also a chunk, for those who do not look at events' names."""


class InputFields(Shape):
    """What is the own of the event `agentic_input_required`."""

    choices: list[ChunkChoice] = Field(max_length=0)
    type: Literal["agentic_input_required"]
    input_id: str | None
    session_id: str
    round: int
    tool: AskedTool
    question: QuestionAnswer
    expires_at: float


class InputRequired(InputFields, ChunkEnvelope):
    """An MCP server asks something in the middle of a call. Also a chunk, as the others are."""


STREAMED = (ChatChunk, ToolCallProgress, ToolApprovalRequired, InputRequired)

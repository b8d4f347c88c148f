"""What requests for messages are answered with: whole, and as the events of a stream. No meaning.

https://docs.anthropic.com/en/api/messages-streaming
"""

from typing import Any, Literal

from pydantic import Field, JsonValue

from tenuto.runtime.http.shape import Shape
from tenuto.runtime.schema.answers import RunStateAnswer, ServerCallAnswer
from tenuto.runtime.schema.questions import QuestionAnswer
from tenuto.runtime.schema.usage import CacheUseAnswer

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn"]


class TextBlock(Shape):
    """Text of the answer."""

    type: Literal["text"]
    text: str


class ThinkingBlock(Shape):
    """The model's reasoning. The signature is its digest; whoever sends the block back sends it too."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUseBlock(Shape):
    """A call that the client is to make."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class McpToolUseBlock(Shape):
    """A call of a server's tool, which the server makes by itself: for those who name servers in `mcp_servers`."""

    type: Literal["mcp_tool_use"]
    id: str
    name: str
    server_name: str
    input: dict[str, Any]


class McpToolResultBlock(Shape):
    """What a server's tool has answered, or why it was not called."""

    type: Literal["mcp_tool_result"]
    tool_use_id: str
    is_error: bool
    content: list[TextBlock]


AnswerBlock = TextBlock | ThinkingBlock | ToolUseBlock | McpToolUseBlock | McpToolResultBlock


class MessageUsage(Shape):
    """The figures of this request, in tokens. All that was read are `input_tokens` and those read from the cache."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    tenuto: CacheUseAnswer | None = Field(
        default=None, description="How many of the prompt's tokens were computed or cached, and why."
    )


class TenutoFields(RunStateAnswer):
    """What stock clients do not know: the session, the server's tool calls, and how the run stands."""

    session_id: str
    agentic_tool_calls: list[ServerCallAnswer] = Field(default=[])


class MessageAnswer(Shape):
    """A message. In the first event of a stream it is still empty."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[AnswerBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage
    tenuto: TenutoFields = Field(description="The session, the run's state, and what a paused run is waiting for.")


class CountAnswer(Shape):
    """How many tokens the model would read."""

    input_tokens: int


class MessageStart(Shape):
    """The answer begins."""

    type: Literal["message_start"]
    message: MessageAnswer


class BlockStart(Shape):
    """A block begins."""

    type: Literal["content_block_start"]
    index: int
    content_block: AnswerBlock


class TextDelta(Shape):
    """More text."""

    type: Literal["text_delta"]
    text: str


class ThinkingDelta(Shape):
    """More reasoning."""

    type: Literal["thinking_delta"]
    thinking: str


class SignatureDelta(Shape):
    """The signature of the reasoning, at its end."""

    type: Literal["signature_delta"]
    signature: str


class InputDelta(Shape):
    """More of the JSON text of a call's input."""

    type: Literal["input_json_delta"]
    partial_json: str


BlockPiece = TextDelta | ThinkingDelta | SignatureDelta | InputDelta


class BlockDelta(Shape):
    """More of a block."""

    type: Literal["content_block_delta"]
    index: int
    delta: BlockPiece


class BlockStop(Shape):
    """A block is whole."""

    type: Literal["content_block_stop"]
    index: int


class EndFields(Shape):
    """Why the answer ended."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(Shape):
    """How the answer ended, and its figures."""

    type: Literal["message_delta"]
    delta: EndFields
    usage: MessageUsage
    tenuto: TenutoFields


class MessageStop(Shape):
    """The answer is whole."""

    type: Literal["message_stop"]


class Ping(Shape):
    """The stream is still there."""

    type: Literal["ping"]


class MessageToolProgress(Shape):
    """A tool of the server's is called, or has answered: for those who ask for such events."""

    type: Literal["agentic_tool_call_progress"]
    round: int
    tool_name: str
    phase: Literal["calling", "complete"]
    call_id: str
    arguments: str
    content: str | None = None
    status: str | None = None


class MessageToolApproval(Shape):
    """A call waits for a person's answer: for those who ask for such events."""

    type: Literal["agentic_tool_approval_required"]
    approval_id: str | None
    session_id: str
    round: int
    tool_name: str
    arguments: JsonValue = Field(
        description="An object if they parse as one, otherwise the text as the model wrote it."
    )
    expires_at: float


class MessageInput(Shape):
    """An MCP server asks something in the middle of a call: for those who ask for such events."""

    type: Literal["agentic_input_required"]
    input_id: str | None
    session_id: str
    round: int
    tool_name: str
    question: QuestionAnswer
    expires_at: float


STREAMED = (
    MessageStart,
    BlockStart,
    BlockDelta,
    BlockStop,
    MessageDelta,
    MessageStop,
    Ping,
    MessageToolProgress,
    MessageToolApproval,
    MessageInput,
)

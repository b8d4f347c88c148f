"""What a response is: the object, its items and their parts. No meaning.

https://platform.openai.com/docs/api-reference/responses/object
"""

from typing import Any, Literal

from pydantic import Field, JsonValue

from tenuto.runtime.dialects.openai.logprobs import TokenLogprobAnswer
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.schema.answers import RunStateAnswer
from tenuto.runtime.schema.usage import CacheUseAnswer

ItemStatus = Literal["in_progress", "completed", "incomplete"]
CallStatus = Literal["in_progress", "calling", "completed", "failed", "incomplete"]
ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]


class OutputText(Shape):
    """Text of the answer."""

    type: Literal["output_text"]
    text: str
    annotations: list[JsonValue]
    logprobs: list[TokenLogprobAnswer]


class MessageItem(Shape):
    """What the model says."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: ItemStatus
    content: list[OutputText]


class ReasoningText(Shape):
    """Text of the reasoning."""

    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(Shape):
    """What the model thinks."""

    id: str
    type: Literal["reasoning"]
    status: ItemStatus
    summary: list[JsonValue]
    content: list[ReasoningText]


class FunctionCallItem(Shape):
    """A function that the client is to call; `arguments` is JSON text."""

    id: str
    type: Literal["function_call"]
    status: ItemStatus
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str


class CustomCallItem(Shape):
    """A custom tool that the client is to call with a text."""

    id: str
    type: Literal["custom_tool_call"]
    status: ItemStatus
    call_id: str
    name: str
    namespace: str | None = None
    input: str


class McpError(Shape):
    """Why a server's tool has no output."""

    type: Literal["mcp_tool_execution_error"]
    content: list[JsonValue]


class McpCallItem(Shape):
    """A tool that the server has called."""

    id: str
    type: Literal["mcp_call"]
    status: CallStatus
    server_label: str
    name: str
    arguments: str
    approval_request_id: str | None
    output: str | None
    error: McpError | None


class McpTool(Shape):
    """A tool of a server."""

    name: str
    description: str | None
    input_schema: dict[str, Any]
    annotations: dict[str, Any] | None


class McpListItem(Shape):
    """The tools of a server."""

    id: str
    type: Literal["mcp_list_tools"]
    server_label: str
    tools: list[McpTool]
    error: str | None


class McpApprovalItem(Shape):
    """A call that waits for a person's word, which the next request brings as an `mcp_approval_response`."""

    id: str
    type: Literal["mcp_approval_request"]
    server_label: str
    name: str
    arguments: str


OutputItem = (
    MessageItem | ReasoningItem | FunctionCallItem | CustomCallItem | McpCallItem | McpListItem | McpApprovalItem
)


class InputDetails(Shape):
    """What of the input was not computed again."""

    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(Shape):
    """What of the output nobody reads."""

    reasoning_tokens: int


class ResponseUsage(Shape):
    """The figures of a response, in tokens."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int
    tenuto: CacheUseAnswer = Field(description="How many of the input's tokens were computed or cached, and why.")


class CompactionItem(Shape):
    """What was said, summarized. Clients send it back in the place of all that."""

    id: str
    type: Literal["compaction"]
    encrypted_content: str


class ResponseError(Shape):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(Shape):
    """Why a response has no end."""

    reason: str


class ResponseState(RunStateAnswer):
    """The session, and how the run stands."""

    session_id: str


class ConversationName(Shape):
    """The conversation that a response belongs to."""

    id: str


class ResponseAnswer(Shape):
    """A response."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: ResponseStatus
    background: bool
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: JsonValue
    reasoning: dict[str, JsonValue]
    safety_identifier: str | None
    service_tier: str
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: JsonValue
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: str
    usage: ResponseUsage | None
    user: str | None
    metadata: dict[str, str]
    conversation: ConversationName | None = None
    tenuto: ResponseState | None = None

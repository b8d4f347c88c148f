"""What answers look like on the wire, for those who read the API's description. Fields may join them at any time."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class Shape(BaseModel):
    """An answer's form."""

    model_config = ConfigDict(extra="allow", frozen=True)


class ErrorFields(Shape):
    """What went wrong. What a program may want to know besides stands beside these four."""

    message: str = Field(description="For people; it names the field or the setting in question.")
    type: str
    param: str | None = Field(description="The field that is wrong, as in `messages[0].content`.")
    code: str | None = Field(description="For programs.")


class ErrorAnswer(Shape):
    """Every error's form."""

    error: ErrorFields


class CacheAnswer(Shape):
    """A model's KV cache."""

    capacity_bytes: int = Field(description="What its slots hold when all of them are full.")
    used_bytes: dict[str, int] = Field(description="In use now, by place: `device`, `host`.")


class ModelAnswer(Shape):
    """A model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    context_length: int = Field(description="How many tokens a conversation may have.")
    description: str
    backend: str = Field(description="What computes it.")
    can_batch: bool = Field(description="Whether requests are computed together; else one at a time.")
    capabilities: list[str] = Field(description="`chat`, `completions`, `tools`, and what it reads besides text.")
    slots: int = Field(description="How many conversations it keeps on the device and works on at a time.")
    cache: CacheAnswer


class ModelsAnswer(Shape):
    """All models, the default one first."""

    object: Literal["list"]
    data: list[ModelAnswer]


class SummaryAnswer(Shape):
    """A session as a list shows it."""

    id: str
    object: Literal["session"]
    created_at: float
    updated_at: float
    implicit: bool = Field(description="Nobody has named it; it is kept for a day.")
    user: str | None
    expires_at: float | None
    open_run: str | None = Field(description="The run that works or waits in it.")
    num_items: int


class SessionsAnswer(Shape):
    """A page of sessions."""

    object: Literal["list"]
    data: list[SummaryAnswer]
    last_id: str | None = Field(description="What `after` takes for the next page.")
    has_more: bool


class OriginAnswer(Shape):
    """Where a fork comes from."""

    at: int


class SessionAnswer(Shape):
    """A session that was made."""

    id: str
    object: Literal["session"]
    created_at: float
    updated_at: float
    implicit: bool
    stored: bool
    expires_at: float | None
    num_items: int
    parent: OriginAnswer | None


class DroppedLedgerAnswer(Shape):
    """Tokens of a document that are not taken over: they could not be held to say what the items say."""

    fingerprint: str
    reason: str
    kept_items: int = Field(description="Of the first so many items they are taken over.")


class ImportedAnswer(SessionAnswer):
    """A session that was made of a document."""

    dropped_ledgers: list[DroppedLedgerAnswer]


class DeletedAnswer(Shape):
    """A session that is no more."""

    id: str
    object: Literal["session.deleted"]
    deleted: Literal[True]


class CallAnswer(Shape):
    """A tool call; `arguments` is JSON text. `server` is empty for the client's tools."""

    id: str
    name: str
    arguments: str
    server: str


class PauseAnswer(Shape):
    """What a run waits for."""

    reason: Literal["server_tool", "client_tool", "approval", "input"]
    id: str | None = Field(description="What /v1/agent/approvals/{id} takes.")
    expires_at: float
    calls: list[CallAnswer]


class RunUsageAnswer(Shape):
    """A run's figures, in tokens."""

    prompt_tokens: int
    completion_tokens: int
    computed_tokens: int
    cached_tokens: int
    rounds: list[dict[str, JsonValue]]


class RunAnswer(Shape):
    """How a run stands."""

    id: str
    object: Literal["run"]
    session_id: str
    model: str
    status: str = Field(description="running, paused, completed, incomplete, failed, cancelled, expired, ...")
    reason: str | None = Field(description="What a paused run waits for.")
    stop_reason: str | None
    error: str | None
    created_at: float
    updated_at: float
    expires_at: float | None
    pause: PauseAnswer | None
    text: str
    usage: RunUsageAnswer


class StatusAnswer(Shape):
    """Whether the server is well."""

    status: Literal["ok", "ready", "stalled", "not_ready", "draining"]
    models: list[str] = Field(default=[], description="Those that are not.")
    store: str | None = Field(default=None, description="Why nothing can be kept, where that is so.")


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
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCallAnswer] = []


class ChoiceAnswer(Shape):
    """One answer."""

    index: int
    message: MessageAnswer
    logprobs: dict[str, JsonValue] | None
    finish_reason: Literal["stop", "length", "tool_calls"]


class UsageAnswer(Shape):
    """The figures of an answer; `tenuto` has how many of the prompt's tokens were computed, and why."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int] = {}
    tenuto: dict[str, Any] = {}


class ServerCallAnswer(Shape):
    """A tool call that the server made."""

    round: int
    name: str
    arguments: str
    result_content: str
    status: str


class ChatAnswer(Shape):
    """A chat completion."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChoiceAnswer]
    usage: UsageAnswer
    session_id: str | None = Field(default=None, description="The conversation; send it to go on with it.")
    agentic_tool_calls: list[ServerCallAnswer] = []
    tenuto: dict[str, Any] = Field(default={}, description="How the run stands, and what a paused one waits for.")


class TextChoiceAnswer(Shape):
    """One text."""

    text: str
    index: int
    logprobs: dict[str, JsonValue] | None
    finish_reason: str


class CompletionAnswer(Shape):
    """Text completions."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoiceAnswer]
    usage: UsageAnswer


class PieceAnswer(Shape):
    """A token with its text, or with its bytes where they are no text by themselves."""

    id: int
    piece: str | list[int]


class TokensAnswer(Shape):
    """Tokens, with `with_pieces` each with its text."""

    tokens: list[int | PieceAnswer]


class TextAnswer(Shape):
    """The text of tokens."""

    content: str


class McpServerAnswer(Shape):
    """A configured MCP server."""

    id: str
    object: Literal["mcp.server"]
    status: str
    reason: str | None
    transport: str
    protocol: str | None
    era: str | None
    tools: list[str] = Field(description="Those that it lists, under the names that models see.")
    restarts: int
    last_error: str | None
    stderr: list[str] = Field(description="The last lines that it wrote, without secrets; none but for an admin's key.")


class McpServersAnswer(Shape):
    """All configured MCP servers."""

    object: Literal["list"]
    data: list[McpServerAnswer]

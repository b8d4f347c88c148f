"""What Anthropic's requests for messages look like on the wire, with our extensions. Shapes only, no meaning.

https://docs.anthropic.com/en/api/messages
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from tenuto.runtime.dialects.priorities import Urgency
from tenuto.runtime.dialects.reasoning import Effort
from tenuto.runtime.http.body import Wire, at_most
from tenuto.runtime.schema.mcp_parts import McpFields
from tenuto.sessions.ids import User
from tenuto.sessions.tool_limits import MOST_TOOLS, Description, Name
from tenuto.tools.approvals import Permission

MOST_MESSAGES = 20_000
MOST_STOPS = 64
MOST_STOP_CHARACTERS = 1024
MOST_TOKENS = 2**31 - 1
MOST_SERVERS = 64
MOST_SETTINGS = 1024


def _blocks(value: Any) -> Any:
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if isinstance(value, list):
        return value
    raise PydanticCustomError("content", "must be a string or a list of blocks")


def _inner(value: Any) -> Any:
    return [value] if isinstance(value, dict) else _blocks(value)


def _source(value: Any) -> Any:
    return {"type": "text", "data": value} if isinstance(value, str) else value


class BlockSource(Wire):
    """Where an image or a document is: in base64, as text, as blocks, at an address, or in a file that is kept."""

    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    content: "Inner | None" = None


class InputBlock(McpFields):
    """A block of content. Which fields have a meaning depends on its type, and on where it stands."""

    type: str
    text: str | None = None
    source: Annotated[BlockSource | None, BeforeValidator(_source, json_schema_input_type=BlockSource | str | None)] = (
        None
    )
    title: str | None = None
    context: str | None = None
    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    server_name: str | None = None
    tool_use_id: str | None = None
    is_error: bool | None = None
    content: "Inner | None" = None


Content = Annotated[list[InputBlock], BeforeValidator(_blocks, json_schema_input_type=str | list[InputBlock])]
Inner = Annotated[list[InputBlock], BeforeValidator(_inner, json_schema_input_type=str | InputBlock | list[InputBlock])]
"""What a block holds; what some tools of Anthropic's have answered is one block."""


class InputMessage(Wire):
    """A message of any role."""

    role: Literal["user", "assistant", "system"]
    content: Content


class ToolSettings(Wire):
    """Whether a tool of a server may be used."""

    enabled: bool | None = None


class InputTool(Wire):
    """A tool that the client runs, all tools of an MCP server (`mcp_toolset`), or one that Anthropic runs."""

    type: str | None = None
    name: Name | None = None
    description: Description | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    mcp_server_name: str | None = None
    default_config: ToolSettings | None = None
    configs: Annotated[dict[str, ToolSettings], Field(max_length=MOST_SETTINGS), at_most(MOST_SETTINGS)] | None = None


class InputChoice(Wire):
    """Whether to call a tool: `auto`, `any`, one `tool`, or `none`."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ServerTools(Wire):
    """Which tools of a server may be used, in the older form."""

    enabled: bool | None = None
    allowed_tools: list[str] | None = None


class McpServer(Wire):
    """An MCP server: by the name under which this server has it, or by its URL."""

    name: Annotated[str, Field(min_length=1)]
    type: str | None = None
    url: str | None = None
    authorization_token: str | None = None
    tool_configuration: ServerTools | None = None


class Thinking(Wire):
    """Whether the answer shows the model's reasoning."""

    type: Literal["enabled", "adaptive", "between_tools", "disabled"]
    budget_tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS)] | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(Wire):
    """The form of the answer."""

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(Wire):
    """What the answer is like."""

    effort: Effort | None = None
    format: OutputFormat | None = None


class Metadata(Wire):
    """About the request."""

    user_id: User | None = None


class PromptBody(Wire):
    """What a model reads of a request. None: not said."""

    model: str | None = None
    messages: Annotated[list[InputMessage], Field(min_length=1, max_length=MOST_MESSAGES)]
    system: Content | None = None
    tools: Annotated[list[InputTool], Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: InputChoice | None = None
    mcp_servers: Annotated[list[McpServer], Field(max_length=MOST_SERVERS)] | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None


class MessagesBody(PromptBody):
    """A request for a message. None: not said."""

    max_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None
    stream: bool | None = None
    stop_sequences: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=MOST_STOP_CHARACTERS)]], Field(max_length=MOST_STOPS)
        ]
        | None
    ) = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=MOST_TOKENS)] | None = None
    metadata: Metadata | None = None

    service_tier: Literal["auto", "standard_only"] | None = None

    store: bool | None = None
    priority: Urgency | None = None
    max_tool_rounds: Annotated[int, Field(ge=0, le=MOST_TOKENS)] | None = None
    agent_permission: Annotated[Permission, Field(strict=False)] | None = None
    match: Literal["auto", "off"] | None = None

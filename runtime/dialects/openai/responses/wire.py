"""What requests for responses look like on the wire. Shapes only, no meaning.

https://platform.openai.com/docs/api-reference/responses/create
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tenuto.runtime.dialects.mcp_servers import MOST_HEADERS
from tenuto.runtime.dialects.openai.sampling import MOST_TOP_LOGPROBS, Limit, ServiceTier
from tenuto.runtime.dialects.priorities import Urgency
from tenuto.runtime.dialects.reasoning import Effort, TemplateArguments
from tenuto.runtime.http.body import Wire, at_most
from tenuto.runtime.schema.mcp_parts import McpFields
from tenuto.sessions.ids import User
from tenuto.sessions.metadata import MOST_PAIRS, Metadata
from tenuto.sessions.tool_limits import MOST_TOOLS, Description

MOST_ITEMS = 20_000
MOST_INCLUDED = 64

ELSEWHERE = frozenset(
    {
        "apply_patch_call",
        "apply_patch_call_output",
        "code_interpreter_call",
        "compaction",
        "compaction_summary",
        "compaction_trigger",
        "computer_call",
        "computer_call_output",
        "configuration_update",
        "context_compaction",
        "file_search_call",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "program",
        "program_output",
        "shell_call",
        "shell_call_output",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
"""Items of tools and services that OpenAI hosts. Histories that were begun there have them; here no model reads any."""


def _only_read(value: Any) -> Any:
    """An item of elsewhere may have any form, and so may what lists tools."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "compaction":
        return {name: value[name] for name in ("type", "encrypted_content") if name in value}
    if isinstance(kind, str) and kind in ELSEWHERE:
        return {"type": kind}
    if kind == "mcp_list_tools":
        return {name: value[name] for name in ("type", "server_label") if name in value}
    return value


def _items(value: Any) -> Any:
    """A text is a message of the user's."""
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


def _conversation(value: Any) -> Any:
    return {"id": value} if isinstance(value, str) else value


def _only_known(value: Any) -> Any:
    """A tool that OpenAI hosts may have any form."""
    if isinstance(value, dict) and value.get("type") not in ("function", "custom", "namespace", "mcp"):
        return {name: value[name] for name in ("type",) if name in value}
    return value


def _approvals(value: Any) -> Any:
    return {value: {}, "is_for_all": True} if value in ("always", "never") else value


def _url(value: Any) -> Any:
    return value.get("url") if isinstance(value, dict) else value


def _text(value: Any) -> Any:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


def _choice(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


def _allowed(value: Any) -> Any:
    return {"tool_names": value} if isinstance(value, list) else value


class Sound(Wire):
    """Sound, in base64."""

    data: str
    format: Annotated[str, Field(pattern=r"^[a-z0-9.+-]{1,32}$")]


class Part(McpFields):
    """A part of an item's content. What may stand where is told where its place is known."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: Annotated[str | None, BeforeValidator(_url, json_schema_input_type=str | None)] = None
    input_audio: Sound | None = None
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None


Parts = Annotated[list[Part] | None, BeforeValidator(_text, json_schema_input_type=str | list[Part] | None)]
Name = Annotated[str, Field(min_length=1, max_length=256)]


class FunctionWire(Wire):
    """A tool that the client runs: a function, or with type `custom` one that takes a text."""

    type: str = "function"
    name: Name | None = None
    description: Description | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: dict[str, Any] | None = None


class AllowedTools(Wire):
    """Tools of a server, by their names or by what the server says of them."""

    tool_names: list[str] | None = None
    read_only: bool | None = None


class Approvals(Wire):
    """Which tools of a server need approval; `always` or `never` alone: all or none."""

    is_for_all: bool = False
    always: AllowedTools | None = None
    never: AllowedTools | None = None


class Tool(FunctionWire):
    """A tool of any type: a function, a namespace of them, a server of this runtime (`mcp`), or one of OpenAI's."""

    type: str
    tools: list[FunctionWire] | None = None
    server_label: Annotated[str, Field(min_length=1)] | None = None
    server_url: str | None = None
    headers: Annotated[dict[str, str] | None, at_most(MOST_HEADERS)] = None
    authorization: str | None = None
    allowed_tools: Annotated[
        AllowedTools | None, BeforeValidator(_allowed, json_schema_input_type=AllowedTools | list[str] | None)
    ] = None
    require_approval: Annotated[
        Approvals | None,
        BeforeValidator(_approvals, json_schema_input_type=Literal["always", "never"] | Approvals | None),
    ] = None


AnyTool = Annotated[Tool, BeforeValidator(_only_known, json_schema_input_type=Tool)]


class InputItem(Wire):
    """An item of any type; which fields have a meaning depends on it. One without type and with a role is a message."""

    type: str | None = None
    id: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Parts = None
    call_id: Annotated[str, Field(min_length=1)] | None = None
    name: Name | None = None
    namespace: Name | None = None
    arguments: str | None = None
    input: str | None = None
    output: Parts = None
    server_label: str | None = None
    error: Any = None
    approval_request_id: str | None = None
    approve: bool | None = None
    reason: str | None = None
    encrypted_content: Any = None
    tools: list[AnyTool] | None = None


AnyItem = Annotated[InputItem, BeforeValidator(_only_read, json_schema_input_type=InputItem)]


class ChosenTool(Wire):
    """A tool of those that may be called now."""

    type: str
    name: str | None = None
    namespace: str | None = None
    server_label: str | None = None


class ToolChoiceBody(ChosenTool):
    """`none`, `auto`, `required`, one tool, or some of the tools."""

    mode: Literal["auto", "required"] | None = None
    tools: Annotated[list[ChosenTool], Field(min_length=1, max_length=MOST_TOOLS)] | None = None


class TextFormat(Wire):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class TextBody(Wire):
    """What is asked of the answer's text."""

    format: TextFormat | None = None
    verbosity: str | None = None


class ReasoningBody(Wire):
    """What is asked of the reasoning."""

    effort: Effort | None = None
    summary: str | None = None


class ConversationBody(Wire):
    """A conversation by its id."""

    id: str


WholeInput = Annotated[
    Annotated[list[AnyItem], Field(max_length=MOST_ITEMS)] | None,
    BeforeValidator(_items, json_schema_input_type=str | list[InputItem] | None),
]
"""A text, or items."""


class InputBody(Wire):
    """What the model reads, and how it may answer: the fields that counting tokens has too. None: not said."""

    model: str | None = None
    input: WholeInput = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: Annotated[
        ConversationBody | None,
        BeforeValidator(_conversation, json_schema_input_type=str | ConversationBody | None),
    ] = None
    tools: Annotated[list[AnyTool], Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: Annotated[
        ToolChoiceBody | None,
        BeforeValidator(_choice, json_schema_input_type=Literal["none", "auto", "required"] | ToolChoiceBody | None),
    ] = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningBody | None = None
    max_thinking_tokens: Limit | None = None
    chat_template_kwargs: TemplateArguments | None = None
    text: TextBody | None = None
    truncation: Literal["auto", "disabled"] | None = None


class CompactBody(Wire):
    """A conversation that is to be compacted. None: not said."""

    model: str | None = None
    input: WholeInput = None
    instructions: str | None = None
    previous_response_id: str | None = None
    prompt_cache_key: Any = None


class ResponsesBody(InputBody):
    """A request for a response. None: not said."""

    stream: bool | None = None
    background: bool | None = None
    max_output_tokens: Limit | None = None
    max_tool_calls: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    include: Annotated[list[str], Field(max_length=MOST_INCLUDED)] | None = None
    store: bool | None = None
    user: User | None = None
    safety_identifier: User | None = None
    metadata: Annotated[Metadata | None, at_most(MOST_PAIRS)] = None
    prompt_cache_key: Any = None
    service_tier: ServiceTier | None = None
    priority: Urgency | None = None

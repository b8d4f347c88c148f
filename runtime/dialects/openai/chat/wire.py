"""What OpenAI's chat completions requests look like on the wire, with our extensions. Shapes only, no meaning.

https://platform.openai.com/docs/api-reference/chat/create
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from tenuto.runtime.dialects.openai.sampling import MOST_CHOICES, MOST_TOP_LOGPROBS, Limit, SamplingFields, ServiceTier
from tenuto.runtime.dialects.priorities import Urgency
from tenuto.runtime.dialects.reasoning import Effort, TemplateArguments
from tenuto.runtime.http.body import Wire
from tenuto.runtime.loop.requests import SessionMode
from tenuto.runtime.schema.mcp_parts import McpFields
from tenuto.sessions.ids import User
from tenuto.sessions.tool_limits import MOST_TOOLS, Description, Name
from tenuto.tools.approvals import Permission
from tenuto.tools.roots import MOST_ROOTS

MOST_MESSAGES = 20_000


def _parts(value: Any) -> Any:
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if isinstance(value, list):
        return value
    raise PydanticCustomError("content", "must be a string or a list of parts")


def _choice(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


def _allowed(value: Any) -> Any:
    return {"tool_names": value} if isinstance(value, list) else value


def _url(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


class Image(Wire):
    """Where an image is: an address, or a data URI that holds it."""

    url: str
    detail: str | None = None


class Audio(Wire):
    """Sound, in base64."""

    data: str
    format: Annotated[str, Field(pattern=r"^[a-z0-9.+-]{1,32}$")]


class File(Wire):
    """A file: a data URI that holds it."""

    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class Part(McpFields):
    """A part of a message. What may stand where is told where its place is known."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: Annotated[Image | None, BeforeValidator(_url, json_schema_input_type=Image | str | None)] = None
    input_audio: Audio | None = None
    file: File | None = None


Content = Annotated[list[Part], BeforeValidator(_parts, json_schema_input_type=str | list[Part] | None)]


class FunctionCall(Wire):
    """The call in an assistant's message; `arguments` is JSON text."""

    name: str
    arguments: str


class Call(Wire):
    """A tool call that an assistant's message repeats."""

    id: Annotated[str, Field(min_length=1)]
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Wire):
    """A message of any role; which fields have a meaning depends on it."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = Field(default_factory=list)
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    function_call: Any = None
    audio: Any = None


class Function(Wire):
    """A tool that the client runs."""

    name: Name
    description: Description | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class AllowedTools(Wire):
    """The tools of a server that may be used."""

    tool_names: list[str]


class Tool(Wire):
    """A function, or with type `mcp` a server of this runtime."""

    type: str
    function: Function | None = None
    server_label: Annotated[str, Field(min_length=1)] | None = None
    allowed_tools: Annotated[
        AllowedTools | None, BeforeValidator(_allowed, json_schema_input_type=AllowedTools | list[str] | None)
    ] = None


class Named(Wire):
    """A function by its name."""

    name: str


class AllowedFunction(Wire):
    """A tool among those that may be called now."""

    type: Literal["function"]
    function: Named


class Allowed(Wire):
    """Some of the tools, of which a call may or must be one."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[AllowedFunction], Field(min_length=1)]


class ToolChoiceBody(Wire):
    """`none`, `auto`, `required`, one function, or some of the tools."""

    type: Literal["none", "auto", "required", "function", "allowed_tools"]
    function: Named | None = None
    allowed_tools: Allowed | None = None


class JsonSchema(Wire):
    """What the answer must be valid by."""

    name: str | None = None
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class Format(Wire):
    """The form of the answer. llama-server lets a `json_object` have a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None


class ChatBody(SamplingFields):
    """A chat completions request. None: not said."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES)]
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    max_tokens: Limit | None = None
    max_completion_tokens: Limit | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    response_format: Format | None = None
    json_schema: dict[str, Any] | None = None

    tools: Annotated[list[Tool], Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: Annotated[
        ToolChoiceBody | None,
        BeforeValidator(_choice, json_schema_input_type=Literal["none", "auto", "required"] | ToolChoiceBody | None),
    ] = None
    parallel_tool_calls: bool | None = None

    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    reasoning_effort: Effort | None = None
    chat_template_kwargs: TemplateArguments | None = None
    max_thinking_tokens: Limit | None = None
    thinking_budget_tokens: Limit | None = None
    reasoning_budget_tokens: Limit | None = None

    user: User | None = None
    safety_identifier: User | None = None
    store: bool | None = None
    prompt_cache_key: Any = None
    service_tier: ServiceTier | None = None
    priority: Urgency | None = None

    session_id: str | None = None
    session_mode: Annotated[SessionMode, Field(strict=False)] | None = None
    max_tool_rounds: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    agent_permission: Annotated[Permission, Field(strict=False)] | None = None
    match: Literal["auto", "off"] | None = None
    roots: Annotated[list[str], Field(max_length=MOST_ROOTS)] | None = None

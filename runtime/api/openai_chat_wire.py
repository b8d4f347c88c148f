"""What OpenAI's chat completions requests look like on the wire, with our extensions. Shapes only, no meaning.

https://platform.openai.com/docs/api-reference/chat/create
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from tenuto.runtime.api.body import Wire
from tenuto.runtime.loop.requests import SessionMode
from tenuto.tools.approvals import Permission


def _parts(value: Any) -> Any:
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if isinstance(value, list):
        return value
    raise PydanticCustomError("content", "must be a string or a list of parts")


def _strings(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _choice(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


def _allowed(value: Any) -> Any:
    return {"tool_names": value} if isinstance(value, list) else value


class Part(Wire):
    """A part of a message. Types other than text are refused where their place is known."""

    type: str
    text: str | None = None
    refusal: str | None = None


Content = Annotated[list[Part], BeforeValidator(_parts)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]


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
    """A tool that the client runs. Strict unless it says no."""

    name: Name
    description: str | None = None
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
    allowed_tools: Annotated[AllowedTools | None, BeforeValidator(_allowed)] = None


class Named(Wire):
    """The function that must be called."""

    name: str


class Choice(Wire):
    """`none`, `auto`, `required`, or one function."""

    type: Literal["none", "auto", "required", "function"]
    function: Named | None = None


class StreamOptions(Wire):
    """What a stream brings besides."""

    include_usage: bool | None = None


class ChatBody(Wire):
    """A chat completions request. None: not said."""

    model: str | None = None
    messages: Annotated[list[Message], Field(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: Annotated[
        Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=4)] | None, BeforeValidator(_strings)
    ] = None
    max_tokens: Annotated[int, Field(ge=-1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=-1)] | None = None

    tools: list[Tool] | None = None
    tool_choice: Annotated[Choice | None, BeforeValidator(_choice)] = None
    parallel_tool_calls: bool | None = None

    user: str | None = None
    safety_identifier: str | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None

    session_id: str | None = None
    session_mode: Annotated[SessionMode, Field(strict=False)] | None = None
    max_tool_rounds: Annotated[int, Field(ge=0)] | None = None
    agent_permission: Annotated[Permission, Field(strict=False)] | None = None
    match: Literal["auto", "off"] | None = None


def _given(value: Any) -> bool:
    return value is not None


def _not_false(value: Any) -> bool:
    return value not in (None, False)


def _not_zero(value: Any) -> bool:
    return value not in (None, 0)


def _not_one(value: Any) -> bool:
    return value not in (None, 1)


def _not_empty(value: Any) -> bool:
    return value not in (None, {}, [])


def _not_text_format(value: Any) -> bool:
    return value is not None and not (isinstance(value, dict) and value.get("type") == "text")


def _not_text_only(value: Any) -> bool:
    return value not in (None, [], ["text"])


REFUSED: dict[str, Callable[[Any], bool]] = {
    "n": _not_one,
    "logprobs": _not_false,
    "top_logprobs": _not_zero,
    "logit_bias": _not_empty,
    "presence_penalty": _not_zero,
    "frequency_penalty": _not_zero,
    "repetition_penalty": _not_one,
    "repeat_penalty": _not_one,
    "response_format": _not_text_format,
    "grammar": _given,
    "functions": _not_empty,
    "function_call": _given,
    "audio": _given,
    "modalities": _not_text_only,
    "prediction": _given,
    "web_search_options": _given,
    "chat_template_kwargs": _not_empty,
}
"""Fields that would change the answer and are not served, each with what tells that it is really used."""

REFUSED_OF_MCP_TOOLS = ("server_url", "connector_id", "headers", "authorization")
"""Servers come from the runtime's configuration alone, never from a request."""

"""What requests to Ollama's API look like on the wire. Shapes only, no meaning.

https://github.com/ollama/ollama/blob/main/docs/api.md
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from tenuto.errors import InvalidRequest
from tenuto.runtime.http.body import Wire
from tenuto.runtime.schema.mcp_parts import McpPart
from tenuto.sessions.tool_limits import MOST_TOOLS, Description, Name

MOST_MESSAGES = 20_000
MOST_IMAGES = 64
MOST_STOPS = 64
MOST_INPUTS = 2048
MOST_STOP_CHARACTERS = 1024
MOST_TOP_LOGPROBS = 20
MOST_NUMBER = 2**31 - 1

Json = dict[str, Any]


def _whole(value: Any) -> Any:
    """Clients whose language has one kind of number write 40.0 for 40."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _strings(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _texts(value: Any) -> Any:
    """An empty text that stands alone is none, as Ollama has it."""
    return ([value] if value else []) if isinstance(value, str) else value


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _format(value: Any) -> Any:
    if value in (None, ""):
        return None
    if value == "json" or isinstance(value, dict):
        return value
    raise PydanticCustomError("format", "must be 'json' or a JSON schema")


Whole = Annotated[int, BeforeValidator(_whole, json_schema_input_type=int)]
Number = Annotated[Whole, Field(ge=-MOST_NUMBER, le=MOST_NUMBER)]
Stop = Annotated[str, Field(min_length=1, max_length=MOST_STOP_CHARACTERS)]
Format = Annotated[
    Literal["json"] | Json | None, BeforeValidator(_format, json_schema_input_type=Literal["", "json"] | Json | None)
]
Think = bool | Literal["low", "medium", "high", "max"]
Images = Annotated[list[str], Field(max_length=MOST_IMAGES)]


class OllamaOptions(Wire):
    """How tokens are chosen, and how many. None: not said."""

    num_predict: Number | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_k: Number | None = None
    top_p: Annotated[float, Field(ge=0)] | None = None
    min_p: Annotated[float, Field(ge=0)] | None = None
    seed: Annotated[Whole, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: Annotated[
        Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None,
        BeforeValidator(_strings, json_schema_input_type=str | list[Stop] | None),
    ] = None
    repeat_penalty: Annotated[float, Field(ge=0)] | None = None
    repeat_last_n: Number | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    typical_p: float | None = None
    tfs_z: float | None = None
    mirostat: Number | None = None


class CalledFunction(Wire):
    """The function that a call names."""

    name: Annotated[str, Field(min_length=1)]
    arguments: Json | None = None


class OllamaCall(Wire):
    """A tool call that an assistant's message repeats; older clients leave out its id."""

    id: str | None = None
    function: CalledFunction


class OllamaMessage(Wire):
    """A message of any role; which fields have a meaning depends on it."""

    role: Annotated[
        Literal["system", "developer", "user", "assistant", "tool"], BeforeValidator(_lower, json_schema_input_type=str)
    ]
    content: str | None = None
    thinking: str | None = None
    images: Images | None = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    attach: Annotated[list[McpPart], Field(max_length=MOST_IMAGES)] | None = None


class OllamaFunction(Wire):
    """A tool that the client runs."""

    name: Name
    description: Description | None = None
    parameters: Json | None = None


class OllamaTool(Wire):
    """A function."""

    type: str | None = None
    function: OllamaFunction | None = None


class AskBody(Wire):
    """What both kinds of requests for an answer have. None: not said."""

    model: str | None = None
    stream: bool | None = None
    format: Format = None
    options: OllamaOptions | None = None
    think: Think | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[Whole, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    keep_alive: int | float | str | None = None


class OllamaChatBody(AskBody):
    """A request for the next message of a chat."""

    messages: Annotated[list[OllamaMessage], Field(max_length=MOST_MESSAGES)] | None = None
    tools: Annotated[list[OllamaTool], Field(max_length=MOST_TOOLS)] | None = None


class GenerateBody(AskBody):
    """A request for the answer to one prompt."""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    images: Images | None = None
    raw: bool | None = None


class EmbedBody(Wire):
    """A request for embeddings. None: not said."""

    model: str | None = None
    input: Annotated[
        Annotated[list[str], Field(max_length=MOST_INPUTS)] | None,
        BeforeValidator(_texts, json_schema_input_type=str | list[str] | None),
    ] = None
    truncate: bool | None = None
    dimensions: Annotated[Whole, Field(ge=0, le=MOST_NUMBER)] | None = None


class ModelBody(Wire):
    """Which model is meant; older clients call it `name`."""

    model: str | None = None
    name: str | None = None


class PullBody(ModelBody):
    """A model that shall be there."""

    stream: bool | None = None


def name_of(wire: ModelBody) -> str:
    """The model that is meant. Raises InvalidRequest where none is named."""
    name = wire.model or wire.name
    if not name:
        raise InvalidRequest("model: field required", "model")
    return name

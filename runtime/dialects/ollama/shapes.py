"""What Ollama's requests are answered with: answers, which are also the lines of a stream, and models. No meaning.

https://github.com/ollama/ollama/blob/main/docs/api.md. Bases stand in the reverse order of their fields.
"""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from tenuto.runtime.http.shape import Shape
from tenuto.runtime.schema.answers import RunStateAnswer, ServerCallAnswer
from tenuto.runtime.schema.usage import CacheUseAnswer

DoneReason = Literal["stop", "length", "load"]


class OllamaFunctionAnswer(Shape):
    """The function that is called."""

    index: int
    name: str
    arguments: dict[str, Any]


class OllamaCallAnswer(Shape):
    """A call that the client is to make."""

    id: str
    function: OllamaFunctionAnswer


class OllamaMessageAnswer(Shape):
    """The assistant's message, or a piece of it."""

    role: Literal["assistant"]
    content: str
    thinking: str | None = None
    tool_calls: list[OllamaCallAnswer] = Field(default=[])


@dataclass(slots=True)
class OllamaLikelyAnswer:
    """How likely a token was. Its `bytes` may be part of a character."""

    token: str
    logprob: float
    bytes: list[int]


@dataclass(slots=True)
class OllamaLogprobAnswer(OllamaLikelyAnswer):
    """How likely a token of the answer was, and the likeliest in its place."""

    top_logprobs: list[OllamaLikelyAnswer]


class OllamaRunAnswer(RunStateAnswer):
    """What stock clients do not know: the session, the server's tool calls, how the run stands, and what it took."""

    session_id: str
    agentic_tool_calls: list[ServerCallAnswer] = Field(default=[])
    usage: CacheUseAnswer


class _Head(Shape):
    model: str
    created_at: str = Field(description="When the answer began, as RFC 3339 has it.")


class _Message(Shape):
    message: OllamaMessageAnswer


class _Response(Shape):
    response: str
    thinking: str | None = None


class EndFields(Shape):
    """What a line says of the answer as a whole: but for `done`, only the last one has it. Durations in nanoseconds."""

    done: bool
    done_reason: DoneReason | None = None
    total_duration: int | None = None
    load_duration: int | None = Field(default=None, description="How long the request waited for a free slot.")
    prompt_eval_count: int | None = Field(default=None, description="The prompt's tokens, cached ones included.")
    prompt_eval_duration: int | None = None
    eval_count: int | None = None
    eval_duration: int | None = None
    tenuto: OllamaRunAnswer | None = None


class _Logprobs(Shape):
    logprobs: list[OllamaLogprobAnswer] = Field(default=[])


class OllamaChatAnswer(EndFields, _Logprobs, _Message, _Head):
    """The answer of a chat, or a line of its stream."""


class GenerateAnswer(EndFields, _Logprobs, _Response, _Head):
    """The answer to a prompt, or a line of its stream."""


class VersionAnswer(Shape):
    """The version of Ollama's API that is spoken, by which clients tell what they may ask for."""

    version: str
    tenuto: str = Field(description="The server's own version.")


class DetailsAnswer(Shape):
    """What a model's files say of it; empty where they do not."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class TagAnswer(Shape):
    """A model that is served."""

    name: str
    model: str
    modified_at: str = Field(description="When it was loaded; of a stored one that is not, when it came.")
    size: int = Field(description="The bytes of its weights; of a stored one that is not loaded, of its files.")
    digest: str = Field(
        description="Names it as long as its file, its template and its tokens stay the same; of a stored one that is"
        " not loaded, its version."
    )
    details: DetailsAnswer


class TagsAnswer(Shape):
    """All models, the default first."""

    models: list[TagAnswer]


class LoadedAnswer(Shape):
    """A model that is loaded, as all are that are served."""

    name: str
    model: str
    size: int = Field(description="The bytes of its weights and its cache.")
    digest: str
    details: DetailsAnswer
    expires_at: str = Field(description="Models stay loaded: a time that is far away.")
    size_vram: int
    context_length: int


class LoadedModelsAnswer(Shape):
    """All models, as they are in memory."""

    models: list[LoadedAnswer]


class ShowAnswer(Shape):
    """What there is to know of a model."""

    modelfile: str
    parameters: str
    template: str
    details: DetailsAnswer
    model_info: dict[str, str | int]
    capabilities: list[str]
    modified_at: str


class PullAnswer(Shape):
    """That a model is there, or how far its pull is: of a file so many bytes of all, or what went wrong."""

    status: str | None = None
    digest: str | None = None
    total: int | None = None
    completed: int | None = None
    error: str | None = None


class EmbedFields(Shape):
    """What an answer has besides embeddings; durations are in nanoseconds."""

    total_duration: int
    load_duration: int
    prompt_eval_count: int


class EmbedAnswer(EmbedFields):
    """Embeddings, in the order of their texts."""

    model: str
    embeddings: list[list[float]]

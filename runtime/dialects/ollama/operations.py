"""What each route of Ollama's API takes and gives. `dialect` puts each beside its path."""

from tenuto.errors import (
    Conflict,
    ContextTooLong,
    Forbidden,
    GenerationFailed,
    IdempotencyMismatch,
    MissingToolResults,
    ModelLoadFailed,
    NotFound,
    Overloaded,
    SessionBusy,
    SessionPaused,
    ShuttingDown,
    StoreFailed,
    TemplateFailed,
    TenutoError,
    ToolFailed,
    UnsupportedParameter,
)
from tenuto.runtime.dialects.ollama.shapes import (
    EmbedAnswer,
    GenerateAnswer,
    LoadedModelsAnswer,
    OllamaChatAnswer,
    PullAnswer,
    ShowAnswer,
    TagsAnswer,
    VersionAnswer,
)
from tenuto.runtime.dialects.ollama.wire import EmbedBody, GenerateBody, ModelBody, OllamaChatBody, PullBody
from tenuto.runtime.http.ndjson import MEDIA_TYPE
from tenuto.runtime.http.routes import Doc, Parameter, Stream
from tenuto.sessions import ids

_TAG = "Ollama's API"
_GENERATING: tuple[type[TenutoError], ...] = (
    UnsupportedParameter,
    IdempotencyMismatch,
    MissingToolResults,
    ContextTooLong,
    TemplateFailed,
    NotFound,
    Conflict,
    SessionBusy,
    SessionPaused,
    Overloaded,
    ShuttingDown,
    GenerationFailed,
    StoreFailed,
    ToolFailed,
)
_HEADERS = (
    Parameter(
        "X-Tenuto-Session",
        {"type": "string", "pattern": ids.PATTERN},
        "The session to continue; created if it does not exist.",
        "header",
    ),
    Parameter(
        "Idempotency-Key",
        {"type": "string", "minLength": 1, "maxLength": 255},
        "For 24 hours, a retry with the same key and body gets the first request's answer.",
        "header",
    ),
)

ROOT = Doc(_TAG, "Say that the server is there", None, media_types=("text/plain",))
VERSION = Doc(_TAG, "Tell the version of the API", VersionAnswer)
TAGS = Doc(_TAG, "List models", TagsAnswer)
LOADED = Doc(_TAG, "List models in memory", LoadedModelsAnswer, "All that are served are in memory.")
SHOW = Doc(_TAG, "Show a model", ShowAnswer, body=ModelBody, errors=(NotFound,), example={"model": "default"})
PULL = Doc(
    _TAG,
    "Make sure that a model is there",
    PullAnswer,
    "A model that is not there is fetched where `--egress` allows it and an admin asks. Several who ask for one follow"
    " the same pull; it ends when all have left.",
    body=PullBody,
    errors=(NotFound, Forbidden, Overloaded, ModelLoadFailed),
    events=Stream("How far it is, line by line; whole with `stream: false`.", (PullAnswer,), media_type=MEDIA_TYPE),
    example={"model": "default", "stream": False},
)
DELETE = Doc(
    _TAG,
    "Remove a stored model",
    None,
    "With all of its versions. For admins; a model that is loaded is not removed.",
    body=ModelBody,
    errors=(NotFound, Forbidden, Conflict),
    example={"model": "nobody"},
)
CHAT = Doc(
    _TAG,
    "Chat with a model, as Ollama's clients do",
    OllamaChatAnswer,
    "Ollama's chat, with sessions and server-side tools.",
    body=OllamaChatBody,
    parameters=_HEADERS,
    errors=_GENERATING,
    events=Stream("A line for each piece, unless `stream` is false.", (OllamaChatAnswer,), media_type=MEDIA_TYPE),
    example={"messages": [{"role": "user", "content": "What is 12 * 7?"}], "stream": False},
)
GENERATE = Doc(
    _TAG,
    "Answer a prompt, as Ollama does",
    GenerateAnswer,
    "One prompt as a conversation of its own or, with `raw`, a text to go on from. No tools.",
    body=GenerateBody,
    parameters=_HEADERS,
    errors=_GENERATING,
    events=Stream("A line for each piece, unless `stream` is false.", (GenerateAnswer,), media_type=MEDIA_TYPE),
    example={"prompt": "Why is the sky blue?", "stream": False},
)
EMBED = Doc(
    _TAG,
    "Make embeddings of texts, as Ollama does",
    EmbedAnswer,
    "For models that embed.",
    body=EmbedBody,
    errors=(ContextTooLong, NotFound, Overloaded, ShuttingDown, GenerationFailed),
    example={"input": ["The sky is blue.", "Grass is green."]},
)

"""What each route of Anthropic's API takes and gives. `dialect` puts each beside its path."""

from tenuto.errors import (
    Conflict,
    ContextTooLong,
    GenerationFailed,
    IdempotencyMismatch,
    MissingToolResults,
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
from tenuto.runtime.dialects.anthropic.messages.shapes import STREAMED, CountAnswer, MessageAnswer
from tenuto.runtime.dialects.anthropic.messages.wire import MessagesBody, PromptBody
from tenuto.runtime.dialects.anthropic.models import MOST_ON_A_PAGE, AnthropicModel, AnthropicModels
from tenuto.runtime.http.routes import Doc, Parameter, Stream
from tenuto.sessions import ids

_READING: tuple[type[TenutoError], ...] = (
    UnsupportedParameter,
    ContextTooLong,
    TemplateFailed,
    NotFound,
    Overloaded,
    ShuttingDown,
    StoreFailed,
)
_GENERATING: tuple[type[TenutoError], ...] = (
    *_READING,
    IdempotencyMismatch,
    MissingToolResults,
    Conflict,
    SessionBusy,
    SessionPaused,
    GenerationFailed,
    ToolFailed,
)

_SESSION = Parameter(
    "X-Tenuto-Session",
    {"type": "string", "pattern": ids.PATTERN},
    "The session to continue; created if it does not exist.",
    "header",
)
_KEY = Parameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255},
    "For 24 hours, a retry with the same key and body gets the first request's answer.",
    "header",
)
_EVENTS = Parameter(
    "X-Tenuto-Events", {"type": "string", "enum": ["0", "1"]}, "1: send named events for the server's tools.", "header"
)
_EXAMPLE = {"max_tokens": 1024, "messages": [{"role": "user", "content": "What is 12 * 7?"}]}

MESSAGES = Doc(
    "Messages",
    "Chat with a model, as Anthropic's clients do",
    MessageAnswer,
    "Anthropic's messages, with sessions and server-side tools.",
    body=MessagesBody,
    parameters=(_SESSION, _KEY, _EVENTS),
    errors=_GENERATING,
    events=Stream(
        "With `stream`: the events of a message as Anthropic has them; and the events `agentic_tool_call_progress` and"
        " `agentic_tool_approval_required`, to those who ask for them.",
        STREAMED,
    ),
    example=_EXAMPLE,
)
COUNT = Doc(
    "Messages",
    "Count what a model would read",
    CountAnswer,
    "Takes what a request for a message takes, and generates nothing.",
    body=PromptBody,
    parameters=(_SESSION,),
    errors=_READING,
    example={"messages": _EXAMPLE["messages"]},
)
MODELS = Doc(
    "Models",
    "List models",
    AnthropicModels,
    "With the header `anthropic-version`.",
    parameters=(
        Parameter("limit", {"type": "integer", "minimum": 1, "maximum": MOST_ON_A_PAGE}, "Models per page."),
        Parameter("after_id", {"type": "string"}, "The page begins after this model."),
        Parameter("before_id", {"type": "string"}, "The page ends before this model."),
    ),
)
MODEL = Doc("Models", "Show a model", AnthropicModel, "With the header `anthropic-version`.", errors=(NotFound,))

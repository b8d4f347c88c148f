"""What each route of the API is told to take and give. `routes` puts each beside its path."""

from tenuto.errors import (
    AlreadyDecided,
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
from tenuto.runtime.api.approvals import Decision
from tenuto.runtime.api.sessions import Fork
from tenuto.runtime.dialects.openai.chat.wire import ChatBody
from tenuto.runtime.dialects.openai.completions.wire import CompletionBody
from tenuto.runtime.dialects.openai.tokens import DetokenizeBody, TokenizeBody
from tenuto.runtime.http.answers import (
    ChatAnswer,
    CompletionAnswer,
    DeletedAnswer,
    ImportedAnswer,
    McpServersAnswer,
    ModelAnswer,
    ModelsAnswer,
    RunAnswer,
    SessionAnswer,
    SessionsAnswer,
    StatusAnswer,
    TextAnswer,
    TokensAnswer,
)
from tenuto.runtime.http.openapi import Doc, Parameter
from tenuto.sessions.transfer import Document

GENERATING: tuple[type[TenutoError], ...] = (
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
"""What a request that generates may be answered with."""

_SESSION = Parameter("id", {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"}, "The session's id.", "path")
_MODEL = Parameter("id", {"type": "string", "minLength": 1}, "The model's id; it may hold slashes.", "path")
_KEY = Parameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255},
    "A repeat with the same key and body gets the answer of the first, for a day.",
    "header",
)
_HEADER_SESSION = Parameter(
    "X-Session-Id",
    {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
    "Does what `session_id` in the body does.",
    "header",
)
_EVENTS = Parameter(
    "X-Tenuto-Events", {"type": "string", "enum": ["0", "1"]}, "1: named events of the server's tools.", "header"
)

CHAT = Doc(
    "Chat",
    "An answer of the model",
    ChatAnswer,
    "OpenAI's chat completions, with sessions and with tools that the server runs.",
    body=ChatBody,
    parameters=(_HEADER_SESSION, _KEY, _EVENTS),
    errors=GENERATING,
    events="With `stream`: chunks of the answer as OpenAI has them, the last of them `[DONE]`; and the named events"
    " `agentic_tool_call_progress` and `agentic_tool_approval_required`, to those who ask for them.",
    example={"messages": [{"role": "user", "content": "What is 12 * 7?"}], "session_id": "homework"},
)
COMPLETIONS = Doc(
    "Chat",
    "Texts that go on where others end",
    CompletionAnswer,
    "OpenAI's older completions: raw text, without sessions and tools.",
    body=CompletionBody,
    errors=GENERATING,
    events="With `stream`: pieces of the texts as OpenAI has them, the last of them `[DONE]`.",
    example={"prompt": "Once upon a time", "max_tokens": 16},
)
TOKENIZE = Doc(
    "Chat",
    "The tokens of a text, or those that the model would read of a chat",
    TokensAnswer,
    "One of `content`, `prompt` and `messages`; with `messages`, all that a chat takes.",
    body=TokenizeBody,
    errors=GENERATING,
    example={"content": "Hello", "with_pieces": True},
)
DETOKENIZE = Doc(
    "Chat",
    "The text of tokens",
    TextAnswer,
    body=DetokenizeBody,
    errors=(NotFound,),
    example={"tokens": [72, 105]},
)
MODELS = Doc("Models", "All models, the default one first", ModelsAnswer)
MODEL = Doc("Models", "One model", ModelAnswer, parameters=(_MODEL,), errors=(NotFound,))

SESSIONS = Doc(
    "Sessions",
    "A page of the sessions, the newest first",
    SessionsAnswer,
    parameters=(
        Parameter("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}, "How many."),
        Parameter("after", {"type": "string"}, "The `last_id` of the page before."),
        Parameter("implicit", {"type": "string", "enum": ["0", "1", "true", "false"]}, "Those too that nobody named."),
    ),
    errors=(StoreFailed,),
)
SESSION = Doc("Sessions", "A whole session", Document, parameters=(_SESSION,), errors=(NotFound, StoreFailed))
IMPORT = Doc(
    "Sessions",
    "Put a session in the place of the one of that id",
    ImportedAnswer,
    body=Document,
    parameters=(_SESSION,),
    errors=(SessionBusy, StoreFailed),
    example={
        "version": 1,
        "created_at": 1750000000.0,
        "updated_at": 1750000000.0,
        "items": [{"kind": "user", "text": "Hello"}, {"kind": "assistant", "text": "Hi!"}],
    },
)
DELETE = Doc(
    "Sessions",
    "Delete a session; its open run is cancelled",
    DeletedAnswer,
    parameters=(_SESSION,),
    errors=(NotFound, StoreFailed),
)
FORK = Doc(
    "Sessions",
    "A new session with the first items of another",
    SessionAnswer,
    body=Fork,
    body_required=False,
    parameters=(_SESSION,),
    errors=(NotFound, Conflict, Overloaded, StoreFailed),
    example={"at": 2},
)

RUN = Doc("Runs", "How a run stands", RunAnswer, errors=(NotFound,))
CANCEL = Doc(
    "Runs",
    "Stop a run",
    RunAnswer,
    "Answered when it has stopped. One that has ended stays as it is.",
    errors=(NotFound, StoreFailed),
)
EVENTS = Doc(
    "Runs",
    "A run's events, and those to come",
    None,
    "For whoever comes back to a run. It goes on when the watcher leaves.",
    media_types=(),
    parameters=(
        Parameter("after", {"type": "integer", "minimum": 0, "maximum": 10**15 - 1}, "Only events of a higher number."),
        Parameter("Last-Event-ID", {"type": "string"}, "The same, as browsers send it.", "header"),
    ),
    errors=(NotFound,),
    events="JSON objects with `type` and `number`: text_added, reasoning_added, client_call_started,"
    " client_call_arguments, tool_calling, tool_returned, round_ended, and last run_paused or run_done. Numbers only"
    " grow. `told_again` (`after`, no number) comes first where the events up to `after` were told before the run was"
    " read from the store, as after a restart: all that was kept of the run follows, in fewer and larger pieces.",
)
APPROVAL = Doc(
    "Runs",
    "Answer a tool call that waits for a person",
    RunAnswer,
    "The run goes on by itself; its events are at /v1/runs/{id}/events.",
    body=Decision,
    errors=(NotFound, AlreadyDecided, ShuttingDown, StoreFailed),
    example={"decision": "approve"},
)

MCP_SERVERS = Doc(
    "Server",
    "The configured MCP servers, how each stands, and what it said last",
    McpServersAnswer,
    parameters=(
        Parameter(
            "stderr", {"type": "integer", "minimum": 0, "maximum": 200, "default": 20}, "How many lines of each."
        ),
    ),
)
HEALTH = Doc("Server", "Whether it is alive and makes progress", StatusAnswer, also={503: StatusAnswer}, public=True)
READY = Doc("Server", "Whether it takes requests", StatusAnswer, also={503: StatusAnswer}, public=True)
METRICS = Doc(
    "Server",
    "Its figures, for Prometheus",
    None,
    media_types=("text/plain", "application/openmetrics-text"),
)

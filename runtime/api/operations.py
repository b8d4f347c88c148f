"""What each route of Tenuto's own API takes and gives. `routes` puts each beside its path."""

from tenuto.errors import (
    AlreadyDecided,
    Conflict,
    Forbidden,
    ModelLoadFailed,
    NoRoomForModel,
    NotFound,
    Overloaded,
    ServerUnreachable,
    SessionBusy,
    ShuttingDown,
    StoreFailed,
    ToolFailed,
)
from tenuto.runtime.api.approvals import DecisionBody
from tenuto.runtime.api.health import StatusAnswer
from tenuto.runtime.api.inputs import InputBody
from tenuto.runtime.api.mcp_offers import CompleteBody, PromptBody, ReadBody
from tenuto.runtime.api.models import LoadBody
from tenuto.runtime.api.sessions import Fork
from tenuto.runtime.http.routes import Doc, Parameter, Stream
from tenuto.runtime.schema.events import EVENTS as EVENT_FORMS
from tenuto.runtime.schema.events import VERSION
from tenuto.runtime.schema.mcp_offers import (
    CompletionAnswer,
    FilledAnswer,
    PromptsAnswer,
    ReadAnswer,
    ResourcesAnswer,
    TemplatesAnswer,
)
from tenuto.runtime.schema.mcp_servers import McpServersAnswer
from tenuto.runtime.schema.models import ModelAnswer, ModelsAnswer
from tenuto.runtime.schema.questions import InputsAnswer
from tenuto.runtime.schema.runs import RunAnswer
from tenuto.runtime.schema.sessions import DeletedAnswer, ImportedAnswer, SessionAnswer, SessionsAnswer
from tenuto.sessions import ids
from tenuto.sessions.transfer import Document

_SESSION = Parameter("id", {"type": "string", "pattern": ids.PATTERN}, "The session's id.", "path")
_MODEL = Parameter("id", {"type": "string", "minLength": 1}, "The model's id; it may contain slashes.", "path")
MODELS = Doc("Models", "List models and their states, the default first", ModelsAnswer)
MODEL = Doc("Models", "One model", ModelAnswer, parameters=(_MODEL,), errors=(NotFound,))
LOAD = Doc(
    "Models",
    "Load a model, or replace it by another version",
    ModelAnswer,
    "For admins. Answers when the model is loaded. Requests load what they ask for by themselves.",
    body=LoadBody,
    body_required=False,
    parameters=(_MODEL,),
    errors=(NotFound, Forbidden, Conflict, ModelLoadFailed, NoRoomForModel, Overloaded, ShuttingDown),
    example={"pin": True},
)
UNLOAD = Doc(
    "Models",
    "Unload a model once nobody uses it",
    ModelAnswer,
    "For admins. Answers when it is freed, or after 30 s, when it still goes on.",
    parameters=(_MODEL,),
    errors=(NotFound, Forbidden, Conflict),
)

SESSIONS = Doc(
    "Sessions",
    "List sessions, newest first",
    SessionsAnswer,
    parameters=(
        Parameter("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}, "How many to return."),
        Parameter("after", {"type": "string"}, "The `last_id` of the previous page."),
        Parameter(
            "implicit", {"type": "string", "enum": ["0", "1", "true", "false"]}, "Include sessions without a given id."
        ),
    ),
    errors=(StoreFailed,),
)
SESSION = Doc("Sessions", "Export a session", Document, parameters=(_SESSION,), errors=(NotFound, StoreFailed))
IMPORT = Doc(
    "Sessions",
    "Import a session, replacing the one with that id",
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
    "Fork a session: a new one with the first items of another",
    SessionAnswer,
    body=Fork,
    body_required=False,
    parameters=(_SESSION,),
    errors=(NotFound, Conflict, Overloaded, StoreFailed),
    example={"at": 2},
)

RUN = Doc("Runs", "Get a run's state", RunAnswer, errors=(NotFound,))
CANCEL = Doc(
    "Runs",
    "Cancel a run",
    RunAnswer,
    "Returns once the run has stopped. A run that has already ended is left as it is.",
    errors=(NotFound, StoreFailed),
)
EVENTS = Doc(
    "Runs",
    "Follow a run's events, past and future",
    None,
    "For clients that reconnect to a run. Disconnecting does not stop the run.",
    media_types=(),
    parameters=(
        Parameter(
            "after", {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}, "Only events with a higher number."
        ),
        Parameter("Last-Event-ID", {"type": "string"}, "The same, as browsers send it on reconnect.", "header"),
    ),
    errors=(NotFound,),
    events=Stream(
        f"JSON objects with `type`, version {VERSION}, and a `number` that only grows; the last is `run_paused` or"
        " `run_done`. `told_again` (without a number) comes first where the events up to `after` were told before the"
        " run was read from the store, as after a restart: all that was kept of the run follows, in fewer and larger"
        " pieces.",
        EVENT_FORMS,
    ),
)
APPROVAL = Doc(
    "Runs",
    "Approve or deny a tool call",
    RunAnswer,
    "The run then continues on its own; its events are at /v1/runs/{id}/events.",
    body=DecisionBody,
    errors=(NotFound, AlreadyDecided, ShuttingDown, StoreFailed),
    example={"decision": "approve"},
)

INPUTS = Doc(
    "Runs",
    "List what MCP servers ask in the middle of calls",
    InputsAnswer,
    "The oldest first, at most 100, for the caller's own runs.",
    errors=(StoreFailed,),
)
INPUT = Doc(
    "Runs",
    "Answer what an MCP server asks",
    RunAnswer,
    "The run then continues on its own; its events are at /v1/runs/{id}/events. Content goes to that server and is not"
    " kept.",
    body=InputBody,
    errors=(NotFound, AlreadyDecided, ShuttingDown, StoreFailed),
    example={"action": "accept", "content": {"name": "Ann"}},
)

MCP_SERVERS = Doc(
    "Server",
    "The configured MCP servers: state, tools, last error and last output",
    McpServersAnswer,
    parameters=(
        Parameter(
            "stderr",
            {"type": "integer", "minimum": 0, "maximum": 200, "default": 20},
            "How many lines of stderr for each.",
        ),
    ),
)
_OFFERS = (
    Parameter("server", {"type": "string"}, "Only what this server has."),
    Parameter("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 50}, "How many to return."),
    Parameter("after", {"type": "integer", "minimum": 0, "maximum": 10**6}, "The `last_id` of the previous page."),
)
MCP_PROMPTS = Doc("MCP", "List the prompts of the MCP servers", PromptsAnswer, parameters=_OFFERS, errors=(NotFound,))
MCP_RESOURCES = Doc(
    "MCP", "List the resources of the MCP servers", ResourcesAnswer, parameters=_OFFERS, errors=(NotFound,)
)
MCP_TEMPLATES = Doc("MCP", "List the templates of resources", TemplatesAnswer, parameters=_OFFERS, errors=(NotFound,))
MCP_PROMPT = Doc(
    "MCP",
    "Get a prompt with its arguments",
    FilledAnswer,
    'To attach it to a message instead, let the message have a part `{"type": "mcp_prompt", ...}` with these fields.',
    body=PromptBody,
    errors=(NotFound, ServerUnreachable, ToolFailed),
    example={"server": "notes", "name": "greet", "arguments": {"who": "Ann"}},
)
MCP_READ = Doc(
    "MCP",
    "Read a resource, listed or of a template",
    ReadAnswer,
    'To attach it to a message instead, let the message have a part `{"type": "mcp_resource", ...}` with these fields.',
    body=ReadBody,
    errors=(NotFound, ServerUnreachable, ToolFailed),
    example={"server": "notes", "uri": "memo://a"},
)
MCP_COMPLETE = Doc(
    "MCP",
    "Complete an argument of a prompt or of a template",
    CompletionAnswer,
    body=CompleteBody,
    errors=(NotFound, ServerUnreachable, ToolFailed),
    example={"server": "notes", "name": "greet", "argument": {"name": "who", "value": "A"}},
)
HEALTH = Doc(
    "Server", "Whether the server is alive and making progress", StatusAnswer, also={503: StatusAnswer}, public=True
)
READY = Doc("Server", "Whether the server accepts requests", StatusAnswer, also={503: StatusAnswer}, public=True)
METRICS = Doc(
    "Server",
    "Metrics in Prometheus format",
    None,
    media_types=("text/plain", "application/openmetrics-text"),
)

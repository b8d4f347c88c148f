"""What each route of Tenuto's own API takes and gives. `routes` puts each beside its path."""

from tenuto.errors import (
    AlreadyDecided,
    Conflict,
    NotFound,
    Overloaded,
    SessionBusy,
    ShuttingDown,
    StoreFailed,
)
from tenuto.runtime.api.approvals import DecisionBody
from tenuto.runtime.api.health import StatusAnswer
from tenuto.runtime.api.sessions import Fork
from tenuto.runtime.http.routes import Doc, Parameter, Stream
from tenuto.runtime.schema.events import EVENTS as EVENT_FORMS
from tenuto.runtime.schema.events import VERSION
from tenuto.runtime.schema.mcp_servers import McpServersAnswer
from tenuto.runtime.schema.models import ModelAnswer, ModelsAnswer
from tenuto.runtime.schema.runs import RunAnswer
from tenuto.runtime.schema.sessions import DeletedAnswer, ImportedAnswer, SessionAnswer, SessionsAnswer
from tenuto.sessions import ids
from tenuto.sessions.transfer import Document

_SESSION = Parameter("id", {"type": "string", "pattern": ids.PATTERN}, "The session's id.", "path")
_MODEL = Parameter("id", {"type": "string", "minLength": 1}, "The model's id; it may hold slashes.", "path")
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
    "Answer a tool call that waits for a person",
    RunAnswer,
    "The run goes on by itself; its events are at /v1/runs/{id}/events.",
    body=DecisionBody,
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

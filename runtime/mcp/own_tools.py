"""The runtime's own tools as MCP lists them: `chat`, and those over sessions, runs and models. No behaviour."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import mcp.types as t

from tenuto.runtime.http.shape import Shape
from tenuto.runtime.mcp import chat
from tenuto.runtime.mcp.icons import Picture, icon
from tenuto.runtime.schema.models import ModelsAnswer
from tenuto.runtime.schema.runs import RunAnswer
from tenuto.runtime.schema.sessions import DeletedAnswer, SessionAnswer, SessionsAnswer
from tenuto.runtime.schema.transcript import MOST_ITEMS, PAGE, TranscriptAnswer
from tenuto.sessions import ids

SESSION_GET = "session_get"
SESSION_LIST = "session_list"
SESSION_FORK = "session_fork"
SESSION_DELETE = "session_delete"
RUN_GET = "run_get"
RUN_CANCEL = "run_cancel"
RUN_RESUME = chat.RUN_RESUME
MODELS_LIST = "models_list"

MOST_LISTED = 100
LISTED = 20

_SESSION_ID = {"type": "string", "pattern": ids.PATTERN}
_RUN_ID = {"type": "string", "minLength": 1, "maxLength": 128}


def _object(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


_RESULT = _object(
    {
        "tool_call_id": {"type": "string", "minLength": 1},
        "content": {"type": "string"},
        "is_error": {"type": "boolean"},
    },
    "tool_call_id",
    "content",
)
_RESUME = _object(
    {
        "run_id": {**_RUN_ID, "description": "The paused run."},
        "decision": {"enum": ["approve", "deny"], "description": "The answer to an approval."},
        "answer": _object(
            {"action": {"enum": ["accept", "decline", "cancel"]}, "content": {"type": "object"}},
            "action",
            description="The answer to what an MCP server asks; content fits its requested_schema.",
        ),
        "message": {"type": "string", "description": "With deny: what to tell the model."},
        "remember_for_session": {"type": "boolean", "description": "With approve: do not ask again in this session."},
        "results": {
            "type": "array",
            "minItems": 1,
            "items": _RESULT,
            "description": "Results of the client tools that the run is waiting for.",
        },
    },
    "run_id",
    dependentRequired={"message": ["decision"], "remember_for_session": ["decision"]},
)

INPUTS: dict[str, dict[str, Any]] = {
    chat.CHAT: chat.INPUT_SCHEMA,
    SESSION_GET: _object(
        {
            "session_id": _SESSION_ID,
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_ITEMS, "default": PAGE},
            "before": {
                "type": "integer",
                "minimum": 0,
                "description": "The `first` of a later page: get the items before it. By default, the last ones.",
            },
        },
        "session_id",
    ),
    SESSION_LIST: _object(
        {
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_LISTED, "default": LISTED},
            "after": {**_SESSION_ID, "description": "The last_id of the previous page."},
            "implicit": {"type": "boolean", "description": "Include conversations without a given id."},
        }
    ),
    SESSION_FORK: _object(
        {
            "session_id": _SESSION_ID,
            "at": {
                "type": "integer",
                "minimum": 0,
                "description": "Number of items to copy; default: all complete turns.",
            },
            "new_id": {**_SESSION_ID, "description": "The fork's id; by default, the server makes one."},
        },
        "session_id",
    ),
    SESSION_DELETE: _object({"session_id": _SESSION_ID}, "session_id"),
    RUN_GET: _object({"run_id": _RUN_ID}, "run_id"),
    RUN_CANCEL: _object({"run_id": _RUN_ID}, "run_id"),
    RUN_RESUME: _RESUME,
    MODELS_LIST: _object({}),
}
"""What each of them takes."""

_READS = t.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
_CHANGES = t.ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False)
_DESTROYS = t.ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)


@dataclass(frozen=True, slots=True)
class _Own:
    """What is said of one of them; what it takes is in INPUTS."""

    name: str
    title: str
    description: str
    notes: t.ToolAnnotations
    answer: type[Shape] | None = None
    """None: as `chat` answers, and so as a task where the client wants one."""


_OWN = (
    _Own(chat.CHAT, "Chat with the local model", chat.DESCRIPTION, _CHANGES),
    _Own(
        SESSION_GET,
        "Show a conversation",
        "Get the last items of a conversation, in order.",
        _READS,
        TranscriptAnswer,
    ),
    _Own(
        SESSION_LIST,
        "List the conversations",
        "List conversations, newest first, in pages.",
        _READS,
        SessionsAnswer,
    ),
    _Own(
        SESSION_FORK,
        "Fork a conversation",
        "Copy the first items of a conversation into a new one, which `chat` can continue.",
        _CHANGES,
        SessionAnswer,
    ),
    _Own(
        SESSION_DELETE,
        "Delete a conversation",
        "Delete a conversation and cancel its open run.",
        _DESTROYS,
        DeletedAnswer,
    ),
    _Own(RUN_GET, "Show a run", "Get a run's status, what it is waiting for, and its text so far.", _READS, RunAnswer),
    _Own(RUN_CANCEL, "Cancel a run", "Cancel a run. One that has ended is left as it is.", _DESTROYS, RunAnswer),
    _Own(
        RUN_RESUME,
        "Resume a paused run",
        "Give a paused run a decision or the results of client tools, and get the rest of its answer.",
        _CHANGES,
    ),
    _Own(
        MODELS_LIST,
        "List the models",
        "List the models that `chat` can use, the default first.",
        _READS,
        ModelsAnswer,
    ),
)


_PICTURES: dict[str, Picture] = {
    "chat": "chat",
    "session": "session",
    "run": "run",
    "models": "model",
}
"""By what a tool's name begins with."""


@cache
def own_tools() -> tuple[t.Tool, ...]:
    """All of them, `chat` first."""
    return tuple(
        t.Tool(
            name=one.name,
            title=one.title,
            description=one.description,
            input_schema=INPUTS[one.name],
            output_schema=chat.OUTPUT_SCHEMA
            if one.answer is None
            else one.answer.model_json_schema(mode="serialization"),
            annotations=one.notes,
            execution=t.ToolExecution(task_support="optional") if one.answer is None else None,
            icons=[icon(_PICTURES[one.name.partition("_")[0]])],
        )
        for one in _OWN
    )

"""The names of our own resources: sessions, their runs, and models. Pure.

A model's id may hold anything, so it is percent-encoded in its URI; one that is written plainly is understood as well.
"""

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

import mcp.types as t
from mcp.shared.exceptions import MCPError

from tenuto.sessions import ids

SESSION_TEMPLATE = "session://{id}"
RUN_TEMPLATE = "session://{id}/runs/{run}"
MODEL_TEMPLATE = "model://{id}"

_ID = ids.PATTERN[1:-1]
_SESSION = re.compile(f"session://({_ID})")
_RUN = re.compile(f"session://({_ID})/runs/({_ID})")
_MODEL = re.compile("model://(.{1,512})")


@dataclass(frozen=True, slots=True)
class SessionName:
    """A conversation."""

    id: str


@dataclass(frozen=True, slots=True)
class RunName:
    """A run of a conversation."""

    session: str
    run: str


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model."""

    id: str


Name = SessionName | RunName | ModelName


def named(uri: str) -> Name | None:
    """What a URI names; None where it is none of ours."""
    if found := _SESSION.fullmatch(uri):
        return SessionName(found[1])
    if found := _RUN.fullmatch(uri):
        return RunName(found[1], found[2])
    if found := _MODEL.fullmatch(uri):
        return ModelName(unquote(found[1]))
    return None


def session_uri(session_id: str) -> str:
    """The resource of a session."""
    return f"session://{session_id}"


def run_uri(session_id: str, run_id: str) -> str:
    """The resource of a run."""
    return f"session://{session_id}/runs/{run_id}"


def model_uri(model_id: str) -> str:
    """The resource of a model."""
    return f"model://{quote(model_id, safe='')}"


def no_resource(uri: str) -> MCPError:
    """What is told of a resource that there is not, or that is somebody else's."""
    return MCPError(code=t.INVALID_PARAMS, message=f"there is no resource {uri[:200]!r}", data={"uri": uri})

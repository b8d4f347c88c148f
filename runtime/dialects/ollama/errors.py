"""Errors in Ollama's form: the status of each class, and the body, whose `error` is a text."""

from pydantic import ConfigDict, Field

from tenuto.access_errors import InsufficientScope, IssuerUnavailable
from tenuto.errors import (
    AlreadyDecided,
    BodyTooLarge,
    CommitUnsettled,
    ConfigurationError,
    Conflict,
    ContextTooLong,
    Forbidden,
    GenerationFailed,
    HeadTooLarge,
    IdempotencyMismatch,
    InvalidRequest,
    LegNotFound,
    McpServerFailed,
    MethodNotAllowed,
    MissingToolResults,
    ModelLoadFailed,
    ModelNotLoaded,
    NoRoomForModel,
    NotFound,
    Overloaded,
    RunUnreadable,
    ServerUnreachable,
    SessionBusy,
    SessionDamaged,
    SessionPaused,
    ShuttingDown,
    StoreFailed,
    StoreUnavailable,
    TemplateFailed,
    TenutoError,
    TookTooLong,
    ToolFailed,
    Unauthenticated,
    UnknownPrevious,
    UnknownUrl,
    UnsupportedParameter,
    UpgradeRequired,
)
from tenuto.runtime.http.errors import ErrorForm, ErrorTable, Problem, WireError
from tenuto.runtime.http.shape import Shape


def _not_found(error: NotFound) -> str:
    """In Ollama's words for models, which clients look for before they ask for a model to be pulled."""
    if error.kind != "model":
        return str(error)
    known = f"; there is {', '.join(error.known)}" if error.known else ""
    return f"model '{error.name}' not found{known}"


def _status(status: int) -> WireError:
    """Ollama's errors have no types."""
    return WireError(status, "")


_INVALID = _status(400)
_CONFLICT = _status(409)
_FAILED = _status(500)
_UNAVAILABLE = _status(503)

OLLAMA: ErrorTable = {
    TenutoError: _FAILED,
    InvalidRequest: _INVALID,
    UnsupportedParameter: _INVALID,
    IdempotencyMismatch: _status(422),
    MissingToolResults: _INVALID,
    ContextTooLong: _INVALID,
    TemplateFailed: _INVALID,
    Unauthenticated: _status(401),
    Forbidden: _status(403),
    InsufficientScope: _status(403),
    IssuerUnavailable: _UNAVAILABLE,
    NotFound: WireError(404, "", words=_not_found),
    LegNotFound: _status(404),
    UnknownPrevious: _INVALID,
    UnknownUrl: _status(404),
    MethodNotAllowed: _status(405),
    UpgradeRequired: _status(426),
    BodyTooLarge: _status(413),
    HeadTooLarge: _status(431),
    TookTooLong: _INVALID,
    Conflict: _CONFLICT,
    SessionBusy: _CONFLICT,
    SessionPaused: _CONFLICT,
    AlreadyDecided: _CONFLICT,
    Overloaded: _UNAVAILABLE,
    ShuttingDown: _UNAVAILABLE,
    GenerationFailed: _FAILED,
    StoreFailed: _FAILED,
    CommitUnsettled: _UNAVAILABLE,
    SessionDamaged: _FAILED,
    RunUnreadable: _FAILED,
    StoreUnavailable: _UNAVAILABLE,
    ServerUnreachable: _status(502),
    ToolFailed: _status(502),
    McpServerFailed: _INVALID,
    ModelLoadFailed: _FAILED,
    ModelNotLoaded: _UNAVAILABLE,
    NoRoomForModel: _UNAVAILABLE,
    ConfigurationError: _FAILED,
}


class OllamaError(Shape):
    """Every error's form, in a stream too. What a program may want to know stands beside the text."""

    model_config = ConfigDict(extra="allow")

    error: str = Field(description="For people; names the field or setting in question.")
    code: str = Field(description="For programs.")
    param: str | None = Field(description="The field in question, such as `messages[0].images[0]`.")


def _body(problem: Problem, entry: WireError) -> OllamaError:
    fields = {"error": problem.message, "code": entry.code or problem.code, "param": problem.param, **problem.data}
    return OllamaError.model_validate(fields)


ERRORS = ErrorForm(OLLAMA, OllamaError, _body)

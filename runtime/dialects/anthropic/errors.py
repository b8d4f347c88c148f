"""Errors in Anthropic's form: the status and type of each class, and the body.

https://docs.anthropic.com/en/api/errors
"""

from collections.abc import Mapping
from typing import Any, Literal

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
from tenuto.sessions.ids import new_hex

REQUEST_ID_HEADER = "request-id"


def _too_long(error: ContextTooLong) -> str:
    """In Anthropic's words, which clients look for before they shorten the conversation."""
    hint = error.hint and f"; {error.hint}"
    return f"prompt is too long: {error.prompt_tokens} tokens > {error.limit} maximum{hint}"


_INVALID = WireError(400, "invalid_request_error")
_FAILED = WireError(500, "api_error")
_CONFLICT = WireError(409, "conflict_error")
_BUSY = WireError(529, "overloaded_error")
"""For now the server as a whole cannot: clients come again by themselves."""

ANTHROPIC: ErrorTable = {
    TenutoError: _FAILED,
    InvalidRequest: _INVALID,
    UnsupportedParameter: _INVALID,
    IdempotencyMismatch: WireError(422, "invalid_request_error"),
    MissingToolResults: _INVALID,
    ContextTooLong: WireError(400, "invalid_request_error", words=_too_long),
    TemplateFailed: _INVALID,
    UnknownPrevious: WireError(400, "invalid_request_error"),
    Unauthenticated: WireError(401, "authentication_error"),
    Forbidden: WireError(403, "permission_error"),
    InsufficientScope: WireError(403, "permission_error"),
    IssuerUnavailable: _BUSY,
    NotFound: WireError(404, "not_found_error"),
    LegNotFound: WireError(404, "not_found_error"),
    UnknownUrl: WireError(404, "not_found_error"),
    MethodNotAllowed: WireError(405, "invalid_request_error"),
    UpgradeRequired: WireError(426, "invalid_request_error"),
    BodyTooLarge: WireError(413, "request_too_large"),
    HeadTooLarge: WireError(431, "request_too_large"),
    TookTooLong: _INVALID,
    Conflict: _CONFLICT,
    SessionBusy: _CONFLICT,
    SessionPaused: _CONFLICT,
    AlreadyDecided: _CONFLICT,
    Overloaded: WireError(429, "rate_limit_error"),
    ShuttingDown: _BUSY,
    GenerationFailed: _FAILED,
    StoreFailed: _FAILED,
    CommitUnsettled: _BUSY,
    SessionDamaged: _FAILED,
    RunUnreadable: _FAILED,
    StoreUnavailable: _BUSY,
    ServerUnreachable: _FAILED,
    ToolFailed: _FAILED,
    McpServerFailed: _INVALID,
    ModelLoadFailed: _FAILED,
    ModelNotLoaded: _BUSY,
    NoRoomForModel: _BUSY,
    ConfigurationError: _FAILED,
}


class MessagesErrorDetails(Shape):
    """For programs. What one may want to know besides stands beside these two."""

    model_config = ConfigDict(extra="allow")

    error_code: str
    param: str | None = Field(description="The field in question, such as `messages[0].content`.")


class MessagesErrorFields(Shape):
    """What went wrong."""

    type: str
    message: str = Field(description="For people; names the field or setting in question.")
    details: MessagesErrorDetails


class MessagesError(Shape):
    """Every error's form."""

    type: Literal["error"]
    error: MessagesErrorFields
    request_id: str = Field(description="The same as the header `request-id`.")


def new_request_id() -> str:
    """An id for a request, for whoever looks for it in what the client has kept."""
    return f"req_{new_hex(24)}"


def _body(problem: Problem, entry: WireError) -> MessagesError:
    details: dict[str, Any] = {"error_code": entry.code or problem.code, "param": problem.param, **problem.data}
    fields = MessagesErrorFields(
        type=entry.type, message=problem.message, details=MessagesErrorDetails.model_validate(details)
    )
    return MessagesError(type="error", error=fields, request_id=new_request_id())


def _headers(body: Shape) -> Mapping[str, str]:
    assert isinstance(body, MessagesError)
    return {REQUEST_ID_HEADER: body.request_id}


ERRORS = ErrorForm(ANTHROPIC, MessagesError, _body, _headers)

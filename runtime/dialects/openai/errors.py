"""Errors in OpenAI's form: the status, type and code of each class, and the body.

https://platform.openai.com/docs/guides/error-codes
"""

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


def _too_long(error: ContextTooLong) -> str:
    """In OpenAI's words, which clients look for before they shorten the conversation."""
    hint = error.hint and f" {error.hint.capitalize()}."
    return (
        f"This model's maximum context length is {error.limit} tokens."
        f" However, your messages resulted in {error.size} tokens.{hint}"
    )


OPENAI: ErrorTable = {
    TenutoError: WireError(500, "server_error"),
    InvalidRequest: WireError(400, "invalid_request_error"),
    UnsupportedParameter: WireError(400, "invalid_request_error"),
    IdempotencyMismatch: WireError(422, "invalid_request_error"),
    MissingToolResults: WireError(400, "invalid_request_error"),
    # Agents look for this code to decide that they must shorten the conversation.
    ContextTooLong: WireError(400, "invalid_request_error", "context_length_exceeded", _too_long),
    TemplateFailed: WireError(400, "invalid_request_error"),
    UnknownPrevious: WireError(400, "invalid_request_error"),
    Unauthenticated: WireError(401, "authentication_error", "invalid_api_key"),
    Forbidden: WireError(403, "permission_error"),
    InsufficientScope: WireError(403, "permission_error"),
    IssuerUnavailable: WireError(503, "server_error"),
    NotFound: WireError(404, "not_found_error"),
    LegNotFound: WireError(404, "invalid_request_error", None, lambda e: f"Response with id {e.name!r} not found."),
    UnknownUrl: WireError(404, "invalid_request_error"),
    MethodNotAllowed: WireError(405, "invalid_request_error", "unknown_url"),
    UpgradeRequired: WireError(426, "invalid_request_error"),
    BodyTooLarge: WireError(413, "invalid_request_error"),
    HeadTooLarge: WireError(431, "invalid_request_error"),
    TookTooLong: WireError(400, "invalid_request_error"),
    Conflict: WireError(409, "conflict_error"),
    SessionBusy: WireError(409, "conflict_error"),
    SessionPaused: WireError(409, "conflict_error"),
    AlreadyDecided: WireError(409, "conflict_error"),
    Overloaded: WireError(429, "overloaded_error"),
    ShuttingDown: WireError(503, "server_error"),
    GenerationFailed: WireError(500, "server_error"),
    StoreFailed: WireError(500, "server_error"),
    CommitUnsettled: WireError(503, "server_error"),
    SessionDamaged: WireError(500, "server_error"),
    RunUnreadable: WireError(500, "server_error"),
    StoreUnavailable: WireError(503, "server_error"),
    ServerUnreachable: WireError(502, "server_error"),
    ToolFailed: WireError(502, "server_error"),
    # It is not to be tried again by itself, and clients know it so.
    McpServerFailed: WireError(424, "external_connector_error", "http_error"),
    ModelLoadFailed: WireError(500, "server_error"),
    ModelNotLoaded: WireError(503, "server_error"),
    NoRoomForModel: WireError(503, "server_error"),
    ConfigurationError: WireError(500, "server_error"),
}


class ErrorFields(Shape):
    """What went wrong. What a program may want to know besides stands beside these four."""

    model_config = ConfigDict(extra="allow")

    message: str = Field(description="For people; names the field or setting in question.")
    type: str
    param: str | None = Field(description="The field in question, such as `messages[0].content`.")
    code: str | None = Field(description="For programs.")


class ErrorAnswer(Shape):
    """Every error's form."""

    error: ErrorFields


def _body(problem: Problem, entry: WireError) -> ErrorAnswer:
    fields = {"message": problem.message, "type": entry.type, "param": problem.param}
    code = entry.code or problem.code
    return ErrorAnswer(error=ErrorFields.model_validate({**fields, "code": code, **problem.data}))


ERRORS = ErrorForm(OPENAI, ErrorAnswer, _body)

"""Errors on the wire: for each dialect one table from our classes to its status and type, and the body it expects."""

import functools
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

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
    MissingToolResults,
    ModelLoadFailed,
    NotFound,
    Overloaded,
    RunUnreadable,
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
    UnsupportedParameter,
)
from tenuto.runtime.http.disconnect import ClientGone

logger = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class WireError:
    """How a dialect tells an error. `code` None: the class's own code."""

    status: int
    type: str
    code: str | None = None


ErrorTable = Mapping[type[TenutoError], WireError]

OPENAI: ErrorTable = {
    TenutoError: WireError(500, "server_error"),
    InvalidRequest: WireError(400, "invalid_request_error"),
    UnsupportedParameter: WireError(400, "invalid_request_error"),
    IdempotencyMismatch: WireError(422, "invalid_request_error"),
    MissingToolResults: WireError(400, "invalid_request_error"),
    # Agents look for this code to decide that they must shorten the conversation.
    ContextTooLong: WireError(400, "invalid_request_error", "context_length_exceeded"),
    TemplateFailed: WireError(400, "invalid_request_error"),
    Unauthenticated: WireError(401, "authentication_error", "invalid_api_key"),
    Forbidden: WireError(403, "permission_error"),
    NotFound: WireError(404, "not_found_error"),
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
    ToolFailed: WireError(502, "server_error"),
    ModelLoadFailed: WireError(500, "server_error"),
    ConfigurationError: WireError(500, "server_error"),
}

UNAVAILABLE_RETRY_S = 5
CLIENT_CLOSED_REQUEST = 499
"""For logs alone: nobody reads it."""
INTERNAL = "something went wrong in the server; its log says what"


def wire_error(table: ErrorTable, kind: type[TenutoError]) -> WireError:
    """A class's entry, or that of the nearest class above it."""
    return next(table[cls] for cls in kind.__mro__ if cls in table)


def openai_error(exc: TenutoError) -> dict[str, Any]:
    """OpenAI's error body. What a program may want to know besides stands beside its four fields."""
    known = wire_error(OPENAI, type(exc))
    code = f"{exc.kind}_not_found" if isinstance(exc, NotFound) else known.code or exc.code
    param = exc.param if isinstance(exc, InvalidRequest) else "model" if code == "model_not_found" else None
    return {"error": {"message": str(exc), "type": known.type, "param": param, "code": code} | exc.data}


def openai_error_of_run(message: str | None, code: str | None, run_id: str) -> tuple[int, dict[str, Any]]:
    """Status and body for a run that ended in failure, known only by its error's code."""
    found = next((cls for cls in OPENAI if cls.code == code), TenutoError)
    known = OPENAI[found]
    text = message or "the run failed"
    error = {"message": text, "type": known.type, "param": None, "code": known.code or found.code, "run_id": run_id}
    return known.status, {"error": error}


def openai_response(exc: TenutoError) -> Response:
    """The whole response to a request that fails before anything was sent."""
    status = wire_error(OPENAI, type(exc)).status
    return Response(to_json(openai_error(exc)), status, retry_headers(exc), "application/json")


def retry_headers(exc: TenutoError) -> dict[str, str]:
    """Whether and when to try again, as HTTP and as the OpenAI clients read it."""
    match exc:
        case SessionBusy() | Overloaded():
            return {"retry-after": str(max(1, math.ceil(exc.retry_after_s)))}
        case ShuttingDown() | StoreUnavailable():
            return {"retry-after": str(UNAVAILABLE_RETRY_S)}
        case Conflict():
            return {"x-should-retry": "false"}
        case Unauthenticated():
            return {"www-authenticate": "Bearer"}
        case _:
            return {}


def openai_errors(endpoint: Endpoint) -> Endpoint:
    """An endpoint that answers what goes wrong before anything was sent in OpenAI's form."""

    @functools.wraps(endpoint)
    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except TenutoError as exc:
            return openai_response(exc)
        except ClientGone:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        except Exception:
            logger.exception("%s %s failed", request.method, request.url.path)
            return openai_response(TenutoError(INTERNAL))

    return answer

"""How errors are told: a form has a table from our classes to its status and type, and makes the body. No dialect's."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.responses import Response

from tenuto.access_errors import InsufficientScope, IssuerUnavailable
from tenuto.errors import (
    Conflict,
    InvalidRequest,
    ModelNotLoaded,
    NotFound,
    Overloaded,
    SessionBusy,
    ShuttingDown,
    StoreUnavailable,
    TenutoError,
    Unauthenticated,
    UpgradeRequired,
)
from tenuto.runtime.http.shape import Shape

UNAVAILABLE_RETRY_S = 5
INTERNAL = "internal error; the server's log has the details"


@dataclass(frozen=True, slots=True)
class WireError:
    """How a dialect tells an error. `code` None: the class's own code. `words` None: the error's own text; else what
    makes the text that the dialect's clients look for.
    """

    status: int
    type: str
    code: str | None = None
    words: Callable[[Any], str] | None = None


ErrorTable = Mapping[type[TenutoError], WireError]


@dataclass(frozen=True, slots=True)
class Problem:
    """What there is to tell of an error, in whichever form. `data` is what a program may want to know besides."""

    message: str
    code: str
    param: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


def _no_headers(body: Shape) -> Mapping[str, str]:
    del body
    return {}


@dataclass(frozen=True, slots=True)
class ErrorForm:
    """A dialect's errors. `body` makes what is sent of a problem and its entry; `shape` describes that.

    `headers` are those that the dialect has for such a body, as one that repeats an id of it.
    """

    table: ErrorTable
    shape: type[Shape]
    body: Callable[[Problem, WireError], Shape]
    headers: Callable[[Shape], Mapping[str, str]] = _no_headers

    def entry(self, kind: type[TenutoError]) -> WireError:
        """A class's entry, or that of the nearest class above it."""
        return next(self.table[cls] for cls in kind.__mro__ if cls in self.table)

    def told(self, exc: TenutoError) -> Shape:
        """The body for an error."""
        entry = self.entry(type(exc))
        problem = _problem(exc)
        return self.body(problem if entry.words is None else replace(problem, message=entry.words(exc)), entry)

    def told_of_run(self, message: str | None, code: str | None, run_id: str) -> tuple[int, Shape]:
        """Status and body for a run that ended in failure, known only by its error's code."""
        kind = next((cls for cls in self.table if cls.code == code), TenutoError)
        entry = self.entry(kind)
        return entry.status, self.body(Problem(message or "the run failed", kind.code, data={"run_id": run_id}), entry)

    def response(self, exc: TenutoError) -> Response:
        """The whole response to a request that fails before anything was sent."""
        status, body = self.entry(type(exc)).status, self.told(exc)
        return Response(body.encode(), status, {**error_headers(exc), **self.headers(body)}, "application/json")


def _problem(exc: TenutoError) -> Problem:
    match exc:
        case NotFound():
            return Problem(str(exc), f"{exc.kind}_not_found", "model" if exc.kind == "model" else None, exc.data)
        case InvalidRequest():
            return Problem(str(exc), exc.code, exc.param, exc.data)
        case _:
            return Problem(str(exc), exc.code, None, exc.data)


def error_headers(exc: TenutoError) -> dict[str, str]:
    """What HTTP wants to be said beside an error: whether and when to try again, as the clients of OpenAI and Anthropic
    read it, and what to send instead."""
    match exc:
        case SessionBusy() | Overloaded():
            return {"retry-after": str(max(1, math.ceil(exc.retry_after_s)))}
        case ShuttingDown() | StoreUnavailable() | ModelNotLoaded() | IssuerUnavailable():
            return {"retry-after": str(UNAVAILABLE_RETRY_S)}
        case Conflict():
            return {"x-should-retry": "false"}
        case Unauthenticated():
            return {"www-authenticate": 'Bearer error="invalid_token"' if exc.presented else "Bearer"}
        case InsufficientScope():
            return {"www-authenticate": f'Bearer error="insufficient_scope", scope="{exc.scope}"'}
        case UpgradeRequired():
            return {"upgrade": "websocket", "connection": "upgrade"}
        case _:
            return {}

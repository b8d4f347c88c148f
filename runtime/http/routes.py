"""Routes with their documentation. What their endpoints raise is answered in the form of the request's dialect."""

import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tenuto.errors import TenutoError, UpgradeRequired
from tenuto.runtime.http.dialect import errors_of
from tenuto.runtime.http.disconnect import ClientGone
from tenuto.runtime.http.errors import INTERNAL

logger = logging.getLogger(__name__)

CLIENT_CLOSED_REQUEST = 499
"""For logs alone: nobody reads it."""

EVENTS = "text/event-stream"

Endpoint = Callable[[Request], Awaitable[Response]]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query, a header, or one of the path that has more to say than its name."""

    name: str
    schema: Json
    description: str
    place: Literal["query", "header", "path"] = "query"


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream that a route may answer with: what it is, and the forms of the data of its events, or of its lines where
    its media type is one of lines of JSON.

    `last` is what stands in the data of the last event where that is no JSON.
    """

    description: str
    data: tuple[type[BaseModel], ...] = ()
    last: str | None = None
    media_type: str = EVENTS


@dataclass(frozen=True, slots=True)
class Doc:
    """What a route takes and gives.

    `answer` None: text of `media_types`. `events` is the stream that it may answer with. `errors` are the classes that
    it raises besides those of every route; `also` are other answers by status. With `public`, no key is needed.
    """

    tag: str
    summary: str
    answer: type[BaseModel] | None
    description: str = ""
    media_types: tuple[str, ...] = ("application/json",)
    body: type[BaseModel] | None = None
    body_required: bool = True
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[type[TenutoError], ...] = ()
    events: Stream | None = None
    also: Mapping[int, type[BaseModel]] = field(default_factory=dict)
    public: bool = False
    example: Json | None = None
    """A body that a client may send as it is."""


class DocumentedRoute(Route):
    """A route with its documentation. Its endpoint may raise any TenutoError before it answers."""

    def __init__(self, path: str, endpoint: Endpoint, doc: Doc, methods: Sequence[str] = ("GET",)) -> None:
        super().__init__(path, answering_errors(endpoint), methods=methods)
        self.doc = doc


async def needs_upgrade(request: Request) -> Response:
    """For a GET of a path that has a WebSocket."""
    raise UpgradeRequired(request.url.path)


def answering_errors(endpoint: Endpoint) -> Endpoint:
    """An endpoint that answers what goes wrong before anything was sent in the form of the request's dialect."""

    @functools.wraps(endpoint)
    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except TenutoError as exc:
            return errors_of(request).response(exc)
        except ClientGone:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        except Exception:
            logger.exception("%s %s failed", request.method, request.url.path)
            return errors_of(request).response(TenutoError(INTERNAL))

    return answer

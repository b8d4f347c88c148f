"""Which path leads where, and what every request passes before it gets there."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tenuto.runtime.api.approvals import ApprovalsApi
from tenuto.runtime.api.auth import Authentication, Keys
from tenuto.runtime.api.errors import Endpoint, openai_errors
from tenuto.runtime.api.health import HealthApi, gauges
from tenuto.runtime.api.mcp_servers import McpServersApi
from tenuto.runtime.api.models import ModelsApi
from tenuto.runtime.api.openai_chat import ChatCompletions
from tenuto.runtime.api.runs import RunsApi
from tenuto.runtime.api.security import Guard
from tenuto.runtime.api.sessions import SessionsApi
from tenuto.runtime.loop.runner import Runner
from tenuto.runtime.metrics import Metrics
from tenuto.tools.host import McpServer

PUBLIC = ("/health", "/ready")
"""The paths that need no key."""


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """What the front end needs to know of the server's settings."""

    keep_alive_s: float = 15.0
    stall_s: float = 60.0
    max_body_bytes: int = 16 << 20
    arrival_s: float = 60.0
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()


def routes(
    runner: Runner, metrics: Metrics, settings: ApiSettings, mcp_servers: Sequence[McpServer] = ()
) -> list[Route]:
    """All routes of the HTTP API, but for /mcp. From now on the metrics show this runner's engines. Once a server."""
    metrics.watch(partial(gauges, runner))
    chat = ChatCompletions(runner, settings.keep_alive_s)
    runs = RunsApi(runner, settings.keep_alive_s)
    sessions = SessionsApi(runner)
    models = ModelsApi(runner.models)
    health = HealthApi(runner, metrics, settings.stall_s)
    return [
        _route("/v1/chat/completions", chat.create, methods=["POST"]),
        _route("/v1/models", models.index),
        _route("/v1/models/{id:path}", models.show),
        _route("/v1/sessions", sessions.index),
        _route("/v1/sessions/{id}", sessions.export),
        _route("/v1/sessions/{id}", sessions.put, methods=["PUT"]),
        _route("/v1/sessions/{id}", sessions.delete, methods=["DELETE"]),
        _route("/v1/sessions/{id}/fork", sessions.fork, methods=["POST"]),
        _route("/v1/runs/{id}", runs.show),
        _route("/v1/runs/{id}/cancel", runs.cancel, methods=["POST"]),
        _route("/v1/runs/{id}/events", runs.events),
        _route("/v1/agent/approvals/{id}", ApprovalsApi(runner).decide, methods=["POST"]),
        _route("/v1/mcp/servers", McpServersApi(mcp_servers, runner.registry).index),
        _route("/health", health.health),
        _route("/ready", health.ready),
        _route("/metrics", health.figures),
    ]


def _route(path: str, endpoint: Endpoint, methods: Sequence[str] = ("GET",)) -> Route:
    return Route(path, openai_errors(endpoint), methods=methods)


def guarded(app: ASGIApp, keys: Keys, settings: ApiSettings) -> ASGIApp:
    """The application behind what every request passes: hosts, origins and bodies first, then keys."""
    return Guard(
        Authentication(app, keys, PUBLIC),
        hosts=settings.allowed_hosts,
        origins=settings.allowed_origins,
        max_body_bytes=settings.max_body_bytes,
        arrival_s=settings.arrival_s,
    )


async def _no_route(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    message = f"{request.method} {request.url.path}: {exc.detail.lower()}"
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": "unknown_url"}
    return Response(to_json({"error": error}), exc.status_code, exc.headers, "application/json")


EXCEPTION_HANDLERS: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    HTTPException: _no_route
}
"""For the application: paths and methods that there are not, in OpenAI's form."""

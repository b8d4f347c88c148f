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

from tenuto.runtime.apart.pool import Pool
from tenuto.runtime.api import operations
from tenuto.runtime.api.approvals import ApprovalsApi
from tenuto.runtime.api.health import HealthApi, gauges, server_gauges
from tenuto.runtime.api.mcp_servers import McpServersApi
from tenuto.runtime.api.models import ModelsApi
from tenuto.runtime.api.runs import RunsApi
from tenuto.runtime.api.sessions import SessionsApi
from tenuto.runtime.dialects.openai.chat.endpoint import ChatCompletions
from tenuto.runtime.dialects.openai.completions.endpoint import Completions
from tenuto.runtime.dialects.openai.tokens import TokenizeApi
from tenuto.runtime.http.auth import Authentication, Keys
from tenuto.runtime.http.docs_page import DocsApi
from tenuto.runtime.http.errors import Endpoint, openai_errors
from tenuto.runtime.http.guard import Guard
from tenuto.runtime.http.openapi import Doc, DocumentedRoute, document
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
    runner: Runner, metrics: Metrics, settings: ApiSettings, apart: Pool, mcp_servers: Sequence[McpServer] = ()
) -> list[Route]:
    """All routes of the HTTP API, but for /mcp. From now on the metrics show this runner's engines. Once a server."""
    metrics.watch(partial(gauges, runner), partial(server_gauges, runner))
    chat = ChatCompletions(runner, settings.keep_alive_s)
    runs = RunsApi(runner, settings.keep_alive_s)
    sessions = SessionsApi(runner, apart)
    models = ModelsApi(runner.models)
    completions = Completions(runner, settings.keep_alive_s)
    tokens = TokenizeApi(runner)
    health = HealthApi(runner, metrics, settings.stall_s)
    described = [
        _route("/v1/chat/completions", chat.create, operations.CHAT, methods=["POST"]),
        _route("/v1/completions", completions.create, operations.COMPLETIONS, methods=["POST"]),
        _route("/tokenize", tokens.tokenize, operations.TOKENIZE, methods=["POST"]),
        _route("/detokenize", tokens.detokenize, operations.DETOKENIZE, methods=["POST"]),
        _route("/v1/models", models.index, operations.MODELS),
        _route("/v1/models/{id:path}", models.show, operations.MODEL),
        _route("/v1/sessions", sessions.index, operations.SESSIONS),
        _route("/v1/sessions/{id}", sessions.export, operations.SESSION),
        _route("/v1/sessions/{id}", sessions.put, operations.IMPORT, methods=["PUT"]),
        _route("/v1/sessions/{id}", sessions.delete, operations.DELETE, methods=["DELETE"]),
        _route("/v1/sessions/{id}/fork", sessions.fork, operations.FORK, methods=["POST"]),
        _route("/v1/runs/{id}", runs.show, operations.RUN),
        _route("/v1/runs/{id}/cancel", runs.cancel, operations.CANCEL, methods=["POST"]),
        _route("/v1/runs/{id}/events", runs.events, operations.EVENTS),
        _route("/v1/agent/approvals/{id}", ApprovalsApi(runner).decide, operations.APPROVAL, methods=["POST"]),
        _route("/v1/mcp/servers", McpServersApi(mcp_servers, runner.registry).index, operations.MCP_SERVERS),
        _route("/health", health.health, operations.HEALTH),
        _route("/ready", health.ready, operations.READY),
        _route("/metrics", health.figures, operations.METRICS),
    ]
    docs = DocsApi(partial(document, described))
    return [*described, Route("/openapi.json", docs.document), Route("/docs", docs.page)]


def _route(path: str, endpoint: Endpoint, doc: Doc, methods: Sequence[str] = ("GET",)) -> Route:
    return DocumentedRoute(path, openai_errors(endpoint), methods, doc)


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

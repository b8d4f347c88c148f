"""The HTTP application: what every request passes, and then the dialect whose it is."""

from dataclasses import dataclass
from http.client import METHOD_NOT_ALLOWED
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from tenuto.errors import MethodNotAllowed, UnknownUrl
from tenuto.runtime.http.auth import Authentication, Keys
from tenuto.runtime.http.dialect import Dialect, Dialects, dialect_of, errors_of, recognise
from tenuto.runtime.http.guard import Guard
from tenuto.runtime.http.protected_resource import ProtectedResource
from tenuto.runtime.http.refusal import UnknownScope, refuse
from tenuto.runtime.http.routes import DocumentedRoute

_BLANKS = (b" ", b"\t")


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """What every request is held to."""

    max_body_bytes: int = 16 << 20
    arrival_s: float = 60.0
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()


def application(
    dialects: Dialects, keys: Keys, settings: HttpSettings, resource: ProtectedResource | None = None
) -> ASGIApp:
    """All dialects behind what every request passes: hosts, origins and bodies first, then keys and access tokens."""
    guard = Guard(
        Authentication(_Dispatch(dialects), keys, _public(dialects), resource),
        hosts=settings.allowed_hosts,
        origins=settings.allowed_origins,
        max_body_bytes=settings.max_body_bytes,
        arrival_s=settings.arrival_s,
    )
    return Recognition(guard, dialects)


class Recognition:
    """ASGI middleware: which route a request means, and whose it is. Outermost, as every refusal is told in its
    dialect's form.

    White space behind a header's value is no part of it, though the parser leaves it there.
    """

    def __init__(self, app: ASGIApp, dialects: Dialects) -> None:
        self._app, self._dialects = app, dialects

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on.

        Raises:
            UnknownScope: it is neither a request nor a WebSocket.
        """
        match scope["type"]:
            case "http" | "websocket":
                path = self._dialects.route_path(scope["path"])
                if path != scope["path"]:
                    scope = {**scope, "path": path, "raw_path": quote(path).encode()}
                if any(value[-1:] in _BLANKS for _, value in scope["headers"]):
                    scope = {**scope, "headers": [(name, value.rstrip(b" \t")) for name, value in scope["headers"]]}
                recognise(scope, self._dialects.of(scope))
            case "lifespan":
                recognise(scope, self._dialects.house)
            case _:
                raise UnknownScope(scope)
        await self._app(scope, receive, send)


class _Dispatch:
    """An ASGI application: each request to the routes of its own dialect."""

    def __init__(self, dialects: Dialects) -> None:
        self._apps = {dialect.name: _routed(dialect) for dialect in dialects.all}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect = dialect_of(scope)
        if scope["type"] == "websocket" and not _has_socket(dialect, scope["path"]):
            await refuse(UnknownUrl("WebSocket", scope["path"]), scope, receive, send)
        else:
            await self._apps[dialect.name](scope, receive, send)


def _has_socket(dialect: Dialect, path: str) -> bool:
    return any(isinstance(route, WebSocketRoute) and route.path_regex.match(path) for route in dialect.routes)


def _routed(dialect: Dialect) -> Starlette:
    app = Starlette(routes=dialect.routes, exception_handlers={HTTPException: _no_route})
    app.router.redirect_slashes = False  # `Dialects.route_path` has found the route already
    return app


def _public(dialects: Dialects) -> frozenset[str]:
    """The paths that need no key, as they are documented."""
    routes = (route for dialect in dialects.all for route in dialect.routes)
    return frozenset(route.path for route in routes if isinstance(route, DocumentedRoute) and route.doc.public)


async def _no_route(request: Request, exc: Exception) -> Response:
    """Paths and methods that there are not."""
    assert isinstance(exc, HTTPException)
    kind = MethodNotAllowed if exc.status_code == METHOD_NOT_ALLOWED else UnknownUrl
    response = errors_of(request).response(kind(request.method, request.url.path))
    response.headers.update(exc.headers or {})
    return response

"""What no request may do, whoever sends it: foreign hosts and origins, bodies too large or not JSON. Pure ASGI.

A browser lets any web page send requests to this machine, and DNS rebinding lets the page read the answers. So the
Host must be one of ours, an Origin must be known, and there are no CORS headers.
"""

import ipaddress
import re
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto.errors import BodyTooLarge, Forbidden, InvalidRequest, TenutoError
from tenuto.runtime.api.errors import openai_response

ANY = "*"

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


def is_loopback(name: str) -> bool:
    """Whether a host's name or address can only be this machine."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str | None:
    """The name in a Host header, in lower case and without port and brackets; None where it is malformed."""
    match = _HOST.fullmatch(header)
    return match["name"].strip("[]").lower().rstrip(".") if match else None


class Guard:
    """ASGI middleware. Loopback names are always allowed; `hosts` may hold `*`, `origins` are as browsers send them."""

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str] = (), origins: Collection[str] = (), max_body_bytes: int
    ) -> None:
        self._app = app
        self._hosts = frozenset(host_name(host) or host.lower() for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with what is wrong."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            has_body = self._check(scope["method"], Headers(scope=scope))
        except TenutoError as exc:
            await _refuse(exc, scope, receive, send)
            return
        if has_body:
            await _Counted(self._max_body_bytes, scope, receive, send).run(self._app)
        else:
            await self._app(scope, receive, send)

    def _check(self, method: str, headers: Headers) -> bool:
        """Raise what is wrong; tell whether the request has a body."""
        self._check_host(headers.getlist("host"))
        self._check_origin(headers.getlist("origin"), headers["host"])
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            raise InvalidRequest(f"Content-Length {length!r} is no number", "Content-Length")
        if int(length) > self._max_body_bytes:
            raise BodyTooLarge(self._max_body_bytes)
        has_body = int(length) > 0 or "transfer-encoding" in headers
        if has_body and method in _WITH_BODY:
            _check_type(headers.get("content-type", ""))
        return has_body

    def _check_host(self, hosts: list[str]) -> None:
        name = host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None:
            raise Forbidden("the request needs one valid Host header")
        if not (is_loopback(name) or name in self._hosts or ANY in self._hosts):
            raise Forbidden(f"the host {name!r} is not allowed; the setting allowed_hosts names those that are")

    def _check_origin(self, origins: list[str], host: str) -> None:
        for origin in origins:
            if not self._is_known(origin.lower(), host.lower()):
                raise Forbidden(
                    f"the origin {origin!r} is not allowed; the setting allowed_origins names those that are"
                )

    def _is_known(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
            name = parts.hostname or ""
        except ValueError:
            return False
        ours = is_loopback(name) or parts.netloc == host
        return (ours and parts.scheme in ("http", "https")) or origin in self._origins


def _check_type(content_type: str) -> None:
    """A page can send a form or plain text to anywhere without asking first; JSON it cannot."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise InvalidRequest(f"a body must have Content-Type application/json, not {content_type!r}", "Content-Type")


async def _refuse(exc: TenutoError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer without reading the body; the connection cannot be used again."""
    response = openai_response(exc)
    response.headers["connection"] = "close"
    await response(scope, receive, send)


class _Counted:
    """One request whose body is counted while it is read. Over the limit the answer is 413, whatever the app does."""

    def __init__(self, limit: int, scope: Scope, receive: Receive, send: Send) -> None:
        self._limit, self._scope, self._receive, self._send = limit, scope, receive, send
        self._read = 0
        self._started = False

    @property
    def _is_over(self) -> bool:
        return self._read > self._limit and not self._started

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self._scope, self._next, self._pass)
        except Exception:
            if not self._is_over:
                raise
        if self._is_over:
            await _refuse(BodyTooLarge(self._limit), self._scope, self._receive, self._send)

    async def _next(self) -> Message:
        message = await self._receive()
        self._read += len(message.get("body", b""))
        if self._read > self._limit:
            raise BodyTooLarge(self._limit)
        return message

    async def _pass(self, message: Message) -> None:
        if not self._is_over:
            self._started = True
            await self._send(message)

"""What no request may do, whoever sends it: foreign hosts and origins, bodies too large or not JSON. Pure ASGI.

A browser lets any web page send requests to this machine, and DNS rebinding lets the page read the answers. So the
Host must be one of ours, an Origin must be known, and only pages of listed origins may read what is answered.
"""

import re
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tenuto.errors import BodyTooLarge, Forbidden, InvalidRequest, TenutoError
from tenuto.runtime.addresses import is_loopback
from tenuto.runtime.http.arrival import Arrival, Bodies
from tenuto.runtime.http.cors import Cors
from tenuto.runtime.http.inflating import Inflater
from tenuto.runtime.http.refusal import UnknownScope, refuse

ANY = "*"
ARRIVAL_S = 60.0

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
_MOST_DIGITS = 18
_OF_ENCODING = (b"content-encoding", b"content-length")
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


def host_name(header: str) -> str | None:
    """The name in a Host header, in lower case and without port and brackets; None where it is malformed."""
    match = _HOST.fullmatch(header)
    return match["name"].strip("[]").lower().rstrip(".") if match else None


class Guard:
    """ASGI middleware. Loopback names are always allowed; `hosts` may hold `*`, `origins` are as `Cors` lists them."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
        max_body_bytes: int,
        arrival_s: float = ARRIVAL_S,
    ) -> None:
        self._app = app
        self._hosts = frozenset(host_name(host) or host.lower() for host in hosts)
        self._cors = Cors(origins)
        self._bodies = Bodies(max_body_bytes, arrival_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with what is wrong.

        Raises:
            UnknownScope: it is neither a request nor a WebSocket.
        """
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] not in ("http", "websocket"):
            raise UnknownScope(scope)
        send = self._cors.readable(scope, send)
        try:
            has_body = self._check(scope)
            inflater = _inflater(scope) if has_body else None
        except TenutoError as exc:
            await refuse(exc, scope, receive, send, close=True)
            return
        if (preflight := self._cors.preflight(scope)) is not None:
            await preflight(scope, receive, send)
        elif has_body:
            bare = scope if inflater is None else _without_encoding(scope)
            await Arrival(self._bodies, bare, receive, send, inflater).run(self._app)
        else:
            await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> bool:
        """Raise what is wrong; tell whether the request has a body."""
        headers = Headers(scope=scope)
        self._check_host(headers.getlist("host"))
        self._check_origin(headers.getlist("origin"), headers["host"])
        return scope["type"] == "http" and self._check_body(scope["method"], headers)

    def _check_body(self, method: str, headers: Headers) -> bool:
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal()):
            raise InvalidRequest(f"Content-Length {length[:_MOST_DIGITS]!r} is not a number", "Content-Length")
        # Longer numbers are larger than any limit, and `int` takes time by the square of their length.
        if len(length) > _MOST_DIGITS or int(length) > self._bodies.max_body_bytes:
            raise BodyTooLarge(self._bodies.max_body_bytes)
        has_body = int(length) > 0 or "transfer-encoding" in headers
        if has_body and method in _WITH_BODY:
            _check_type(headers.get("content-type", ""))
        return has_body

    def _check_host(self, hosts: list[str]) -> None:
        name = host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None:
            raise Forbidden("the request must have exactly one valid Host header")
        if not (is_loopback(name) or name in self._hosts or ANY in self._hosts):
            raise Forbidden(f"the host {name!r} is not allowed; to allow it, add it to the setting allowed_hosts")

    def _check_origin(self, origins: list[str], host: str) -> None:
        for origin in origins:
            if not self._is_known(origin.lower(), host.lower()):
                raise Forbidden(
                    f"the origin {origin!r} is not allowed; to allow it, add it to the setting allowed_origins"
                )

    def _is_known(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
            name = parts.hostname or ""
        except ValueError:
            return False
        ours = is_loopback(name) or parts.netloc == host
        return (ours and parts.scheme in ("http", "https")) or self._cors.lists(origin)


def _inflater(scope: Scope) -> Inflater | None:
    """What undoes the compression of a body, if it is compressed. Raises InvalidRequest."""
    encoding = Headers(scope=scope).get("content-encoding", "identity")
    return None if encoding.strip().lower() == "identity" else Inflater(encoding)


def _without_encoding(scope: Scope) -> Scope:
    """The request for those who read its body as it comes out."""
    headers = [(name, value) for name, value in scope["headers"] if name.lower() not in _OF_ENCODING]
    return {**scope, "headers": headers}


def _check_type(content_type: str) -> None:
    """A page can send a form or plain text to anywhere without asking first; JSON it cannot."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise InvalidRequest(f"a body must have Content-Type application/json, not {content_type!r}", "Content-Type")

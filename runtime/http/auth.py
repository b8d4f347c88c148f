"""Who asks: from a key to a principal. The middleware writes it into the request's state."""

import hashlib
import hmac
from collections.abc import Collection, Iterable, Mapping

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from tenuto.errors import Unauthenticated
from tenuto.runtime.http.dialect import dialect_of
from tenuto.runtime.http.refusal import UnknownScope, refuse
from tenuto.sessions.principal import LOCAL, Principal, Role

_WELL_KNOWN = "/.well-known/"


def principal_of(request: HTTPConnection) -> Principal:
    """Who asks. Only behind `Authentication`."""
    principal = request.state.principal
    assert isinstance(principal, Principal)
    return principal


def holder(key: str, name: str | None = None, roles: Iterable[Role] = ()) -> Principal:
    """Who has a key: the user of that name, with whichever key; else one who is named by the key's digest."""
    return Principal(f"key-{_digest(key).hex()[:16]}" if name is None else f"user-{name}", frozenset(roles))


class Keys:
    """The keys that a server knows, and who holds each.

    With `open_to_all`, which is for loopback without keys, everybody is the local user, whatever token they send.
    """

    def __init__(
        self, holders: Mapping[str, Principal], local_secret: str | None = None, *, open_to_all: bool = False
    ) -> None:
        self._open = open_to_all
        self._principals = [(_digest(key), principal) for key, principal in holders.items()]
        if local_secret is not None:
            self._principals.append((_digest(local_secret), LOCAL))

    def principal(self, authorization: str | None) -> Principal:
        """Who an Authorization header stands for.

        Raises:
            Unauthenticated: there is none, it is no bearer token, or nobody has it.
        """
        if self._open:
            return LOCAL
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthenticated("an API key is required: send Authorization: Bearer KEY")
        return self.holder_of(token.strip())

    def holder_of(self, key: str) -> Principal:
        """Who has a key.

        Raises:
            Unauthenticated: nobody.
        """
        if self._open:
            return LOCAL
        presented = _digest(key)
        # Every key is compared, so that the time tells nothing of where one fits.
        matches = [principal for known, principal in self._principals if hmac.compare_digest(known, presented)]
        if not matches:
            raise Unauthenticated("this API key is not recognised")
        return matches[0]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


class Authentication:
    """ASGI middleware: no request or WebSocket passes without a principal, but for requests to the `public` paths and
    to `/.well-known/`, where clients look for how to get a key before they have one."""

    def __init__(self, app: ASGIApp, keys: Keys, public: Collection[str] = ()) -> None:
        self._app, self._keys, self._public = app, keys, frozenset(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it.

        Raises:
            UnknownScope: it is neither a request nor a WebSocket.
        """
        if self._needs_key(scope):
            try:
                principal = self._principal(scope)
            except Unauthenticated as exc:
                await refuse(exc, scope, receive, send)
                return
            scope.setdefault("state", {})["principal"] = principal
        await self._app(scope, receive, send)

    def _needs_key(self, scope: Scope) -> bool:
        match scope["type"]:
            case "http":
                path: str = scope["path"]
                return path not in self._public and not path.startswith(_WELL_KNOWN)
            case "websocket":
                return True
            case "lifespan":
                return False
            case _:
                raise UnknownScope(scope)

    def _principal(self, scope: Scope) -> Principal:
        headers = Headers(scope=scope)
        own = dialect_of(scope).key_header
        if own is not None and own in headers and "authorization" not in headers:
            return self._keys.holder_of(headers[own])
        return self._keys.principal(headers.get("authorization"))

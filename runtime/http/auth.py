"""Who asks: from a key to a principal. The middleware writes it into the request's state."""

import hashlib
import hmac
import re
import time
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto.access_errors import InsufficientScope
from tenuto.errors import (
    InvalidRequest,
    TenutoError,
    Unauthenticated,
)
from tenuto.runtime.http.dialect import dialect_of
from tenuto.runtime.http.protected_resource import ProtectedResource
from tenuto.runtime.http.refusal import POLICY_VIOLATION, UnknownScope, refuse
from tenuto.runtime.oauth.scopes import Grant, scope_of
from tenuto.runtime.oauth.scopes import Scope as TokenScope
from tenuto.sessions.principal import LOCAL, Principal, Role

_WELL_KNOWN = "/.well-known/"
_READS = ("GET", "HEAD", "OPTIONS")
_JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)


def principal_of(request: HTTPConnection) -> Principal:
    """Who asks. Only behind `Authentication`."""
    principal = request.state.principal
    assert isinstance(principal, Principal)
    return principal


def expect_admin(request: HTTPConnection, what: str) -> Principal:
    """Who asks, if they run this server. `what` begins the words of the refusal.

    Raises:
        InsufficientScope: they do not.
    """
    principal = principal_of(request)
    if not principal.is_admin:
        raise InsufficientScope(
            f"{what} by this machine's own user, a key with admin = true, or an access token with the scope"
            f" {scope_of(Role.ADMIN)}",
            scope_of(Role.ADMIN),
        )
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

    @property
    def open(self) -> bool:
        """Whether everybody is the local user."""
        return self._open

    def principal(self, authorization: str | None) -> Principal:
        """Who an Authorization header stands for.

        Raises:
            Unauthenticated: there is none, it is no bearer token, or nobody has it.
        """
        if self._open:
            return LOCAL
        token = bearer(authorization)
        if token is None:
            raise Unauthenticated("an API key is required: send Authorization: Bearer KEY")
        return self.holder_of(token)

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
            raise Unauthenticated("this API key is not recognised", presented=True)
        return matches[0]


def bearer(authorization: str | None) -> str | None:
    """The key or token of an Authorization header; None where there is none."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


class Authentication:
    """ASGI middleware: no request or WebSocket passes without a principal, but for requests to the `public` paths and
    to `/.well-known/`, where clients look for how to get a key before they have one.

    With a `resource`, access tokens are taken beside keys, for what their scopes allow.
    """

    def __init__(
        self, app: ASGIApp, keys: Keys, public: Collection[str] = (), resource: ProtectedResource | None = None
    ) -> None:
        self._app, self._keys, self._public, self._resource = app, keys, frozenset(public), resource

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it.

        Raises:
            UnknownScope: it is neither a request nor a WebSocket.
        """
        if self._needs_key(scope):
            if self._resource is not None:
                send = self._resource.challenged(send, scope["path"])
            try:
                principal, grant = await self._who(scope)
            except TenutoError as exc:
                await refuse(exc, scope, receive, send)
                return
            scope.setdefault("state", {})["principal"] = principal
            if grant is not None and scope["type"] == "websocket":
                receive = _until(grant.expires_at, receive, send)
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

    async def _who(self, scope: Scope) -> tuple[Principal, Grant | None]:
        """Who asks, and by which token where it is one."""
        headers = Headers(scope=scope)
        own = dialect_of(scope).key_header
        if own is not None and own in headers and "authorization" not in headers:
            return self._keys.holder_of(headers[own]), None
        given = headers.get("authorization")
        if self._keys.open:
            return self._keys.principal(given), None
        _expect_one_key(scope, headers)
        if self._resource is None:
            return self._keys.principal(given), None
        return await self._key_or_token(scope, given, self._resource)

    async def _key_or_token(
        self, scope: Scope, given: str | None, resource: ProtectedResource
    ) -> tuple[Principal, Grant | None]:
        token = bearer(given)
        if token is None:
            raise Unauthenticated("an API key or an access token is required: send Authorization: Bearer TOKEN")
        try:
            return self._keys.holder_of(token), None
        except Unauthenticated:
            if not _JWT.fullmatch(token):
                raise
        grant = await resource.tokens.grant(token)
        needed = TokenScope.READ if scope["type"] == "http" and scope["method"] in _READS else TokenScope.RUN
        if not grant.allows(needed):
            raise InsufficientScope(f"this access token lacks the scope {needed}", needed)
        return grant.principal, grant


def _expect_one_key(scope: Scope, headers: Headers) -> None:
    """Whoever sends two leaves open which one counts, and what stands in a URL stands in logs."""
    if len(headers.getlist("authorization")) > 1:
        raise InvalidRequest("a request has one Authorization header at most", "Authorization")
    query: bytes = scope.get("query_string", b"")
    if b"access_token" in query and "access_token" in parse_qs(query.decode("latin-1"), keep_blank_values=True):
        raise InvalidRequest("an access token does not belong into a URL: send Authorization: Bearer", "access_token")


def _until(expires_at: float, receive: Receive, send: Send) -> Receive:
    """A `receive` that ends a WebSocket at the first message after its token has expired."""

    async def take() -> Message:
        message = await receive()
        if message["type"] == "websocket.receive" and time.time() > expires_at:
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": "the access token has expired"})
            return {"type": "websocket.disconnect", "code": POLICY_VIOLATION}
        return message

    return take

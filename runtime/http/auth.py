"""Who asks: from a bearer token to a principal. The middleware writes it into the request's state."""

import hashlib
import hmac
from collections.abc import Collection, Iterable, Mapping

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from tenuto.errors import Unauthenticated
from tenuto.runtime.http.errors import openai_response
from tenuto.sessions.principal import LOCAL, Principal, Role


def principal_of(request: Request) -> Principal:
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
            raise Unauthenticated("an API key is needed: Authorization: Bearer KEY")
        presented = _digest(token.strip())
        # Every key is compared, so that the time tells nothing of where one fits.
        matches = [principal for known, principal in self._principals if hmac.compare_digest(known, presented)]
        if not matches:
            raise Unauthenticated("this API key is not known")
        return matches[0]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


class Authentication:
    """ASGI middleware: no request passes without a principal, but for the `public` paths."""

    def __init__(self, app: ASGIApp, keys: Keys, public: Collection[str] = ()) -> None:
        self._app, self._keys, self._public = app, keys, frozenset(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        if scope["type"] == "http" and scope["path"] not in self._public:
            try:
                principal = self._keys.principal(Headers(scope=scope).get("authorization"))
            except Unauthenticated as exc:
                await openai_response(exc)(scope, receive, send)
                return
            scope.setdefault("state", {})["principal"] = principal
        await self._app(scope, receive, send)

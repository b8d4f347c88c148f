"""What lets pages of listed origins call, and read the answers: preflights and CORS headers. No I/O.

https://fetch.spec.whatwg.org/#http-cors-protocol. Not Starlette's middleware: behind the guard it would leave what the
guard refuses unreadable, and in front of it, it would answer preflights of hosts and origins that the guard refuses.
"""

from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Scope, Send

_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
_MAX_AGE_S = 600
_REQUESTED_METHOD, _REQUESTED_HEADERS = "access-control-request-method", "access-control-request-headers"
_PRIVATE_NETWORK = "access-control-request-private-network"
_ANY_HOST = "://*"
_WEB = ("http", "https")


class Cors:
    """The origins whose pages may call. Those of programs may be listed by their scheme alone, as `app://*`: each
    installation of an editor or browser has another host."""

    def __init__(self, origins: Collection[str] = ()) -> None:
        listed = {origin.lower().rstrip("/") for origin in origins}
        self._schemes = {one.removesuffix(_ANY_HOST) for one in listed if one.endswith(_ANY_HOST)}.difference(_WEB)
        self._origins = listed

    def lists(self, origin: str) -> bool:
        """Whether an origin, as browsers send it, is listed."""
        scheme, parted, _ = origin.lower().partition("://")
        return origin.lower() in self._origins or (bool(parted) and scheme in self._schemes)

    def readable(self, scope: Scope, send: Send) -> Send:
        """A `send` that lets a page of a listed origin read the answer, whatever it is."""
        origin = self._origin(scope)
        if origin is None:
            return send
        # No credentials are allowed, keys come in a header of their own; so all headers may be read.
        more = [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", b"*"),
            (b"vary", b"Origin"),
        ]

        async def pass_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        return pass_on

    def preflight(self, scope: Scope) -> Response | None:
        """The answer to a browser that asks whether a page of a listed origin may call; None to anybody else."""
        if self._origin(scope) is None or scope["method"] != "OPTIONS":
            return None
        asked = Headers(scope=scope)
        if _REQUESTED_METHOD not in asked:
            return None
        headers = {"access-control-allow-methods": _METHODS, "access-control-max-age": str(_MAX_AGE_S)}
        if _REQUESTED_HEADERS in asked:
            headers["access-control-allow-headers"] = asked[_REQUESTED_HEADERS]
        if asked.get(_PRIVATE_NETWORK) == "true":
            headers["access-control-allow-private-network"] = "true"
        return Response(status_code=204, headers=headers)

    def _origin(self, scope: Scope) -> str | None:
        """The request's origin if it is listed."""
        if scope["type"] != "http" or not self._origins:
            return None
        origins = Headers(scope=scope).getlist("origin")
        return origins[0] if len(origins) == 1 and self.lists(origins[0]) else None

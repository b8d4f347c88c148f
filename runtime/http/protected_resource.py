"""What this server is to OAuth: a protected resource that names its authorization servers to whoever is refused.

https://www.rfc-editor.org/rfc/rfc9728 and the MCP specification's page on authorization.
"""

from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Send

from tenuto.errors import UnknownUrl
from tenuto.runtime.http.routes import answering_errors
from tenuto.runtime.oauth.scopes import Grant, Scope

WELL_KNOWN = "/.well-known/oauth-protected-resource"
MCP = "/mcp"
_HEADER = "www-authenticate"
_STARTS = ("http.response.start", "websocket.http.response.start")


class Grants(Protocol):
    """Who checks access tokens."""

    async def grant(self, token: str) -> Grant:
        """What a token lets its holder do. Raises Unauthenticated and IssuerUnavailable."""


@dataclass(frozen=True, slots=True)
class ProtectedResource:
    """A server at its public URL, which has no slash at its end. It has two names: that of its MCP endpoint, which
    MCP clients ask tokens for, and that of all. A token for either is good for both."""

    url: str
    issuers: tuple[str, ...]
    tokens: Grants

    def challenged(self, send: Send, path: str) -> Send:
        """A `send` that completes a refusal's challenge by where to learn of the authorization servers."""

        async def pass_on(message: Message) -> None:
            if message["type"] in _STARTS and message["status"] in (401, 403):
                message = {**message, "headers": [*message.get("headers", ())]}
                headers = MutableHeaders(raw=message["headers"])
                if (challenge := headers.get(_HEADER)) is not None:
                    headers[_HEADER] = self._completed(challenge, path)
            await send(message)

        return pass_on

    def _completed(self, challenge: str, path: str) -> str:
        scheme, _, parameters = challenge.partition(" ")
        given = [parameters] if parameters else []
        if "scope=" not in parameters:
            given.append(f'scope="{Scope.RUN}"')
        given.append(f'resource_metadata="{self._metadata_url(path)}"')
        return f"{scheme} {', '.join(given)}"

    def _metadata_url(self, path: str) -> str:
        url = urlsplit(self.url)
        return f"{url.scheme}://{url.netloc}{WELL_KNOWN}{url.path}{MCP if path == MCP else ''}"

    def routes(self) -> list[Route]:
        """Where the metadata is: at the root, and where RFC 9728 puts that of a resource with a path."""
        return [
            Route(path, answering_errors(self._metadata), methods=["GET"])
            for path in (WELL_KNOWN, WELL_KNOWN + "/{path:path}")
        ]

    async def _metadata(self, request: Request) -> Response:
        path = "/" + request.path_params.get("path", "")
        own = urlsplit(self.url).path
        names = {"/": self.url, own or "/": self.url, f"{own}{MCP}": f"{self.url}{MCP}", MCP: f"{self.url}{MCP}"}
        if (resource := names.get(path)) is None:
            raise UnknownUrl(request.method, request.url.path)
        return JSONResponse(
            {
                "resource": resource,
                "authorization_servers": list(self.issuers),
                # That without which nothing works, as clients ask for all of them; they learn of others when refused.
                "scopes_supported": [Scope.RUN],
                "bearer_methods_supported": ["header"],
                "resource_name": "Tenuto",
            },
            headers={"cache-control": "public, max-age=300"},
        )


def audiences(url: str) -> tuple[str, ...]:
    """What tokens may call a server with this public URL."""
    return (url, f"{url}/", f"{url}{MCP}")

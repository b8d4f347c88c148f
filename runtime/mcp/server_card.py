"""What clients can learn of the MCP endpoint before they connect: its server card, and the catalogue that leads there.

https://github.com/modelcontextprotocol/experimental-ext-server-card. Both are public: they hold nothing but where the
endpoint is, which protocols it speaks and whether it wants a key. What the server can do is told to who has one.
"""

import hashlib
import re
from dataclasses import dataclass
from http.client import NOT_MODIFIED
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from mcp_types.version import SUPPORTED_PROTOCOL_VERSIONS
from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tenuto import __version__
from tenuto.runtime.http.routes import Doc, DocumentedRoute
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.mcp.server_base import NAME, SHOWN

SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
CARD_TYPE = "application/mcp-server-card+json"
CATALOG_TYPE = "application/ai-catalog+json"
_CACHED = "public, max-age=300"


class _Camel(Shape):
    """The fields are named as MCP names them."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, serialize_by_alias=True)


class SecretInput(_Camel):
    """What a person is asked for."""

    description: str
    is_required: bool
    is_secret: bool


class HeaderInput(SecretInput):
    """A header that requests need; `variables` stand in braces in its value."""

    name: str
    value: str
    variables: dict[str, SecretInput]


class RemoteEndpoint(_Camel):
    """The endpoint. Without `headers`, it wants no key."""

    type: Literal["streamable-http"]
    url: str
    headers: list[HeaderInput] = Field(default_factory=list)
    supported_protocol_versions: list[str]


class CardIcon(_Camel):
    """A picture."""

    src: str
    mime_type: str
    sizes: list[str]


class ServerCardAnswer(_Camel):
    """The server's card."""

    schema_: str = Field(alias="$schema")
    name: str
    title: str
    description: str
    version: str
    icons: list[CardIcon]
    remotes: list[RemoteEndpoint]


class CatalogEntry(_Camel):
    """Where a card is."""

    identifier: str
    type: str
    url: str


class CatalogAnswer(_Camel):
    """All that there is at this address: one server."""

    spec_version: Literal["1.0"]
    entries: list[CatalogEntry]


CARD = Doc(
    "MCP",
    "The MCP server's card",
    ServerCardAnswer,
    "What a client needs to connect to `/mcp`: the endpoint, the versions of the protocol, and whether it wants a key.",
    media_types=(CARD_TYPE,),
    public=True,
)
CATALOG = Doc("MCP", "The catalogue that names the card", CatalogAnswer, media_types=(CATALOG_TYPE,), public=True)


@dataclass(frozen=True, slots=True)
class ServerCard:
    """The card of a server at its public URL, which has no slash at its end; None: at whichever the client uses.

    `issuers` are the authorization servers whose access tokens are taken beside keys.
    """

    url: str | None
    needs_key: bool
    issuers: tuple[str, ...] = ()

    def routes(self) -> list[Route]:
        """Where MCP reserves a place for the card, where many look for it, and where a catalogue of an address is."""
        return [
            DocumentedRoute("/mcp/server-card", self.card, CARD),
            DocumentedRoute("/.well-known/mcp/server-card.json", self.card, CARD),
            DocumentedRoute("/.well-known/ai-catalog.json", self.catalog, CATALOG),
        ]

    async def card(self, request: Request) -> Response:
        """The card."""
        url = self._url(request)
        endpoint = RemoteEndpoint(
            type="streamable-http",
            url=f"{url}/mcp",
            supported_protocol_versions=list(SUPPORTED_PROTOCOL_VERSIONS),
        )
        if self.needs_key:
            endpoint = endpoint.model_copy(update={"headers": [self._header()]})
        card = ServerCardAnswer(
            schema_=SCHEMA,
            name=f"{_reversed(_host(url))}/{NAME}",
            title=SHOWN["title"],
            description=SHOWN["description"],
            version=__version__,
            icons=[CardIcon.model_validate(each.model_dump(exclude_none=True)) for each in SHOWN["icons"]],
            remotes=[endpoint],
        )
        return _answer(request, card, CARD_TYPE)

    async def catalog(self, request: Request) -> Response:
        """The catalogue."""
        url = self._url(request)
        entry = CatalogEntry(
            identifier=f"urn:air:{_host(url)}:mcp:{NAME}", type=CARD_TYPE, url=f"{url}/mcp/server-card"
        )
        return _answer(request, CatalogAnswer(spec_version="1.0", entries=[entry]), CATALOG_TYPE)

    def _url(self, request: Request) -> str:
        return self.url or f"{request.url.scheme}://{request.headers['host']}"

    def _header(self) -> HeaderInput:
        what = "An API key of this server"
        if self.issuers:
            what += f", or an access token from {' or '.join(self.issuers)}"
        key = SecretInput(description=f"{what}.", is_required=True, is_secret=True)
        return HeaderInput(
            name="Authorization",
            description=f"{what}.",
            is_required=True,
            is_secret=True,
            value="Bearer {key}",
            variables={"key": key},
        )


def _host(url: str) -> str:
    """The host of a URL, of letters, digits, dots and hyphens."""
    return re.sub(r"[^a-zA-Z0-9.-]", "-", urlsplit(url).hostname or "localhost")


def _reversed(host: str) -> str:
    """A host as a namespace: a domain from its end, an address as it is."""
    try:
        ip_address(host)
    except ValueError:
        return ".".join(reversed(host.split(".")))
    return host


def _answer(request: Request, shape: Shape, media_type: str) -> Response:
    body = shape.encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"cache-control": _CACHED, "etag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=NOT_MODIFIED, headers=headers)
    return Response(body, media_type=media_type, headers=headers)

"""MCP clients that log in: the SDK's own, with a person who consents at once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from tests.patience import HANGS_S


class Memory:
    """What a client keeps."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def answer_of(url: str) -> dict[str, str]:
    """What a browser would bring back from an authorization server at which nobody is asked anything."""
    response = httpx.get(url, timeout=HANGS_S)
    assert response.status_code == 302, response.text
    return {name: values[0] for name, values in parse_qs(urlsplit(response.headers["location"]).query).items()}


@asynccontextmanager
async def logged_in(url: str, memory: Memory, asked: list[str], **options: Any) -> AsyncIterator[Client]:
    """The SDK's client of a server, with the URLs at which it had a person asked."""

    async def open_browser(at: str) -> None:
        asked.append(at)

    async def came_back() -> AuthorizationCodeResult:
        brought = answer_of(asked[-1])
        return AuthorizationCodeResult(code=brought["code"], state=brought["state"], iss=brought["iss"])

    metadata = OAuthClientMetadata(redirect_uris=[AnyUrl("http://127.0.0.1:1/callback")], client_name="a test")
    auth = OAuthClientProvider(url, metadata, memory, open_browser, came_back)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=HANGS_S) as http,
        Client(streamable_http_client(url, http_client=http), cache=None, read_timeout_seconds=20, **options) as client,
    ):
        yield client

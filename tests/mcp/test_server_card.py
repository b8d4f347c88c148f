"""The MCP endpoint's card: who has no key learns where it is, which protocols it speaks, and how to log in; no more.

https://github.com/modelcontextprotocol/experimental-ext-server-card
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenuto import __version__
from tests.conftest import Start
from tests.e2e.server import Server, script
from tests.mcp.conftest import Connect

pytestmark = pytest.mark.slow
KEY = "sk-the-canary"
CARD, ALSO, CATALOG = "/mcp/server-card", "/.well-known/mcp/server-card.json", "/.well-known/ai-catalog.json"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("card")
    server = Server(folder, script(folder / "model.json"), ("--api-key", KEY))
    try:
        yield server.start()
    finally:
        server.close()


def card_of(client: httpx.Client, path: str = CARD, **headers: str) -> Any:
    return client.get(path, headers=headers).raise_for_status().json()


async def test_the_card_says_what_a_connection_says(server: Server, connect: Connect) -> None:
    with server.client() as http:
        card = card_of(http, Accept="application/mcp-server-card+json")
    async with connect(KEY) as client:
        info, version = client.server_info, client.protocol_version
        assert info is not None
        assert (await client.list_tools()).tools
    (remote,) = card["remotes"]
    assert (card["title"], card["version"], card["description"]) == (info.title, info.version, info.description)
    assert [icon["src"] for icon in card["icons"]] == [icon.src for icon in info.icons or []]
    assert (remote["type"], remote["url"]) == ("streamable-http", f"{server.url}/mcp")
    assert version in remote["supportedProtocolVersions"]
    assert {"2024-11-05", "2025-11-25", "2026-07-28"} <= {*remote["supportedProtocolVersions"]}


def test_the_card_has_the_form_of_its_schema(server: Server) -> None:
    with server.client() as http:
        card = card_of(http)
    assert card["$schema"] == "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", card["name"])
    assert 0 < len(card["description"]) <= 100
    assert card["version"] == __version__
    assert {*card} == {"$schema", "name", "title", "description", "version", "icons", "remotes"}
    (header,) = card["remotes"][0]["headers"]
    asked = {"description": "An API key of this server.", "isRequired": True, "isSecret": True}
    assert header == {"name": "Authorization", "value": "Bearer {key}", "variables": {"key": asked}, **asked}


def test_no_key_is_needed_for_the_card_and_one_for_all_else(server: Server) -> None:
    with server.client() as http:
        assert card_of(http) == card_of(http, ALSO) == card_of(http, CARD + "/", Authorization="Bearer wrong")
        assert http.get(CARD).headers["content-type"] == "application/mcp-server-card+json"
        assert KEY not in http.get(CARD).text
        assert http.post("/mcp", json={}).status_code == 401
        assert http.get("/mcp/server-card/more").status_code == 401
        assert http.post(CARD, json={}).status_code == 405
        assert http.get(CARD, headers={"Host": "evil.example"}).status_code == 403
        assert http.get(CARD, headers={"Origin": "https://evil.example"}).status_code == 403


def test_the_catalogue_leads_to_the_card(server: Server) -> None:
    with server.client() as http:
        answer = http.get(CATALOG).raise_for_status()
        assert answer.headers["content-type"] == "application/ai-catalog+json"
        (entry,) = answer.json()["entries"]
        assert answer.json()["specVersion"] == "1.0"
        assert entry["identifier"] == "urn:air:127.0.0.1:mcp:tenuto"
        assert entry["type"] == "application/mcp-server-card+json"
        assert card_of(http, entry["url"]) == card_of(http)


def test_who_has_the_card_already_gets_no_second_one(server: Server) -> None:
    with server.client() as http:
        first = http.get(CARD)
        again = http.get(CARD, headers={"If-None-Match": first.headers["etag"]})
        other = http.get(CARD, headers={"If-None-Match": '"other"'})
    assert first.headers["cache-control"] == "public, max-age=300"
    assert (again.status_code, again.content) == (304, b"")
    assert (other.status_code, other.content) == (200, first.content)


def test_an_open_server_asks_for_no_key(start: Start) -> None:
    with start().client() as http:
        assert "headers" not in card_of(http)["remotes"][0]
        assert card_of(http)["name"] == "127.0.0.1/tenuto"
        assert card_of(http, Host="localhost:1")["remotes"][0]["url"] == "http://localhost:1/mcp"


def test_a_public_server_is_named_by_its_url_whichever_host_is_asked(start: Start) -> None:
    issuer = "https://login.example.org"
    options = ("--public-url", "https://llm.example.org/a", "--oauth-issuer", issuer)
    with start(*options).client() as http:
        card = card_of(http)
        (entry,) = http.get(CATALOG).json()["entries"]
    (remote,) = card["remotes"]
    assert card["name"] == "org.example.llm/tenuto"
    assert remote["url"] == "https://llm.example.org/a/mcp"
    assert remote["headers"][0]["description"] == f"An API key of this server, or an access token from {issuer}."
    assert entry["identifier"] == "urn:air:llm.example.org:mcp:tenuto"
    assert entry["url"] == "https://llm.example.org/a/mcp/server-card"

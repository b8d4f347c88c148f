"""The server as a protected resource: challenges, metadata, real clients, and the same principal everywhere."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.e2e.server import Server, script
from tests.oauth.authority import Authority
from tests.oauth.authority import authority as running
from tests.oauth.clients import Memory, logged_in
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def authority() -> Iterator[Authority]:
    with running() as one:
        yield one


@pytest.fixture(autouse=True)
def as_before(authority: Authority) -> None:
    authority.subject, authority.granted = "ada", None


@pytest.fixture(scope="module")
def server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("resource")
    port = free_port()
    arguments = ["--port", str(port), "--public-url", f"http://127.0.0.1:{port}", "--oauth-issuer", authority.url]
    one = Server(folder, script(folder / "model.json"), (*arguments, "--api-key", "a-key"))
    try:
        yield one.start()
    finally:
        one.close()


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_whoever_is_refused_learns_where_to_get_a_token(server: Server, authority: Authority) -> None:
    with server.client() as client:
        refused = client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert refused.status_code == 401
        known = f"{server.url}/.well-known/oauth-protected-resource/mcp"
        assert refused.headers["www-authenticate"] == f'Bearer scope="tenuto:run", resource_metadata="{known}"'
        assert client.get(known).json() == {
            "resource": f"{server.url}/mcp",
            "authorization_servers": [authority.url],
            "scopes_supported": ["tenuto:run"],
            "bearer_methods_supported": ["header"],
            "resource_name": "Tenuto",
        }
        elsewhere = client.get("/v1/models", headers=bearing("no-key"))
        assert elsewhere.headers["www-authenticate"] == (
            'Bearer error="invalid_token", scope="tenuto:run",'
            f' resource_metadata="{server.url}/.well-known/oauth-protected-resource"'
        )
        assert client.get("/.well-known/oauth-protected-resource").json()["resource"] == server.url
        assert client.get("/.well-known/oauth-protected-resource/v1").status_code == 404
        assert client.get("/.well-known/oauth-authorization-server").status_code == 404


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_sdks_client_logs_in_and_talks(server: Server, authority: Authority, mode: Any) -> None:
    memory, asked = Memory(), list[str]()
    async with logged_in(f"{server.url}/mcp", memory, asked, mode=mode) as client:
        answer = await client.call_tool("chat", {"message": "hello"})
        assert answer.structured_content is not None
        session = answer.structured_content["session_id"]
    assert len(asked) == 1
    assert memory.tokens is not None
    with server.client(headers=bearing(memory.tokens.access_token)) as same:
        assert same.get(f"/v1/sessions/{session}").status_code == 200
    for stranger in (authority.token(server.url, sub="eve"), "a-key"):
        with server.client(headers=bearing(stranger)) as other:
            assert other.get(f"/v1/sessions/{session}").status_code == 404


async def test_the_sdks_client_asks_for_more_when_its_token_is_for_less(server: Server, authority: Authority) -> None:
    memory, asked = Memory(), list[str]()
    authority.granted = "tenuto:read"
    with pytest.raises(BaseExceptionGroup):
        async with logged_in(f"{server.url}/mcp", memory, asked):
            pass
    authority.granted = None
    async with logged_in(f"{server.url}/mcp", memory, asked) as client:
        assert (await client.list_tools()).tools
    assert memory.tokens is not None
    assert memory.tokens.scope is not None
    assert set(memory.tokens.scope.split()) >= {"tenuto:read", "tenuto:run"}


def test_scopes_say_what_a_token_is_good_for(server: Server, authority: Authority) -> None:
    with server.client() as client:

        def ask(scope: str, method: str, path: str, **options: Any) -> httpx.Response:
            return client.request(method, path, headers=bearing(authority.token(server.url, scope=scope)), **options)

        assert ask("tenuto:read", "GET", "/v1/sessions").status_code == 200
        turn = {"json": {"model": "default", "messages": [{"role": "user", "content": "hi"}]}}
        refused = ask("tenuto:read", "POST", "/v1/chat/completions", **turn)
        assert refused.status_code == 403
        assert refused.headers["www-authenticate"] == (
            'Bearer error="insufficient_scope", scope="tenuto:run",'
            f' resource_metadata="{server.url}/.well-known/oauth-protected-resource"'
        )
        assert ask("openid", "GET", "/v1/models").status_code == 403
        assert ask("tenuto:run", "POST", "/v1/chat/completions", **turn).status_code == 200
        unload = ask("tenuto:run", "POST", "/v1/models/default/unload")
        assert unload.status_code == 403
        assert 'scope="tenuto:admin"' in unload.headers["www-authenticate"]
        assert ask("tenuto:run tenuto:admin", "POST", "/v1/models/none/unload").status_code == 404


def test_a_token_comes_in_one_header_and_nowhere_else(server: Server, authority: Authority) -> None:
    token = authority.token(server.url)
    with server.client() as client:
        assert client.get("/v1/models", headers=bearing(token)).status_code == 200
        assert client.get(f"/v1/models?access_token={token}").status_code == 400
        assert client.get(f"/v1/models?access_token={token}", headers=bearing(token)).status_code == 400
        assert client.get("/v1/models", headers=[("Authorization", f"Bearer {token}")] * 2).status_code == 400
        assert client.get("/v1/models", headers=bearing(f"{token}, Bearer a-key")).status_code == 401
        assert client.get("/v1/models", headers=bearing(f"{token} a-key")).status_code == 401
        assert client.get("/v1/messages", headers={"x-api-key": token}).status_code == 401
        assert client.get("/v1/models", headers={"Authorization": f"DPoP {token}"}).status_code == 401


def test_dialects_take_tokens_as_they_take_keys(server: Server, authority: Authority) -> None:
    token = authority.token(f"{server.url}/mcp")
    api = openai.OpenAI(base_url=f"{server.url}/v1", api_key=token, max_retries=0, timeout=HANGS_S)
    assert api.models.list().data
    with server.client(headers=bearing(token)) as client:
        assert client.get("/api/tags").status_code == 200
        turn = {"model": "default", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        assert client.post("/v1/messages", json=turn).status_code == 200


def test_a_websocket_is_opened_by_a_token_that_may_run(server: Server, authority: Authority) -> None:
    url = f"{server.url.replace('http', 'ws', 1)}/v1/responses"
    with connect(url, additional_headers=bearing(authority.token(server.url)), open_timeout=HANGS_S) as open_socket:
        open_socket.send('{"type": "response.create", "model": "default", "input": "hi"}')
        assert "response.created" in str(open_socket.recv(HANGS_S))
    with pytest.raises(InvalidStatus) as refused:
        connect(url, additional_headers=bearing(authority.token(server.url, scope="tenuto:read")))
    assert refused.value.response.status_code == 403
    assert 'scope="tenuto:run"' in refused.value.response.headers["www-authenticate"]


def test_no_token_stands_in_the_log(server: Server, authority: Authority) -> None:
    canary = authority.token(server.url, canary="canary", aud="elsewhere")
    with server.client() as client:
        told = client.get("/v1/models", headers=bearing(canary))
    assert told.status_code == 401
    assert canary.rpartition(".")[2] not in told.text + server.log

"""A dialect from outside is a package and a type: nothing of the house is touched for it, and all of it speaks it."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import uvicorn
from pydantic import ByteSize
from starlette.types import Message, Scope
from uvicorn.server import ServerState

from tenuto.runtime.app import DIALECTS, App, opened
from tenuto.runtime.config import Settings
from tenuto.runtime.http.connection_table import Table
from tenuto.runtime.http.connections import Bounds, Connection
from tests.dialects.toy import toy
from tests.e2e.server import script

KEY = {"x-toy-key": "the-key"}
MARK = {"toy-version": "1"}
SAY = "/toy/say"


def settings(folder: Path) -> Settings:
    model = script(folder / "model.json", [{"user": "hi", "text": "hello"}], cells=4096)
    return Settings(model=(model,), data_dir=folder / "data", api_key=("the-key",), max_body_bytes=ByteSize(1000))


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """A whole server that speaks the toy's dialect too. It is left where it was entered."""
    begun: asyncio.Queue[App] = asyncio.Queue()
    over = asyncio.Event()

    async def live() -> None:
        async with opened(settings(tmp_path_factory.mktemp("toy")), (*DIALECTS, toy)) as running:
            begun.put_nowait(running)
            await over.wait()

    life = asyncio.create_task(live())
    yield await asyncio.wait_for(begun.get(), 60)
    over.set()
    await life


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def listener(app: App) -> AsyncIterator[int]:
    """The port at which the server's connections are made as `serve` makes them."""
    bounds, table = Bounds(head_bytes=1000), Table(10)
    protocol: Any = partial(Connection, bounds, table, app.errors_of)
    config = uvicorn.Config(app.asgi, http=protocol, lifespan="off", ws="none", log_config=None)
    state = ServerState()
    loop = asyncio.get_running_loop()
    made = partial(protocol, config=config, server_state=state, app_state={})
    config.load()
    server = await loop.create_server(made, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


@pytest_asyncio.fixture(loop_scope="module")
async def http(app: App) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app.asgi)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def handshake(
    app: App, headers: dict[str, str], *, path: str = "/toy/talk", denial: bool = False
) -> list[Message]:
    """What a server is told to do with a WebSocket that asks to be opened with these headers."""
    scope: Scope = {
        "type": "websocket",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "scheme": "ws",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "subprotocols": [],
        "extensions": {"websocket.http.response": {}} if denial else {},
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app.asgi(scope, receive, send)
    return sent


async def test_a_request_of_its_own_is_answered_by_the_model(http: httpx.AsyncClient) -> None:
    response = await http.post(SAY, json={"say": "hi"}, headers=KEY)
    assert (response.status_code, response.json()["said"]) == (200, "hello")


async def test_its_own_header_and_the_usual_one_bring_the_same_principal(http: httpx.AsyncClient) -> None:
    own = await http.post(SAY, json={"say": "hi"}, headers=KEY)
    usual = await http.post(SAY, json={"say": "hi"}, headers={"authorization": "Bearer the-key"})
    assert own.json() == usual.json()


async def test_its_header_opens_no_other_dialect(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/chat/completions", json={}, headers=KEY)
    assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    ("method", "path", "status", "told", "more"),
    [
        ("POST", SAY, 401, {"kind": "stranger", "what": "unauthenticated"}, {"headers": {}}),
        ("POST", SAY, 401, {"kind": "stranger", "what": "unauthenticated"}, {"headers": {"x-toy-key": "no"}}),
        ("POST", SAY, 400, {"kind": "silly", "what": "invalid_request"}, {"json": {"say": 1}}),
        ("POST", SAY, 404, {"kind": "lost", "what": "toy_not_found"}, {"json": {"say": "where?"}}),
        ("GET", SAY, 405, {"kind": "otherwise", "what": "method_not_allowed"}, {}),
        ("GET", "/toy/none", 404, {"kind": "nowhere", "what": "unknown_url"}, {"headers": KEY | MARK}),
        ("POST", SAY, 413, {"kind": "heavy", "what": "body_too_large"}, {"json": {"say": "x" * 2000}}),
        ("POST", SAY, 403, {"kind": "elsewhere", "what": "forbidden"}, {"headers": KEY | {"host": "evil.example"}}),
        ("GET", "/v1/models", 401, {"kind": "stranger", "what": "unauthenticated"}, {"headers": MARK}),
    ],
)
async def test_whatever_is_wrong_is_told_in_its_form(
    http: httpx.AsyncClient, method: str, path: str, status: int, told: dict[str, str], more: dict[str, Any]
) -> None:
    response = await http.request(method, path, **({"headers": KEY} | more))
    assert response.status_code == status
    assert set(response.json()) == {"ouch", "kind", "what"}
    assert {name: response.json()[name] for name in told} == told
    assert response.headers["toy-kind"] == told["kind"]


@pytest.mark.parametrize(("method", "path"), [("GET", "/nowhere"), ("GET", "/toys"), ("DELETE", "/v1/sessions")])
async def test_what_is_nobodys_is_told_in_the_houses_form(http: httpx.AsyncClient, method: str, path: str) -> None:
    response = await http.request(method, path, headers={"authorization": "Bearer the-key"})
    assert response.json()["error"]["code"] == "unknown_url"


async def test_a_path_that_two_have_is_told_apart_by_a_header(http: httpx.AsyncClient) -> None:
    key = {"authorization": "Bearer the-key"}
    assert (await http.get("/v1/models", headers=key)).json()["object"] == "list"
    assert (await http.get("/v1/models", headers=key | MARK)).json() == {"toys": ["model"]}


async def test_a_path_comes_before_a_header(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/chat/completions", json={}, headers={"authorization": "Bearer no"} | MARK)
    assert response.json()["error"]["code"] == "invalid_api_key"


async def test_what_it_says_is_public_needs_no_key(http: httpx.AsyncClient) -> None:
    assert (await http.get("/toy/alive")).json() == {"toy": True}


async def test_it_is_described_with_its_own_errors(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json", headers={"authorization": "Bearer the-key"})).json()
    responses = document["paths"]["/toy/say"]["post"]["responses"]
    refused = {status: answer["content"]["application/json"]["schema"] for status, answer in responses.items()}
    assert refused["401"] == refused["500"] == {"$ref": "#/components/schemas/Complaint"}
    assert document["paths"]["/v1/sessions"]["get"]["responses"]["401"] != responses["401"]


@pytest.mark.parametrize(
    ("head", "told"),
    [
        (b"POST /toy/say HTTP/1.1\r\nx: %b\r\n" % (b"a" * 2000), b'"kind":"big_head"'),
        (b"GET /none HTTP/1.1\r\ntoy-version: 1\r\nx: %b\r\n" % (b"a" * 2000), b'"kind":"big_head"'),
        (b"GET /none HTTP/1.1\r\nx: %b\r\n" % (b"a" * 2000), b'"code":"head_too_large"'),
        (b"NONSENSE\r\n", b'"code":"invalid_request"'),
    ],
)
async def test_a_connection_refuses_in_the_form_of_the_request_so_far(listener: int, head: bytes, told: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener)
    writer.write(head + b"\r\n")
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    assert told in answer


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"host": "localhost"}, 401, "unauthenticated"),
        ({"host": "localhost", "x-toy-key": "no"}, 401, "unauthenticated"),
        ({"host": "evil.example", **KEY}, 403, "forbidden"),
        ({"host": "localhost", "origin": "https://evil.example", **KEY}, 403, "forbidden"),
    ],
)
async def test_a_websocket_is_refused_as_a_request_is(
    app: App, headers: dict[str, str], status: int, code: str
) -> None:
    assert await handshake(app, headers) == [{"type": "websocket.close", "code": 1008, "reason": code}]
    start, body = await handshake(app, headers, denial=True)
    assert (start["type"], start["status"]) == ("websocket.http.response.start", status)
    assert f'"what":"{code}"'.encode() in body["body"]


async def test_a_websocket_that_shows_its_key_is_opened(app: App) -> None:
    accept, hello, close = await handshake(app, {"host": "localhost", "origin": "http://localhost:3000", **KEY})
    assert (accept["type"], close["type"]) == ("websocket.accept", "websocket.close")
    assert hello["text"].startswith("hello key-")


async def test_a_websocket_that_nobody_serves_is_closed(app: App) -> None:
    key = {"host": "localhost", "authorization": "Bearer the-key"}
    assert [message["type"] for message in await handshake(app, key, path="/v1/models")] == ["websocket.close"]

"""What no request may do: attacks on a local server by web pages, and bodies without an end."""

import gzip
import zlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.http.application import Recognition
from tenuto.runtime.http.body import read_body
from tenuto.runtime.http.dialect import Dialect, Dialects
from tenuto.runtime.http.guard import Guard, host_name
from tenuto.runtime.http.routes import answering_errors

LIMIT = 100
DIALECTS = Dialects(Dialect("house", ERRORS, ()))


async def _echo(request: Request) -> Response:
    return PlainTextResponse(await read_body(request))


APP = Starlette(routes=[Route("/", answering_errors(_echo), methods=["GET", "POST", "PUT", "DELETE"])])


def _client(**settings: Any) -> httpx.AsyncClient:
    guard = Recognition(Guard(APP, max_body_bytes=LIMIT, **settings), DIALECTS)
    return httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url="http://127.0.0.1:8420")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8420", 200),
        ("api.localhost", 200),
        ("127.0.0.1:1", 200),
        ("127.8.8.8", 200),
        ("[::1]:8420", 200),
        ("box.lan:8420", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("evil.example:127", 403),
        ("user@localhost", 403),
        ("localhost/x", 403),
        ("localhost:99999999", 403),
        ("", 403),
        ("192.168.0.5", 403),
    ],
)
async def test_only_our_own_hosts_are_answered(host: str, status: int) -> None:
    """DNS rebinding: the page's name leads here, but its Host header still says the name."""
    async with _client(hosts=("box.lan",)) as client:
        response = await client.get("/", headers={"host": host})
    assert response.status_code == status
    assert "access-control-allow-origin" not in response.headers


async def test_a_star_allows_every_host() -> None:
    async with _client(hosts=("*",)) as client:
        assert (await client.get("/", headers={"host": "any.example"})).status_code == 200
        assert (await client.get("/", headers={"host": "bad host"})).status_code == 403


async def test_two_host_headers_are_refused() -> None:
    async with _client() as client:
        request = client.build_request("GET", "/", headers=[("host", "localhost"), ("host", "evil.example")])
        assert (await client.send(request)).status_code == 403


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("https://127.0.0.1", 200),
        ("http://[::1]:5173", 200),
        ("https://app.example", 200),
        ("HTTPS://APP.example", 200),
        ("http://box.lan:8420", 200),
        ("http://box.lan:9", 403),
        ("http://app.example", 403),
        ("https://evil.example", 403),
        ("https://localhost.evil.example", 403),
        ("https://localhost@evil.example", 403),
        ("null", 403),
        ("file://", 403),
        ("ftp://localhost", 403),
        ("", 403),
        ("http://[bad", 403),
    ],
)
async def test_pages_from_elsewhere_are_refused(origin: str, status: int) -> None:
    async with _client(hosts=("box.lan",), origins=("https://app.example/",)) as client:
        response = await client.get("/", headers={"host": "box.lan:8420", "origin": origin})
    assert response.status_code == status


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("text/plain", 400),
        ("application/x-www-form-urlencoded", 400),
        ("multipart/form-data; boundary=x", 400),
        ("text/plain; application/json", 400),
        ("", 400),
    ],
)
async def test_a_body_must_be_json(content_type: str, status: int) -> None:
    """A form or text/plain can be posted from any page without a preflight."""
    async with _client() as client:
        response = await client.post("/", content=b"{}", headers={"content-type": content_type})
    assert response.status_code == status


async def test_a_post_without_a_body_needs_no_type() -> None:
    async with _client() as client:
        assert (await client.post("/")).status_code == 200


async def test_a_compressed_body_is_read_as_it_comes_out() -> None:
    async with _client() as client:
        packed = {"gzip": gzip.compress(b"{}", mtime=0), "deflate": zlib.compress(b"{}"), "identity": b"{}"}
        for encoding, body in packed.items():
            response = await client.post("/", content=body, headers=JSON | {"content-encoding": encoding})
            assert (response.status_code, response.text) == (200, "{}")


@pytest.mark.parametrize(
    ("encoding", "body"), [("gzip", b"{}"), ("br", b"{}"), ("gzip", gzip.compress(b"{}", mtime=0)[:-1])]
)
async def test_a_body_that_is_not_compressed_as_it_says_is_refused_in_words(encoding: str, body: bytes) -> None:
    async with _client() as client:
        response = await client.post("/", content=body, headers=JSON | {"content-encoding": encoding})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "Content-Encoding")


@pytest.mark.parametrize("size", [LIMIT + 1, 100 * LIMIT, 64 << 20])
async def test_the_limit_of_a_compressed_body_is_of_what_comes_out(size: int) -> None:
    async with _client() as client:
        for pack in (gzip.compress, zlib.compress):
            headers = JSON | {"content-encoding": "gzip" if pack is gzip.compress else "deflate"}
            body = pack(bytes(size))[:LIMIT]
            response = await client.post("/", content=body, headers=headers)
            assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")


# Pages of listed origins.


APP_ORIGIN = "https://app.example"
PREFLIGHT = {
    "origin": APP_ORIGIN,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-tenuto-session",
}


async def test_a_page_of_a_listed_origin_may_ask_first_and_read_the_answer() -> None:
    async with _client(origins=(APP_ORIGIN,)) as client:
        asked = await client.options("/", headers=PREFLIGHT)
        answer = await client.post("/", content=b"{}", headers=JSON | {"origin": APP_ORIGIN})
    assert (asked.status_code, asked.content) == (204, b"")
    assert asked.headers["access-control-allow-headers"] == "authorization,content-type,x-tenuto-session"
    assert {"GET", "POST", "PUT", "DELETE"} <= set(asked.headers["access-control-allow-methods"].split(", "))
    for response in (asked, answer):
        assert response.headers["access-control-allow-origin"] == APP_ORIGIN
        assert response.headers["access-control-expose-headers"] == "*"
        assert response.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in response.headers


async def test_a_page_from_outside_may_be_let_into_the_private_network() -> None:
    async with _client(origins=(APP_ORIGIN,)) as client:
        asked = await client.options("/", headers=PREFLIGHT | {"access-control-request-private-network": "true"})
    assert asked.headers["access-control-allow-private-network"] == "true"


async def test_what_is_refused_can_be_read_too() -> None:
    async with _client(origins=(APP_ORIGIN,)) as client:
        headers = JSON | {"origin": APP_ORIGIN}
        for body in (Chunks(LIMIT, 3), b"x" * (LIMIT + 1)):
            response = await client.post("/", content=body, headers=headers)
            assert (response.status_code, response.headers["access-control-allow-origin"]) == (413, APP_ORIGIN)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "https://app.example.evil", "app://x", "tauri"])
async def test_a_foreign_page_gets_nothing_but_a_refusal(origin: str) -> None:
    """All of the web cannot be listed by its scheme, as a program's pages can."""
    async with _client(origins=(APP_ORIGIN, "https://*", "tauri://*")) as client:
        asked = await client.options("/", headers=PREFLIGHT | {"origin": origin})
        answer = await client.get("/", headers={"origin": origin})
    assert (asked.status_code, answer.status_code) == (403, 403)
    assert "access-control-allow-origin" not in {*asked.headers, *answer.headers}


@pytest.mark.parametrize("listed", [(), ("https://other.example",)])
async def test_a_page_of_this_machine_that_is_not_listed_reads_nothing(listed: tuple[str, ...]) -> None:
    async with _client(origins=listed) as client:
        asked = await client.options("/", headers=PREFLIGHT | {"origin": "http://localhost:3000"})
        answer = await client.get("/", headers={"origin": "http://localhost:3000"})
    assert asked.status_code == 405
    assert not {"access-control-allow-origin", "access-control-allow-methods"} & {*asked.headers, *answer.headers}


@pytest.mark.parametrize(
    ("listed", "origin"),
    [
        ("app://obsidian.md", "app://obsidian.md"),
        ("tauri://localhost", "tauri://localhost"),
        ("vscode-webview://*", "vscode-webview://0l2kq6v1v4hmlu9h"),
        ("chrome-extension://abcdefgh", "chrome-extension://abcdefgh"),
        ("chrome-extension://*", "chrome-extension://abcdefgh"),
        ("moz-extension://*", "moz-extension://2f1e-4d"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("https://App.Example/", "https://app.example"),
    ],
)
async def test_programs_that_are_web_pages_can_be_listed(listed: str, origin: str) -> None:
    async with _client() as client:
        refused = await client.get("/", headers={"origin": origin})
    assert "access-control-allow-origin" not in refused.headers
    async with _client(origins=(listed,)) as client:
        asked = await client.options("/", headers=PREFLIGHT | {"origin": origin})
        answer = await client.get("/", headers={"origin": origin})
    assert (asked.status_code, answer.status_code) == (204, 200)
    assert answer.headers["access-control-allow-origin"] == origin


async def test_a_preflight_to_a_foreign_host_is_refused() -> None:
    async with _client(origins=(APP_ORIGIN,)) as client:
        asked = await client.options("/", headers=PREFLIGHT | {"host": "rebound.example"})
    assert asked.status_code == 403


async def test_a_container_reaches_its_host_once_that_name_is_listed() -> None:
    headers = {"host": "host.docker.internal:8420"}
    async with _client() as client:
        assert (await client.get("/", headers=headers)).status_code == 403
    async with _client(hosts=("host.docker.internal",)) as client:
        assert (await client.get("/", headers=headers)).status_code == 200


class Chunks:
    """A chunked body that counts what was taken of it."""

    def __init__(self, size: int, count: int) -> None:
        self.size, self.count, self.taken = size, count, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self.count):
            self.taken += 1
            yield b"x" * self.size


JSON = {"content-type": "application/json"}


async def test_a_body_up_to_the_limit_passes() -> None:
    async with _client() as client:
        assert (await client.post("/", content=b"x" * LIMIT, headers=JSON)).text == "x" * LIMIT
        assert (await client.post("/", content=Chunks(LIMIT // 4, 4), headers=JSON)).text == "x" * LIMIT


async def test_a_body_that_says_it_is_too_large_is_not_read() -> None:
    chunks = Chunks(LIMIT, 10)
    async with _client() as client:
        response = await client.post("/", content=chunks, headers=JSON | {"content-length": str(10 * LIMIT)})
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")
    assert (response.headers["connection"], chunks.taken) == ("close", 0)


async def test_a_chunked_body_is_read_no_further_than_the_limit() -> None:
    chunks = Chunks(LIMIT // 2, 1000)
    async with _client() as client:
        response = await client.post("/", content=chunks, headers=JSON)
    assert (response.status_code, response.headers["connection"]) == (413, "close")
    assert chunks.taken <= 4


async def test_an_application_that_hides_the_error_does_not_hide_the_answer() -> None:
    async def stubborn(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            while (await receive())["more_body"]:
                pass
        except Exception:
            await PlainTextResponse("never mind")(scope, receive, send)

    transport = httpx.ASGITransport(Recognition(Guard(stubborn, max_body_bytes=LIMIT), DIALECTS))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.post("/", content=Chunks(LIMIT, 3), headers=JSON)).status_code == 413


async def test_a_length_that_is_no_number_is_refused() -> None:
    async with _client() as client:
        response = await client.post("/", content=b"{}", headers=JSON | {"content-length": "2x"})
    assert response.status_code == 400


@pytest.mark.parametrize("digits", [19, 5000])
async def test_a_length_of_many_digits_is_too_large_and_no_error_of_the_server(digits: int) -> None:
    async with _client() as client:
        response = await client.post("/", content=b"{}", headers=JSON | {"content-length": "9" * digits})
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")


@given(st.text())
def test_no_host_header_breaks_the_reader(header: str) -> None:
    name = host_name(header)
    assert name is None or name in header.lower()


@given(st.from_regex(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", fullmatch=True), st.integers(0, 65535))
def test_a_port_is_no_part_of_a_name(name: str, port: int) -> None:
    assert host_name(name) == host_name(name.upper()) == host_name(f"{name}:{port}") == name

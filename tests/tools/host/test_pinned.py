"""The way to servers that requests bring: pinned to the address that was checked, and bounded."""

import ipaddress
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tenuto.tools.egress import Egress
from tenuto.tools.host import pinned
from tenuto.tools.host.pinned import PinnedTransport
from tests.tools.host.web import serving

NAME = "name.test"


class Names:
    """A name server: what it says of each name, and whom it was asked about."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
        self.answers = [*answers]
        self.asked: list[str] = []
        monkeypatch.setattr(anyio, "getaddrinfo", self.look_up)

    async def look_up(self, host: str, port: int, **kind: Any) -> list[Any]:
        self.asked.append(host)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        family = socket.AF_INET6 if ":" in answer else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", (answer, port))]


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def told(request: Request) -> Response:
        return PlainTextResponse(request.headers["host"])

    async def endless(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 10_000
                await anyio.lowlevel.checkpoint()

        status = 307 if "redirect" in request.url.path else 200
        return StreamingResponse(pieces(), status, {"location": "/"}, request.query_params.get("type"))

    async def packed(request: Request) -> Response:
        return Response(b"", headers={"content-encoding": "gzip"})

    routes = [Route("/", told), Route("/endless", endless), Route("/redirect", endless), Route("/packed", packed)]
    async with serving(Starlette(routes=routes)) as number:
        yield number


@asynccontextmanager
async def client(egress: Egress) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(transport=PinnedTransport(egress), timeout=30) as one:
        yield one


async def test_a_request_goes_to_the_address_that_was_looked_at_and_names_the_host(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(monkeypatch, "127.0.0.1")
    async with client(Egress.ALL) as http:
        for _ in range(2):
            answer = await http.get(f"http://{NAME}:{port}/")
            assert answer.text == f"{NAME}:{port}"
    assert names.asked == [NAME, NAME], "once for each request, and by nobody else: the system knows no such name"


async def test_a_name_that_comes_to_mean_another_address_is_refused(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is at the first address does not matter: it is not of this machine, and nothing answers."""
    names = Names(monkeypatch, "192.0.2.1", "127.0.0.1")
    monkeypatch.setattr("tenuto.tools.egress._NOT_PUBLIC", pinned_networks("127.0.0.0/8"))
    async with client(Egress.PUBLIC) as http:
        with pytest.raises(httpx2.TransportError) as first:
            await http.get(f"http://{NAME}:{port}/", timeout=0.2)
        assert "--egress" not in str(first.value)
        with pytest.raises(httpx2.ConnectError, match="--egress public"):
            await http.get(f"http://{NAME}:{port}/")
    assert names.asked == [NAME, NAME]


def pinned_networks(*names: str) -> Any:

    return tuple(ipaddress.ip_network(name) for name in names)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1"])
async def test_a_name_for_a_private_address_is_refused_without_telling_it(
    port: int, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    Names(monkeypatch, address)
    async with client(Egress.PUBLIC) as http:
        with pytest.raises(httpx2.ConnectError, match="--egress public") as refused:
            await http.get(f"http://{NAME}:{port}/")
    assert address not in str(refused.value)


@pytest.mark.parametrize("kind", ["text/html", "text/event-stream"])
async def test_an_answer_without_an_end_is_cut(port: int, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(pinned, "MAX_MESSAGE_BYTES", 100_000)
    monkeypatch.setattr(pinned, "MOST_STREAM_BYTES", 200_000)
    async with client(Egress.ALL) as http:
        with pytest.raises(httpx2.ReadError, match="more than"):
            await http.get(f"http://127.0.0.1:{port}/endless", params={"type": kind})


async def test_what_stands_with_a_redirect_is_not_read(port: int) -> None:
    async with client(Egress.ALL) as http:
        answer = await http.get(f"http://127.0.0.1:{port}/redirect")
    assert (answer.status_code, answer.content) == (307, b"")


async def test_an_answer_that_is_packed_is_refused(port: int) -> None:
    async with client(Egress.ALL) as http:
        with pytest.raises(httpx2.RemoteProtocolError, match="compressed"):
            await http.get(f"http://127.0.0.1:{port}/packed")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of the name alone, with its key in the same file."""
    folder = tmp_path_factory.mktemp("certificate")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={NAME}"]
    command += ["-addext", f"subjectAltName=DNS:{NAME}", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("there is no openssl to make a certificate")
    return certificate


@pytest.fixture
def secure(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> uvicorn.Config:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    return uvicorn.Config(
        Starlette(routes=[Route("/", lambda request: PlainTextResponse("in confidence"))]),
        ssl_certfile=certificate,
        ssl_keyfile=certificate.with_name("key.pem"),
        log_level="critical",
        timeout_graceful_shutdown=1,
    )


async def test_who_answers_must_prove_to_be_the_host(secure: uvicorn.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, "127.0.0.1")
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    runner = uvicorn.Server(secure)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runner.serve, [listener])
        async with client(Egress.ALL) as http:
            assert (await http.get(f"https://{NAME}:{port}/")).text == "in confidence"
            with pytest.raises(httpx2.ConnectError, match="one host alone"):
                await http.get(f"https://other.test:{port}/")
        async with client(Egress.ALL) as http:
            with pytest.raises(httpx2.ConnectError, match="certificate"):
                await http.get(f"https://other.test:{port}/")
        runner.should_exit = True

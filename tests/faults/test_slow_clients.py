"""Clients that never finish what they send, or never read what they get, hold up nobody and are given up in time."""

import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import Start
from tests.e2e.server import Server
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

ARRIVAL_S = 3
"""Long enough for the honest clients here, whose machine may be busy."""
LONG = [{"user": "long", "text": "x" * 60_000}]
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.fixture
def server(start: Start) -> Server:
    bounds = ("--arrival-s", str(ARRIVAL_S), "--patience-s", "1", "--max-connections", "20")
    return start(*bounds, rules=LONG, cells=200_000)


def connect(server: Server, receive_buffer: int | None = None) -> socket.socket:
    address = urlsplit(server.url)
    client = socket.socket()
    if receive_buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.settimeout(HANGS_S)
    client.connect((address.hostname, address.port))
    return client


def request(text: str, **more: object) -> bytes:
    content = json.dumps({"messages": [{"role": "user", "content": text}], **more}).encode()
    return HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(content), content)


def whatever_comes(client: socket.socket) -> bytes:
    """All that the server sends until it closes the connection, in whatever way."""
    received = b""
    try:
        while piece := client.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def is_held(server: Server, client: socket.socket) -> bool:
    """Whether the server's end of this connection is still open."""
    assert server.process is not None
    lines = Path(f"/proc/{server.process.pid}/net/tcp").read_text().splitlines()[1:]
    ends = {(line.split()[1], line.split()[2], line.split()[3]) for line in lines}
    ours, theirs = (f"0100007F:{port:04X}" for port in (urlsplit(server.url).port, client.getsockname()[1]))
    return (ours, theirs, "01") in ends


def assert_answers(server: Server) -> None:
    with server.client() as client:
        answer = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "hello"}]})
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["message"]["content"] == "hello"


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("begun", [b"", b"POST /v1/chat", HEAD, HEAD + b"X-Never-Ending: "])
def test_a_head_that_never_ends_is_closed_and_holds_up_nobody(server: Server, sockets: ExitStack, begun: bytes) -> None:
    half = [sockets.enter_context(connect(server)) for _ in range(10)]
    for client in half:
        client.sendall(begun)
    assert_answers(server)
    assert [whatever_comes(client) for client in half] == [b""] * 10


def test_a_head_that_drips_is_closed_all_the_same(server: Server, sockets: ExitStack) -> None:
    client = sockets.enter_context(connect(server))
    client.sendall(HEAD)
    client.settimeout(0.1)
    until = time.monotonic() + HANGS_S
    while time.monotonic() < until:
        try:
            client.sendall(b"X-Drop: 1\r\n")
            if client.recv(1) == b"":
                return
        except TimeoutError:
            pass
        except OSError:
            return
    raise AssertionError("the connection is still open")


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_never_ends_is_told_and_closed(server: Server, sockets: ExitStack, chunked: bool) -> None:
    half = [sockets.enter_context(connect(server)) for _ in range(10)]
    for client in half:
        begun = b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"mes\r\n' if chunked else b'Content-Length: 100\r\n\r\n{"mes'
        client.sendall(HEAD + begun)
    assert_answers(server)
    for client in half:
        head, _, content = whatever_comes(client).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"connection: close" in head.lower()
        error = json.loads(content)["error"]
        assert error["message"] == f"the body did not arrive within {ARRIVAL_S} s"
        assert error["type"] == "invalid_request_error"


def test_a_body_that_ends_with_its_client_leaves_nothing_behind(server: Server) -> None:
    for _ in range(5):
        with connect(server) as client:
            client.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
    assert_answers(server)
    assert "Traceback" not in server.log


def test_more_connections_than_allowed_are_refused_in_words(start: Start, sockets: ExitStack) -> None:
    """Where every place has a request that has arrived and is under way; any other connection would give way."""
    server = start("--patience-s", "60", "--max-connections", "10", rules=LONG, cells=200_000)
    for number in range(10):
        client = sockets.enter_context(connect(server, receive_buffer=4096))
        client.sendall(request("long", session_id=str(number), stream=True, max_tokens=60_000))
        assert client.recv(1)
    one_too_many = sockets.enter_context(connect(server))
    one_too_many.sendall(request("hello"))
    head, _, content = whatever_comes(one_too_many).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 429 ")
    assert b"retry-after: 1" in head.lower()
    assert json.loads(content)["error"]["message"] == "the table of connections is full; try again in 1 s"
    sockets.close()
    assert_answers(server)


def test_key_holders_bodies_that_do_not_come_keep_out_no_other(start: Start, sockets: ExitStack) -> None:
    keys = ("--api-key", "alice", "--api-key", "bob")
    server = start("--max-connections", "20", "--arrival-s", "60", *keys, rules=LONG)
    for _ in range(20):
        client = sockets.enter_context(connect(server))
        client.sendall(HEAD + b'Authorization: Bearer alice\r\nContent-Length: 100\r\n\r\n{"mes')
    for _ in range(3):
        with server.client(headers={"authorization": "Bearer bob"}) as bob:
            assert bob.get("/v1/models").status_code == 200


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc which connections the server holds")
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_does_not_read_is_given_up(server: Server, sockets: ExitStack, stream: bool) -> None:
    """A stream of some megabytes, or whole answers, with a receive buffer of a few kilobytes."""
    client = sockets.enter_context(connect(server, receive_buffer=4096))
    if stream:
        client.sendall(request("long", session_id="s", stream=True, max_tokens=60_000))
    else:
        with connect(server) as other:
            other.settimeout(HANGS_S)  # 60,000 tokens take a while where others compute too
            other.sendall(request("long", session_id="s", max_tokens=60_000))
            other.recv(1)
        client.sendall(b"GET /v1/sessions/s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 100)
    assert_answers(server)
    deadline = time.monotonic() + HANGS_S
    while is_held(server, client):
        assert time.monotonic() < deadline, "the connection is still there"
        assert_answers(server)
    received = whatever_comes(client)
    assert b"[DONE]" not in received
    assert_answers(server)

"""What a client sends around a body has a limit, whoever it is, and nobody is held up or kept out by it."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import Start
from tests.e2e.server import Server
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

KEY = "k-holder"
MOST = 20
JSON = {"content-type": "application/json"}
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
CHAT = json.dumps({"messages": [{"role": "user", "content": "hello"}]}).encode()
TOO_LARGE = "the request's head is larger than 65536 bytes, counting trailers and chunk framing"


@pytest.fixture
def server(start: Start) -> Server:
    return start("--max-connections", str(MOST), "--api-key", KEY)


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connect(server: Server) -> socket.socket:
    address = urlsplit(server.url)
    return socket.create_connection((address.hostname or "", address.port or 0), timeout=HANGS_S)


def flood(client: socket.socket, begin: bytes, piece: bytes, times: int) -> bytes:
    """Send a piece again and again until the server has had enough; what it says."""
    client.sendall(begin)
    with suppress(OSError):
        for _ in range(times):
            client.sendall(piece)
    return whatever_comes(client)


def whatever_comes(client: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionResetError):
        while piece := client.recv(65536):
            received += piece
    return received


def status_of_answer(client: socket.socket) -> int:
    """Read one whole answer; the connection stays."""
    answer = HTTPResponse(client)
    answer.begin()
    answer.read()
    return answer.status


def told(answer: bytes) -> tuple[int, str]:
    """Status and message of the only answer."""
    head, _, content = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(content)["error"]["message"]


def resident(server: Server) -> int:
    """Bytes of its memory."""
    assert server.process is not None
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


HEADERS = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 1000) for number in range(1000))
ONE_HEADER = b"x" * (1 << 20)


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n", HEADERS),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-One: ", ONE_HEADER),
        (b"GET /", ONE_HEADER),
        (b"", b"\r\n" * (1 << 19)),
    ],
    ids=["many headers", "one header", "target", "blank lines"],
)
def test_a_head_of_100_megabytes_costs_the_others_neither_memory_nor_time(
    server: Server, sockets: ExitStack, begin: bytes, piece: bytes
) -> None:
    before = resident(server)
    client = sockets.enter_context(connect(server))
    status, message = told(flood(client, begin, piece, 100))
    assert (status, message) == (431, TOO_LARGE)
    assert resident(server) - before < 20 << 20
    with server.client() as other:
        assert other.get("/health").status_code == 200


def test_a_head_that_comes_at_once_is_counted_too(server: Server, sockets: ExitStack) -> None:
    client = sockets.enter_context(connect(server))
    head = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-One: " + b"x" * (65 << 10) + b"\r\n\r\n"
    assert told(flood(client, head, b"", 0)) == (431, TOO_LARGE)
    client = sockets.enter_context(connect(server))
    client.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-One: " + b"x" * (60 << 10) + b"\r\n\r\n")
    assert client.recv(1000).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b'5\r\n{"mes\r\n0\r\n', HEADERS),
        (b'5\r\n{"mes\r\n1;extension=', ONE_HEADER),
        (b"0" * 1000, b"0" * 1000),
    ],
    ids=["trailers", "chunk extension", "chunk size"],
)
def test_what_frames_a_chunked_body_is_counted(server: Server, sockets: ExitStack, begin: bytes, piece: bytes) -> None:
    client = sockets.enter_context(connect(server))
    head = POST + b"Authorization: Bearer " + KEY.encode() + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    before = resident(server)
    answer = flood(client, head + begin, piece, 100)
    assert told(answer)[0] in (400, 431)
    assert answer.count(b"HTTP/1.1") == 1
    assert resident(server) - before < 20 << 20
    assert "Traceback" not in server.log


def test_an_honest_chunked_body_and_its_trailers_are_read(server: Server, sockets: ExitStack) -> None:
    client = sockets.enter_context(connect(server))
    head = POST + b"Authorization: Bearer " + KEY.encode() + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    single = b"".join(b"1\r\n%c\r\n" % byte for byte in CHAT)
    client.sendall(head + single + b"0\r\nX-Checksum: 1\r\n\r\n")
    assert client.recv(1000).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("begun", [b"", b"GET /health HTTP/1.1\r\n", POST + b"Content-Length: 100\r\n\r\n{"])
def test_connections_without_a_key_keep_out_no_key_holder(server: Server, sockets: ExitStack, begun: bytes) -> None:
    strangers = [sockets.enter_context(connect(server)) for _ in range(3 * MOST)]
    for stranger in strangers:
        with suppress(OSError):
            stranger.sendall(begun)
    holders = [server.client(headers={"authorization": f"Bearer {KEY}"}) for _ in range(MOST)]
    for holder in holders:
        sockets.enter_context(holder)
        assert holder.post("/v1/chat/completions", content=CHAT, headers=JSON).status_code == 200
    # Nor do they when the key holder's connections rest between two requests.
    more = [sockets.enter_context(connect(server)) for _ in range(MOST)]
    for holder in holders[-MOST // 2 :]:
        assert holder.get("/v1/models").status_code == 200
    assert len(more) == MOST


def test_a_key_holder_whose_next_request_has_begun_is_no_stranger(server: Server, sockets: ExitStack) -> None:
    head = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + KEY.encode() + b"\r\n"
    holders = []
    for _ in range(MOST):
        holder = sockets.enter_context(connect(server))
        holders.append(holder)
        holder.sendall(head + b"\r\n")
        assert status_of_answer(holder) == 200
        holder.sendall(head)
    strangers = [sockets.enter_context(connect(server)) for _ in range(MOST)]
    assert whatever_comes(strangers[0]) == b""  # it gave way, so that all of them have been let in or not
    for holder in holders[-MOST // 2 :]:
        holder.sendall(b"\r\n")
        assert status_of_answer(holder) == 200


def test_a_pipeline_behind_a_slow_answer_is_not_answered_by_an_error(server: Server, sockets: ExitStack) -> None:
    client = sockets.enter_context(connect(server))
    auth = b"Authorization: Bearer " + KEY.encode() + b"\r\n"
    first = POST + auth + b"Content-Length: %d\r\n\r\n%s" % (len(CHAT), CHAT)
    answer = flood(client, first + b"GET / HTTP/1.1\r\nX-One: ", ONE_HEADER, 10)
    assert answer.count(b"HTTP/1.1 431") <= 1
    with server.client() as other:
        assert other.get("/health").status_code == 200
    assert "Traceback" not in server.log

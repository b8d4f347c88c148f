"""WebSockets of strangers: handshakes that cannot be read, and frames that no client in earnest sends."""

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterator

import anyio
import pytest
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode

from tenuto.runtime.http.connection_table import Table
from tenuto.runtime.http.sockets import MOST_FRAMES, Socket
from tests.conftest import Start
from tests.e2e.server import Server, script
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{more}\r\n"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("sockets")
    running = Server(folder, script(folder / "model.json")).start()
    yield running
    running.close()


def asking(server: Server, path: str = "/v1/responses", more: str = "") -> socket.socket:
    """A connection that has asked for a WebSocket."""
    address = server.url.removeprefix("http://")
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.sendall(HANDSHAKE.format(path=path, address=address, more=more).encode())
    return connection


def opened(server: Server) -> socket.socket:
    connection = asking(server)
    assert connection.recv(4096).startswith(b"HTTP/1.1 101 ")
    return connection


def frame(opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp, sockets: list[Socket] | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that has asked an application for a WebSocket. No error is left to the event loop."""
    made = [] if sockets is None else sockets

    def make() -> Socket:
        config, state = uvicorn.Config(app, lifespan="off", log_config=None), ServerState()
        made.append(Socket(Table(9), 60.0, 60.0, config=config, server_state=state, app_state={}))
        return made[-1]

    loop, wrong = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: wrong.append(context))
    async with await loop.create_server(make, "127.0.0.1") as listener:
        reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
        writer.write(HANDSHAKE.format(path="/", address="localhost", more="").encode())
        yield reader, writer
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    assert not wrong


def rest(connection: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    found = b""
    while piece := connection.recv(1 << 16):
        found += piece
    return found


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (f"X-Long: {'x' * 9000}\r\n", 431),
        ("".join(f"X-{number}: x\r\n" for number in range(200)), 431),
        ("Content-Length: 5\r\n", 400),
        ("Transfer-Encoding: chunked\r\n", 400),
    ],
    ids=["long field", "many fields", "body", "chunks"],
)
def test_a_handshake_that_cannot_be_read_is_answered_and_closed(server: Server, more: str, status: int) -> None:
    with asking(server, more=more) as connection:
        assert rest(connection).startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize(
    "frames",
    [
        frame(Opcode.TEXT, b"x", fin=False) + frame(Opcode.CONT, fin=False) * (MOST_FRAMES + 1),
        frame(Opcode.PING) * (MOST_FRAMES + 1),
    ],
    ids=["fragments", "pings"],
)
def test_a_flood_of_frames_without_a_message_closes_its_socket(server: Server, frames: bytes) -> None:
    with opened(server) as connection:
        connection.sendall(frames)
        assert struct.pack("!H", 1008) + b"too many fragments" in rest(connection)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (frame(Opcode.TEXT, b'{"\xff"}'), 1007),
        (frame(Opcode.TEXT, b"\xe2\x82", fin=False) + frame(Opcode.CONT, b"("), 1007),
        (frame(Opcode.CONT), 1002),
        (b"\x83\x80\x00\x00\x00\x00", 1002),
        (Frame(Opcode.TEXT, b"x").serialize(mask=False), 1002),
    ],
    ids=["half a character", "half a character in pieces", "goes on", "unknown", "bare"],
)
def test_a_frame_that_cannot_be_read_closes_its_socket_and_is_no_error_of_the_servers(
    server: Server, wrong: bytes, code: int
) -> None:
    before = len(server.log)
    with opened(server) as connection:
        connection.sendall(wrong)
        assert struct.pack("!H", code) in rest(connection)
    with opened(server):
        assert not {"ERROR", "Traceback"} & set(server.log[before:].split())


def test_a_message_in_many_frames_with_pings_between_is_read(server: Server) -> None:
    pieces = [b'{"type": ', *[b" "] * 2000, b"1}"]
    frames = b"".join(
        frame(Opcode.TEXT if piece is pieces[0] else Opcode.CONT, piece, fin=piece is pieces[-1]) + frame(Opcode.PING)
        for piece in pieces
    )
    with opened(server) as connection:
        connection.sendall(frames * 3)
        found = b""
        while found.count(b'"type":"error"') < 3:
            piece = connection.recv(1 << 16)
            assert piece, found[-200:]
            found += piece
        assert found.count(b"\x8a\x00") >= 3 * len(pieces)


async def test_others_have_their_turn_between_two_messages_that_have_come_together() -> None:
    turns: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] == "websocket.receive":
            turns.append(ticks)

    ticks = 0
    async with serving(app) as (reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(frame(Opcode.TEXT, b"{") * 200)
        with anyio.fail_after(HANGS_S):
            while len(turns) < 200:
                ticks += 1
                await asyncio.sleep(0)
    assert len(set(turns)) > 100


async def test_a_frame_that_comes_before_the_handshake_is_answered_waits_for_that() -> None:
    has_asked, has_come = asyncio.Event(), asyncio.Event()
    heard: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        heard.append(await receive())
        has_asked.set()
        await has_come.wait()
        await send({"type": "websocket.accept"})
        heard.append(await receive())

    async with serving(app) as (reader, writer):
        await has_asked.wait()
        writer.write(frame(Opcode.CONT))
        for _ in range(100):
            await asyncio.sleep(0)
        has_come.set()
        with anyio.fail_after(HANGS_S):
            told = await reader.read()
    assert told.startswith(b"HTTP/1.1 101 ")
    assert struct.pack("!H", 1002) in told
    assert [message["type"] for message in heard] == ["websocket.connect", "websocket.disconnect"]


async def test_who_sends_to_a_client_that_broke_the_protocol_is_told_that_it_has_gone() -> None:
    """It is not gone before it has taken what was sent before that."""
    raised: list[Exception] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while not sockets[0].transport.get_write_buffer_size():
            await send({"type": "websocket.send", "text": "x" * 1000})
        has_sent.set()
        assert (await receive())["type"] == "websocket.disconnect"
        try:
            await send({"type": "websocket.send", "text": "x"})
        except Exception as error:
            raised.append(error)
        has_tried.set()

    has_sent, has_tried = asyncio.Event(), asyncio.Event()
    sockets: list[Socket] = []
    async with serving(app, sockets) as (_, writer):
        with anyio.fail_after(HANGS_S):
            await has_sent.wait()
            writer.write(frame(Opcode.CONT))
            await has_tried.wait()
    assert [isinstance(error, OSError) for error in raised] == [True]


def test_a_message_that_does_not_end_in_time_closes_its_socket(start: Start) -> None:
    server = start("--arrival-s", "1")
    with opened(server) as half_a_message, opened(server) as half_a_frame, opened(server) as idle:
        half_a_message.sendall(frame(Opcode.TEXT, b"{", fin=False))
        half_a_frame.sendall(frame(Opcode.TEXT, b"{" * 100)[:50])
        for one in (half_a_message, half_a_frame):
            with contextlib.suppress(ConnectionResetError):
                assert one.recv(100) == b""
        idle.sendall(frame(Opcode.PING, b"there"))
        assert idle.recv(100) == b"\x8a\x05there"


def test_a_refused_handshake_is_no_error_of_the_servers(server: Server) -> None:
    before = len(server.log)
    with asking(server, "/v1/nothing") as connection:
        assert rest(connection).startswith(b"HTTP/1.1 404 ")
    with opened(server):
        assert "ERROR" not in server.log[before:]


@pytest.mark.thorough
@pytest.mark.timeout(120)
def test_a_client_may_leave_a_ping_unanswered_as_long_as_anything_else_unread(server: Server) -> None:
    """The server pings after 20 s."""
    with opened(server) as connection:
        assert connection.recv(2)[0] == 0x80 | Opcode.PING
        time.sleep(25)
        connection.sendall(frame(Opcode.PING, b"there"))
        found = b""
        while not found.endswith(b"\x8a\x05there"):
            piece = connection.recv(100)
            assert piece, found
            found += piece

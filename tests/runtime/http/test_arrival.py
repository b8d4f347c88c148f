"""Bodies on their way in take a bounded memory, of which each principal has a share."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message

from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.http.application import Recognition
from tenuto.runtime.http.arrival import LARGEST_AT_ONCE
from tenuto.runtime.http.body import read_body
from tenuto.runtime.http.dialect import Dialect, Dialects
from tenuto.runtime.http.guard import Guard
from tenuto.runtime.http.routes import answering_errors
from tenuto.runtime.http.sse import EventStream
from tenuto.sessions.principal import Principal

LIMIT = 1 << 20
PIECE = b"x" * (LIMIT // 4)
SMALL = b"x" * 1000


async def _read(request: Request) -> Response:
    return PlainTextResponse(str(len(await read_body(request))))


async def _stream(request: Request) -> Response:
    await read_body(request)

    async def answer() -> AsyncIterator[bytes]:
        yield b"a beginning"
        await anyio.sleep_forever()

    return StreamingResponse(answer())


async def _unread(request: Request) -> Response:
    async def frames() -> AsyncGenerator[bytes, None]:
        yield b"a beginning"
        await _let_it_work()
        yield b" and an end"

    return EventStream(frames())


class Server:
    """The guard in front of an app, and requests whose bodies arrive as a test says."""

    def __init__(self, group: TaskGroup, arrival_s: float) -> None:
        routes = [Route(path, answering_errors(one), methods=["POST"]) for path, one in PATHS.items()]
        self._app = Recognition(Guard(Starlette(routes=routes), max_body_bytes=LIMIT, arrival_s=arrival_s), DIALECTS)
        self._group = group

    def begin(self, who: str, path: str = "/", *fields: tuple[bytes, bytes]) -> "Sent":
        """A request of a principal."""
        sent = Sent()
        scope: dict[str, Any] = {"type": "http", "method": "POST", "path": path, "query_string": b""}
        scope["headers"] = [(b"host", b"localhost"), (b"transfer-encoding", b"chunked"), JSON, *fields]
        scope["state"] = {"principal": Principal(who)}
        self._group.start_soon(self._serve, scope, sent)
        return sent

    async def fill(self, who: str, path: str = "/") -> "list[Sent]":
        """Requests of one principal that have brought as much as may be in memory, and go on."""
        requests = [self.begin(who, path) for _ in range(LARGEST_AT_ONCE)]
        for request in requests:
            for _ in range(LIMIT // len(PIECE)):
                await request.bring(PIECE)
        return requests

    async def _serve(self, scope: dict[str, Any], sent: "Sent") -> None:
        with sent.connection:
            await self._app(scope, sent.receive, sent.send)


@asynccontextmanager
async def serving(arrival_s: float = 60.0) -> AsyncIterator[Server]:
    async with anyio.create_task_group() as group:
        yield Server(group, arrival_s)
        group.cancel_scope.cancel()


async def _let_it_work() -> None:
    """The server waits for nothing but its clients, so a few turns of the event loop are all that it needs."""
    for _ in range(20):
        await checkpoint()


class Sent:
    """What has been sent of one request, and what has come back."""

    def __init__(self) -> None:
        self._to, self._from = anyio.create_memory_object_stream[Message](100)
        self.taken = 0
        self.status: int | None = None
        self.text = b""
        self.connection = anyio.CancelScope()

    async def receive(self) -> Message:
        message = await self._from.receive()
        self.taken += 1
        return message

    async def send(self, message: Message) -> None:
        self.status = message.get("status", self.status)
        self.text += message.get("body", b"")

    def bring_at_once(self, body: bytes, *, more: bool = True) -> None:
        """Send a piece of the body."""
        self._to.send_nowait({"type": "http.request", "body": body, "more_body": more})

    async def bring(self, body: bytes, *, more: bool = True) -> None:
        """Send a piece of the body, and let the server do what it does with it."""
        self.bring_at_once(body, more=more)
        await _let_it_work()

    async def leave(self) -> None:
        """The client goes away."""
        self.connection.cancel()
        await _let_it_work()


JSON = (b"content-type", b"application/json")
DIALECTS = Dialects(Dialect("house", ERRORS, ()))
PATHS: dict[str, Callable[[Request], Awaitable[Response]]] = {"/": _read, "/stream": _stream, "/unread": _unread}


async def test_more_bodies_than_there_is_memory_for_are_refused_in_words() -> None:
    async with serving() as server:
        await server.fill("alice")
        one_more = server.begin("alice")
        await one_more.bring(PIECE)
        assert one_more.status == 429
        assert b"the memory for requests is full" in one_more.text


async def test_a_small_request_passes_while_large_ones_fill_the_memory() -> None:
    async with serving() as server:
        await server.fill("alice")
        for who in ("alice", "bob"):
            small = server.begin(who)
            await small.bring(SMALL, more=False)
            assert (small.status, small.text) == (200, b"1000")


async def test_bodies_that_do_not_end_give_way_to_who_has_less_than_a_share() -> None:
    async with serving() as server:
        uploads = await server.fill("alice")
        modest = server.begin("bob")
        await modest.bring(PIECE)
        await modest.bring(PIECE, more=False)
        assert modest.status == 200
        assert [upload.status for upload in uploads] == [429, *[None] * (len(uploads) - 1)], "the oldest alone"
        assert b"the memory for requests is full" in uploads[0].text


async def test_a_share_is_nobody_elses_however_many_come() -> None:
    async with serving() as server:
        await server.fill("alice")
        theirs = await server.fill("bob")
        assert [upload.status for upload in theirs].count(None) == LARGEST_AT_ONCE // 2


async def test_nobodys_own_bodies_give_way_to_another_of_theirs() -> None:
    async with serving() as server:
        uploads = await server.fill("alice")
        for _ in range(3):
            await server.begin("alice").bring(PIECE)
        assert [upload.status for upload in uploads] == [None] * len(uploads)


async def test_what_has_been_answered_or_has_gone_takes_no_memory() -> None:
    async with serving() as server:
        for request in await server.fill("alice"):
            await request.bring(b"", more=False)
            assert request.status == 200
        for request in await server.fill("alice"):
            await request.leave()
        later = server.begin("alice")
        await later.bring(PIECE, more=False)
        assert later.status == 200


async def test_a_stream_that_goes_on_holds_nothing_of_its_request() -> None:
    async with serving() as server:
        for request in await server.fill("alice", "/stream"):
            await request.bring(b"", more=False)
            assert (request.status, request.text) == (200, b"a beginning")
        later = server.begin("alice")
        await later.bring(PIECE, more=False)
        assert later.status == 200


@pytest.mark.parametrize(
    ("fields", "pieces", "arrival_s"),
    [((), 5, 60.0), (((b"content-encoding", b"gzip"),), 1, 60.0), ((), 0, 0.0)],
    ids=["too large", "not gzip", "too slow"],
)
async def test_what_is_wrong_with_a_body_is_nothing_to_an_answer_that_has_begun_without_it(
    fields: tuple[tuple[bytes, bytes], ...], pieces: int, arrival_s: float
) -> None:
    async with serving(arrival_s) as server:
        request = server.begin("alice", "/unread", *fields)
        for _ in range(pieces):
            request.bring_at_once(PIECE)
        await _let_it_work()
        await _let_it_work()
        assert (request.status, request.text) == (200, b"a beginning and an end")

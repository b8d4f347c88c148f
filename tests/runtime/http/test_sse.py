"""Frames and streams. https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream"""

import json
import re
from collections.abc import AsyncGenerator, Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai._streaming import SSEDecoder

from tenuto.runtime.http.sse import EventStream, frame, json_line

Message = dict[str, Any]


def _standard_lines(text: str) -> list[str]:
    return re.split(r"\r\n|\r|\n", text)


@pytest.mark.parametrize("lines", [_standard_lines, str.splitlines])
@given(text=st.text() | st.text("\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029:dat ", max_size=8))
def test_any_text_survives_any_clients_way_of_splitting_lines(lines: Callable[[str], list[str]], text: str) -> None:
    stream = frame(json_line(text), event="name", number=3).decode()
    fields = [line.partition(": ")[::2] for line in lines(stream) if line]
    assert dict(fields).keys() == {"event", "id", "data"}
    assert len(fields) == 3
    assert json.loads(dict(fields)["data"]) == text


@given(st.lists(st.text(), max_size=5))
def test_the_official_clients_parser_reads_what_we_write(texts: list[str]) -> None:
    stream = b"".join(frame(json_line(text)) for text in texts)
    assert [json.loads(event.data) for event in SSEDecoder().iter_bytes(iter([stream]))] == texts


class Client:
    """The other end of an ASGI connection. `leave` disconnects; sends wait while `is_reading` is unset."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.leave = anyio.Event()
        self.is_reading = anyio.Event()
        self.is_reading.set()
        self.got = anyio.Event()

    async def receive(self) -> Message:
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.is_reading.wait()
        self.sent.append(message)
        if message.get("body"):
            self.got.set()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


class Watched:
    """Counts how often it was told that its client has gone."""

    def __init__(self) -> None:
        self.told = 0

    async def disconnected(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.told += 1


async def _two() -> AsyncGenerator[bytes, None]:
    yield b"data: 1\n\n"
    yield b""
    yield b"data: 2\n\n"


class Endless:
    """One frame, and then silence; tells when it has been closed."""

    def __init__(self) -> None:
        self.is_closed = False

    async def frames(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"data: 1\n\n"
            await anyio.sleep_forever()
        finally:
            self.is_closed = True


SCOPE: Message = {"type": "http"}


async def test_a_stream_sends_its_frames_and_ends() -> None:
    client, run = Client(), Watched()
    with anyio.fail_after(5):
        await EventStream(_two(), run, headers={"x-run": "r"})(SCOPE, client.receive, client.send)
    headers = dict(client.sent[0]["headers"])
    assert (headers[b"content-type"], headers[b"x-run"]) == (b"text/event-stream; charset=utf-8", b"r")
    assert [message["body"] for message in client.sent[1:]] == [b"data: 1\n\n", b"data: 2\n\n", b""]
    assert client.sent[-1]["more_body"] is False
    assert run.told == 0


async def test_a_client_that_leaves_ends_the_stream_and_its_run_is_told_once() -> None:
    client, run, endless = Client(), Watched(), Endless()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(EventStream(endless.frames(), run), SCOPE, client.receive, client.send)
            await client.got.wait()
            client.leave.set()
    assert (run.told, endless.is_closed) == (1, True)


async def test_a_send_that_fails_is_a_client_that_left() -> None:
    client, run, endless = Client(), Watched(), Endless()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            raise OSError("broken pipe")

    with anyio.fail_after(5):
        await EventStream(endless.frames(), run)(SCOPE, client.receive, send)
    assert (run.told, endless.is_closed) == (1, True)


async def test_a_request_that_is_cancelled_tells_its_run() -> None:
    client, run, endless = Client(), Watched(), Endless()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(EventStream(endless.frames(), run), SCOPE, client.receive, client.send)
            await client.got.wait()
            group.cancel_scope.cancel()
    assert (run.told, endless.is_closed) == (1, True)


async def test_a_silent_stream_is_kept_alive() -> None:
    client, endless = Client(), Endless()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            stream = EventStream(endless.frames(), keep_alive_s=0.01)
            group.start_soon(stream, SCOPE, client.receive, client.send)
            while b": keep-alive\n\n: keep-alive\n\n" not in client.body:
                client.got = anyio.Event()
                await client.got.wait()
            client.leave.set()


async def test_a_dialect_has_its_own_sign_of_life() -> None:
    client, endless = Client(), Endless()
    ping = b"event: ping\ndata: {}\n\n"
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            stream = EventStream(endless.frames(), keep_alive=lambda: ping, keep_alive_s=0.01)
            group.start_soon(stream, SCOPE, client.receive, client.send)
            while ping + ping not in client.body:
                client.got = anyio.Event()
                await client.got.wait()
            client.leave.set()
    assert b": keep-alive" not in client.body


async def test_a_client_that_does_not_read_is_given_up() -> None:
    client, run, endless = Client(), Watched(), Endless()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await anyio.sleep_forever()

    with anyio.fail_after(5):
        stream = EventStream(endless.frames(), run, keep_alive_s=0.01, patience_s=0.03)
        await stream(SCOPE, client.receive, send)
    assert run.told == 1

"""A stream that begins late: its head, what keeps it alive, and how what goes wrong is told."""

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from tenuto.errors import ModelLoadFailed, TenutoError
from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.http.sse import EventStream
from tenuto.runtime.http.starting import StartingStream, comment
from tests.patience import HANGS_S


class Gone:
    """Is told that its client has gone."""

    was_told = False

    async def disconnected(self) -> None:
        """It has."""
        self.was_told = True


class Client:
    """Reads an answer; `leaves` once it has read so many pieces of its body."""

    def __init__(self, leaves: int | None = None) -> None:
        self.messages: list[Any] = []
        self.leaves = leaves
        self.bodies = 0
        self.came = anyio.Event()

    async def send(self, message: Any) -> None:
        """Take a message."""
        self.messages.append(message)
        if message["type"] == "http.response.body":
            self.bodies += 1
            self.came.set()
            self.came = anyio.Event()

    async def receive(self) -> Any:
        """Stay, or leave."""
        while self.leaves is None or self.bodies < self.leaves:
            await self.came.wait()
        return {"type": "http.disconnect"}

    async def reads(self, stream: StartingStream) -> bytes:
        """The whole body."""
        with anyio.fail_after(HANGS_S):
            await stream({"type": "http"}, self.receive, self.send)
        return b"".join(one.get("body", b"") for one in self.messages)

    @property
    def heads(self) -> list[Any]:
        """The heads of the answer: there is one."""
        return [one for one in self.messages if one["type"] == "http.response.start"]


async def frames() -> AsyncGenerator[bytes, None]:
    """A stream."""
    yield b"data: 1\n\n"
    yield b"data: 2\n\n"


def starting(start: Any, alive_s: float) -> StartingStream:
    return StartingStream(
        start,
        ERRORS,
        alive=lambda: comment("the model is\nloading"),
        failure=lambda exc: b"data: " + str(exc).encode() + b"\n\n",
        alive_s=alive_s,
    )


async def test_what_begins_soon_is_the_stream_as_it_is() -> None:
    async def start() -> EventStream:
        return EventStream(frames(), headers={"x-tenuto-session": "s"})

    client = Client()
    assert await client.reads(starting(start, HANGS_S)) == b"data: 1\n\ndata: 2\n\n"
    (head,) = client.heads
    assert (b"x-tenuto-session", b"s") in head["headers"]


async def test_until_it_begins_it_says_that_it_is_alive() -> None:
    client = Client()

    async def start() -> EventStream:
        while client.bodies < 3:
            await client.came.wait()
        return EventStream(frames())

    alive = b": the model is loading\n\n"
    assert await client.reads(starting(start, 0.001)) == 3 * alive + b"data: 1\n\ndata: 2\n\n"
    assert len(client.heads) == 1


@pytest.mark.parametrize("raised", [ModelLoadFailed("it is broken"), RuntimeError("a bug")])
async def test_what_fails_before_anything_was_sent_has_its_status(raised: Exception) -> None:
    async def start() -> EventStream:
        raise raised

    client = Client()
    body = await client.reads(starting(start, HANGS_S))
    assert [head["status"] for head in client.heads] == [500]
    assert (b"it is broken" if isinstance(raised, TenutoError) else b"internal error") in body


async def test_what_fails_later_is_a_frame() -> None:
    client = Client()

    async def start() -> EventStream:
        await client.came.wait()
        raise ModelLoadFailed("it is broken")

    body = await client.reads(starting(start, 0.001))
    assert [head["status"] for head in client.heads] == [200]
    assert body.endswith(b"data: it is broken\n\n")
    assert client.messages[-1]["more_body"] is False


async def test_a_client_that_leaves_before_it_begins_cancels_it() -> None:
    cancelled = False

    async def start() -> EventStream:
        nonlocal cancelled
        try:
            await anyio.sleep_forever()
        finally:
            cancelled = True
        raise AssertionError

    await Client(leaves=2).reads(starting(start, 0.001))
    assert cancelled


async def test_a_stream_that_nobody_will_read_tells_its_run() -> None:
    gone = Gone()
    await EventStream(frames(), gone).abandon()
    assert gone.was_told

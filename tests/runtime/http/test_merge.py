"""Several streams of frames as one."""

from collections.abc import AsyncGenerator

import anyio
import pytest
from starlette.types import Message

from tenuto.runtime.http.merge import MergedStream


class Held:
    gone = False

    async def disconnected(self) -> None:
        self.gone = True


async def frames(count: int) -> AsyncGenerator[bytes, None]:
    for _ in range(count):
        yield b"data: x\n\n"


@pytest.mark.parametrize("after", range(20))
async def test_a_client_that_leaves_while_all_parts_have_much_to_say_is_no_error(after: int) -> None:
    """Its leaving closes the reading end; the parts hear of that by their next frame."""
    held, sent, left = Held(), 0, anyio.Event()

    async def send(message: Message) -> None:
        nonlocal sent
        sent += 1
        if sent > after:
            left.set()
            raise OSError("the connection is closed")

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    stream = MergedStream([frames(50) for _ in range(3)], frames(1), held, keep_alive_s=15)
    with anyio.fail_after(5):
        await stream({"type": "http"}, receive, send)
    assert held.gone

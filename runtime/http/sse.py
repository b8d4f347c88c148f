"""Server-sent events: the bytes of a frame, and the response that sends frames while it watches its client.

Knows no dialect. https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import anyio
from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tenuto.runtime.http.disconnect import GOODBYE_S, Attached, ClientGone, while_connected

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"

_LINE_BREAKS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))


def json_line(value: object) -> bytes:
    """A value as JSON that is one line for every client."""
    return one_line(to_json(value))


def one_line(data: bytes) -> bytes:
    """JSON as one line also for clients that split lines as `str.splitlines` does and not as the standard says."""
    if not data.isascii():
        for raw, escaped in _LINE_BREAKS:
            data = data.replace(raw, escaped)
    return data


def frame(data: bytes, *, event: str | None = None, number: int | None = None) -> bytes:
    """One event. `data` is one line; `number` becomes its id, from which a client can go on."""
    name = b"" if event is None else b"event: %s\n" % event.encode()
    identity = b"" if number is None else b"id: %d\n" % number
    return b"%s%sdata: %s\n\n" % (name, identity, data)


def data_of(frames: bytes) -> list[bytes]:
    """The data of each event in frames that `frame` made, for those to whom it is sent in another way."""
    return [event.partition(b"data: ")[2] for event in frames.split(b"\n\n") if event]


class EventStream(Response):
    """Sends frames as they come, and what `keep_alive` gives where none has come for `keep_alive_s`.

    Empty frames are not sent. What is to keep the stream alive is made at the moment in which it is sent.

    `run` is told when the client goes away: by its disconnect, by a send that fails, or by not reading for
    `patience_s`. The frames must not raise: what goes wrong while they are made is a frame of its dialect.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        run: Attached | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        keep_alive: Callable[[], bytes] = lambda: KEEP_ALIVE,
        keep_alive_s: float = 15.0,
        patience_s: float = 120.0,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"} | dict(headers or {}))
        self._frames, self._run = frames, run
        self._keep_alive, self._keep_alive_s, self._patience_s = keep_alive, keep_alive_s, patience_s
        self._active_at = time.monotonic()
        self._sending = self._ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; an ASGI application."""
        del scope
        async with aclosing(self._frames):
            try:
                await while_connected(receive, self._run, lambda: self._stream(send), lambda: self._tend(send))
            except (ClientGone, OSError):
                return

    async def abandon(self) -> None:
        """Nobody will read it: tell the run, and close what makes the frames."""
        await self._frames.aclose()
        if self._run is not None:
            with anyio.move_on_after(GOODBYE_S, shield=True):
                await self._run.disconnected()

    async def _stream(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for data in self._frames:
            if data:
                self._active_at, self._sending = time.monotonic(), True
                await send({"type": "http.response.body", "body": data, "more_body": True})
                self._sending = False
        self._ended = True
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _tend(self, send: Send) -> None:
        # One task that wakes now and then costs less than a deadline for every frame.
        while not self._ended:
            silence_s = time.monotonic() - self._active_at
            if self._sending and silence_s >= self._patience_s:
                raise ClientGone
            if not self._sending and silence_s >= self._keep_alive_s:
                await self._show_life(send)
                silence_s = 0.0
            await anyio.sleep(max(self._keep_alive_s - silence_s, self._keep_alive_s / 10))

    async def _show_life(self, send: Send) -> None:
        self._active_at = time.monotonic()
        with anyio.move_on_after(self._patience_s) as limit:
            await send({"type": "http.response.body", "body": self._keep_alive(), "more_body": True})
        if limit.cancelled_caught:
            raise ClientGone

"""A stream that begins when something long has been done, as a model's load: until then it says that it is alive.

Knows no dialect.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tenuto.errors import TenutoError
from tenuto.runtime.http.disconnect import ClientGone, while_connected
from tenuto.runtime.http.errors import INTERNAL, ErrorForm
from tenuto.runtime.http.sse import EventStream

logger = logging.getLogger(__name__)

ALIVE_S = 3.0
"""What takes no longer begins as any other stream: with its own headers, or with a status that says what was wrong."""


def comment(text: str) -> bytes:
    """A comment of server-sent events, which no client shows."""
    return b": %s\n\n" % " ".join(text.split()).encode()


class StartingStream(Response):
    """Does `start`, then sends the stream that it gives. A client that leaves before that cancels it.

    Where it lasts, the answer begins with `alive` every few seconds; what goes wrong then is one of `failure`'s frames.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[EventStream]],
        errors: ErrorForm,
        *,
        alive: Callable[[], bytes],
        failure: Callable[[TenutoError], bytes],
        media_type: str = EventStream.media_type,
        alive_s: float = ALIVE_S,
    ) -> None:
        self.status_code, self.background, self.media_type = 200, None, media_type
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})
        self._start, self._errors, self._alive, self._failure = start, errors, alive, failure
        self._alive_s = alive_s
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; an ASGI application."""
        begun: list[EventStream] = []

        async def start() -> None:
            begun.append(await self._start())

        try:
            await while_connected(receive, None, start, lambda: self._tell(send))
        except (ClientGone, OSError):
            for stream in begun:
                await stream.abandon()
            return
        except Exception as exc:
            await self._refuse(exc, scope, receive, send)
            return
        (stream,) = begun
        await stream(scope, receive, self._after(send))

    async def _tell(self, send: Send) -> None:
        while True:
            await anyio.sleep(self._alive_s)
            if not self._has_begun:
                self._has_begun = True
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self._alive(), "more_body": True})

    async def _refuse(self, exc: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        if not isinstance(exc, TenutoError):
            logger.error("a stream did not begin", exc_info=exc)
            exc = TenutoError(INTERNAL)
        if self._has_begun:
            await send({"type": "http.response.body", "body": self._failure(exc), "more_body": False})
        else:
            await self._errors.response(exc)(scope, receive, send)

    def _after(self, send: Send) -> Send:
        """What the stream sends, less the head that was sent before."""
        if not self._has_begun:
            return send

        async def rest(message: Message) -> Any:
            if message["type"] != "http.response.start":
                await send(message)

        return rest

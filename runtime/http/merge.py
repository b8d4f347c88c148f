"""Several streams of frames as one: each is made by a task of its own, and sent in the order in which frames come."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from starlette.types import Receive, Scope, Send

from tenuto.runtime.http.disconnect import Attached
from tenuto.runtime.http.sse import EventStream

Frames = AsyncGenerator[bytes, None]


class MergedStream(EventStream):
    """Sends the frames of all `parts` as they come, and then those of `closing`. None of them may raise.

    What has been made and not yet sent is bounded: a client that reads slowly holds up the parts.
    """

    def __init__(
        self,
        parts: Sequence[Frames],
        closing: Frames,
        held: Attached,
        *,
        headers: Mapping[str, str] | None = None,
        keep_alive_s: float,
    ) -> None:
        self._parts = parts
        self._into, out = anyio.create_memory_object_stream[bytes](len(parts))
        super().__init__(_joined(out, closing), held, headers=headers, keep_alive_s=keep_alive_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; an ASGI application."""
        async with anyio.create_task_group() as group:
            with self._into:
                for part in self._parts:
                    group.start_soon(_pump, part, self._into.clone())
            await super().__call__(scope, receive, send)
            group.cancel_scope.cancel()


async def _pump(frames: Frames, into: MemoryObjectSendStream[bytes]) -> None:
    """Send what a part makes, as long as anybody reads it: the client may be gone before the parts have heard of it."""
    with into, suppress(anyio.BrokenResourceError):
        async with aclosing(frames):
            async for data in frames:
                if data:
                    await into.send(data)


async def _joined(out: MemoryObjectReceiveStream[bytes], closing: Frames) -> Frames:
    with out:
        async for data in out:
            yield data
    async for data in closing:
        yield data

"""A server's stream of events on its way to the SDK, which gets each message in a form that it can read."""

from collections.abc import AsyncIterator

import httpx2

from tenuto.tools.host.reading import readable
from tenuto.tools.host.transport import MAX_MESSAGE_BYTES, RequestId

_NO_LONGER_TRUE = ("content-encoding", "content-length", "transfer-encoding")


def with_readable_events(response: httpx2.Response, request: RequestId | None) -> httpx2.Response:
    """The response with the same events. `request` is the one that it answers."""
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _NO_LONGER_TRUE]
    events = _Events(response, request)
    return httpx2.Response(response.status_code, headers=headers, stream=events, request=response.request)


def is_event_stream(response: httpx2.Response) -> bool:
    """Whether that is what the server says."""
    kind, _, _ = response.headers.get("content-type", "").partition(";")
    return bool(kind.strip().lower() == "text/event-stream")


class _Events(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, request: RequestId | None) -> None:
        self._response, self._request = response, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for event in httpx2.EventSource(self._response, max_event_size=MAX_MESSAGE_BYTES):
            data = event.data.encode()
            if event.event == "message" and data:
                message = await readable(data, self._request)
                if message is None:
                    continue
                data = message
            yield _frame(event, data)

    async def aclose(self) -> None:
        await self._response.aclose()


def _frame(event: httpx2.ServerSentEvent, data: bytes) -> bytes:
    lines = [b"event: " + event.event.encode(), *(b"data: " + line for line in data.split(b"\n"))]
    if event.id:
        lines.append(b"id: " + event.id.encode())
    if event.retry is not None:
        lines.append(b"retry: %d" % event.retry)
    return b"\n".join(lines) + b"\n\n"

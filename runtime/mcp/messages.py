"""How large a message to /mcp may be, in bytes and JSON values: looked at before the SDK reads it on the event loop."""

from collections import deque

import anyio.to_thread
from mcp.types import INVALID_REQUEST
from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto.json_bounds import has_at_most
from tenuto.runtime.http.body import LARGE_BYTES

MOST_BYTES = 4 << 20
"""As the SDK itself has it where nobody says otherwise."""
MOST_VALUES = 50_000
"""Fewer than a chat's request may have, whose body is read in a thread."""


class BoundedMessages:
    """An ASGI application before another one, which gets no message that is larger than it may be."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on as it came, or refuse it."""
        if scope["method"] == "POST":
            messages = await _buffered(receive)
            if messages[-1]["type"] == "http.disconnect":
                return
            body = b"".join(message.get("body", b"") for message in messages)
            if len(body) > MOST_BYTES:
                await _refusal(413, f"{MOST_BYTES} bytes")(scope, receive, send)
                return
            if not await _is_small_enough(body):
                await _refusal(400, f"{MOST_VALUES} JSON values")(scope, receive, send)
                return
            receive = _again(messages, receive)
        await self._app(scope, receive, send)


async def _is_small_enough(body: bytes) -> bool:
    if len(body) < LARGE_BYTES:
        return has_at_most(body, MOST_VALUES)
    return await anyio.to_thread.run_sync(has_at_most, body, MOST_VALUES)


async def _buffered(receive: Receive) -> deque[Message]:
    """All that comes of a body; a disconnect is the last where the client has gone in the middle of it."""
    messages: deque[Message] = deque()
    more = True
    while more:
        messages.append(await receive())
        more = messages[-1].get("more_body", False)
    return messages


def _again(messages: deque[Message], receive: Receive) -> Receive:
    """A request that has been read already."""

    async def replay() -> Message:
        return messages.popleft() if messages else await receive()

    return replay


def _refusal(status: int, limit: str) -> Response:
    error = {"code": INVALID_REQUEST, "message": f"the message has more than {limit}"}
    content = to_json({"jsonrpc": "2.0", "id": None, "error": error})
    return Response(content, status, media_type="application/json")

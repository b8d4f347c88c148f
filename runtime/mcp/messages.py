"""How large a message to /mcp may be, in JSON values: looked at before the SDK reads it on the event loop."""

from collections import deque

from mcp.types import INVALID_REQUEST
from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto.json_bounds import MOST_VALUES, has_at_most


class BoundedMessages:
    """An ASGI application before another one, which gets no message with more values than there may be."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on as it came, or refuse it."""
        if scope["method"] == "POST":
            messages = await _buffered(receive)
            if messages[-1]["type"] == "http.disconnect":
                return
            if not has_at_most(b"".join(message.get("body", b"") for message in messages), MOST_VALUES):
                await _refusal()(scope, receive, send)
                return
            receive = _again(messages, receive)
        await self._app(scope, receive, send)


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


def _refusal() -> Response:
    error = {"code": INVALID_REQUEST, "message": f"the message has more than {MOST_VALUES} JSON values"}
    content = to_json({"jsonrpc": "2.0", "id": None, "error": error})
    return Response(content, 400, media_type="application/json")

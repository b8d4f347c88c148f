"""/v1/responses as a WebSocket: its client creates one response after the other, with the same events as a stream has.

https://platform.openai.com/docs/guides/websocket-mode
"""

import logging
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial

import anyio
from pydantic_core import to_json
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from tenuto.errors import Overloaded, TenutoError
from tenuto.runtime.dialects.beginning import while_there
from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.dialects.openai.responses.answer import Head
from tenuto.runtime.dialects.openai.responses.created import Created, Past, past_of, read_created
from tenuto.runtime.dialects.openai.responses.encoder import ResponseEncoder
from tenuto.runtime.dialects.openai.responses.endpoint import Responses, Wanted
from tenuto.runtime.dialects.openai.responses.ids import response_id
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import understood
from tenuto.runtime.http.disconnect import ClientGone
from tenuto.runtime.http.errors import INTERNAL, error_headers
from tenuto.runtime.http.refusal import POLICY_VIOLATION, refuse
from tenuto.runtime.http.sse import EventStream, data_of
from tenuto.runtime.loop.events import Answer
from tenuto.sessions.ids import new_hex
from tenuto.sessions.records import RunStatus
from tenuto.sessions.shares import Shares

logger = logging.getLogger(__name__)

MOST_SOCKETS = 64
LIFE_S = 3600.0
"""After so long a socket takes no further request; its client opens another one."""
MOST_WAITING = 4
MOST_WAITING_BYTES = 1 << 20
"""What a client may send while a response is under way."""
_GOING_AWAY = 1001
_RETRY_AFTER_S = 5.0


class ResponseSockets:
    """The endpoint. Principals share the number of sockets, since each may hold a body of the largest size."""

    def __init__(self, responses: Responses) -> None:
        self._responses = responses
        self._places: Shares[object] = Shares("the table of WebSockets", MOST_SOCKETS, lambda _: False)

    async def open(self, websocket: WebSocket) -> None:
        """Serve one, until its client or its time is gone."""
        place = object()
        try:
            self._places.admit(place, principal_of(websocket).id, anyio.current_time(), _RETRY_AFTER_S)
        except Overloaded as full:
            await refuse(full, websocket.scope, websocket.receive, websocket.send)
            return
        try:
            await websocket.accept()
            await _Socket(websocket, self._responses).serve()
        except WebSocketDisconnect:
            pass
        finally:
            self._places.remove(place)


class _TooMuchWaits(Exception):
    """The client sends faster than it is answered."""


class _Socket:
    def __init__(self, websocket: WebSocket, responses: Responses) -> None:
        self._websocket, self._responses = websocket, responses
        self._waiting: deque[bytes] = deque()
        self._past: Past | None = None
        self._last_sent = b""
        self._has_ended = False
        """Whether the last stream was sent to its end."""
        self._is_gone = False
        self._ends_at = anyio.current_time() + LIFE_S

    async def serve(self) -> None:
        """Answer each request when the one before it has been answered."""
        while (body := await self._next()) is not None:
            try:
                await self._answer(body)
            except TenutoError as exc:
                await self._tell(exc)
            except _TooMuchWaits:
                await self._websocket.close(POLICY_VIOLATION, "too much was sent while a response was under way")
                return
            except ClientGone:
                return
            except Exception:
                logger.exception("a request over a WebSocket failed")
                await self._tell(TenutoError(INTERNAL))

    async def _next(self) -> bytes | None:
        """The next request; None where none will come."""
        if self._is_gone:
            return None
        if self._waiting:
            return self._waiting.popleft()
        with anyio.CancelScope(deadline=self._ends_at):
            return _body(await self._websocket.receive())
        await self._websocket.close(_GOING_AWAY, "the time of this connection is over; open another one")
        return None

    async def _answer(self, body: bytes) -> None:
        created = await understood(body, partial(read_created, past=self._past))
        async with self._responses.reading(created.body, self._websocket) as read:
            wanted = _echoing(read, created)
            if created.generates:
                leg = await while_there(self._watch, wanted.request.turn, partial(self._responses.begin, wanted))
                stream = self._responses.stream(leg, wanted)
            else:
                stream = self._prepared(wanted)
        self._has_ended = False
        await stream(self._websocket.scope, self._watch, self._send)
        if not self._has_ended:
            raise ClientGone
        self._past = None
        if created.items is not None:
            remembered = partial(past_of, items=created.items, after=created.after)
            self._past = await understood(self._last_sent, remembered)

    def _prepared(self, wanted: Wanted) -> EventStream:
        """The events of a response that the model is not asked for: the next one says what it begins with."""
        model = self._responses.runner.models.meant(wanted.request.turn.model).id
        head = Head(response_id(new_hex()), wanted.asked, model, time.time(), stored=False)
        encoder = ResponseEncoder(head, {}, streamed=True)

        async def frames() -> AsyncGenerator[bytes, None]:
            yield encoder.opening()
            yield encoder.closing(Answer("", "", model, status=RunStatus.COMPLETED), time.time())

        return EventStream(frames())

    async def _watch(self) -> Message:
        """What the stream of a response sees of its client: when it has gone. What else comes meanwhile waits."""
        while True:
            body = _body(await self._websocket.receive())
            if body is None:
                self._is_gone = True
                return {"type": "http.disconnect"}
            self._waiting.append(body)
            if len(self._waiting) > MOST_WAITING or sum(map(len, self._waiting)) > MOST_WAITING_BYTES:
                raise _TooMuchWaits

    async def _send(self, message: Message) -> None:
        """Send what the stream of a response says, an event a message."""
        for data in data_of(message.get("body", b"")):
            self._last_sent = data
            try:
                await self._websocket.send_text(data.decode())
            except WebSocketDisconnect:
                raise ClientGone from None
        self._has_ended = not message.get("more_body", True)

    async def _tell(self, exc: TenutoError) -> None:
        headers = error_headers(exc)
        told = ERRORS.told(exc).model_dump(exclude_unset=True)
        event = {"type": "error", "status": ERRORS.entry(type(exc)).status, **told}
        if headers:
            event["error"]["headers"] = headers
        await self._websocket.send_text(to_json(event).decode())


def _body(message: Message) -> bytes | None:
    """What a client has sent; None where it has gone."""
    if message["type"] == "websocket.disconnect":
        return None
    text: str | None = message.get("text")
    data: bytes = message.get("bytes") or b""
    return data if text is None else text.encode()


def _echoing(wanted: Wanted, created: Created) -> Wanted:
    if created.previous is None:
        return wanted
    echo = {**wanted.asked.echo, "previous_response_id": created.previous}
    return replace(wanted, asked=replace(wanted.asked, echo=echo))

"""A server over streamable HTTP, and over the older HTTP with server-sent events."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest

from tenuto.tools.host.header_command import CommandAuth
from tenuto.tools.host.http_client import Wire, words
from tenuto.tools.host.oauth import OAuth
from tenuto.tools.host.state import Kind
from tenuto.tools.host.transport import (
    MAX_MESSAGE_BYTES,
    Fate,
    Incoming,
    Streams,
    lost,
    marked,
    received,
    unsent,
    unsent_reason,
)
from tenuto.tools.mcp_config import HttpTarget, StdioTarget

_POSTS = 64
_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError)


class HttpTransport:
    """Streamable HTTP, by the SDK. What becomes of a call when the server goes away is told by `Wire`."""

    def __init__(self, target: HttpTarget, read_timeout_s: float, auth: httpx2.Auth | None = None) -> None:
        self.ended = anyio.Event()
        self.ending = "the server closed the connection"
        self._target = target
        self._wire = Wire(target, read_timeout_s, auth)

    @property
    def refused(self) -> bool:
        """Whether the server has no route for messages here, as servers of the older transport have none."""
        return self._wire.refused

    @property
    def login_needed(self) -> str:
        """Why and how a person must log in, where the server does not take what it was sent last."""
        return self._wire.login_needed

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Streams, None]:
        """Relay the SDK's stream, mending listings and watching for a session that is gone."""
        sender, receiver = anyio.create_memory_object_stream[Incoming](0)
        async with (
            self._wire as http,
            streamable_http_client(self._target.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES) as (
                read,
                write,
            ),
            anyio.create_task_group() as tasks,
        ):

            async def relay() -> None:
                async with sender:
                    async for message in read:
                        seen = self._looked_at(message)
                        await sender.send(seen)
                        # Only now: the call shall hear that it was not sent before all calls hear of the end.
                        self._end(unsent_reason(seen))
                self.ended.set()

            tasks.start_soon(relay)
            try:
                yield receiver, write  # type: ignore[misc]  # the SDK types its memory streams by protocols
            finally:
                tasks.cancel_scope.cancel()

    @staticmethod
    def _looked_at(message: Incoming) -> Incoming:
        if isinstance(message, Exception):
            return message
        if isinstance(message.message, JSONRPCError):
            # Whether the server has answered so or the SDK has lost the answer cannot be told apart here.
            return SessionMessage(marked(message.message, Fate.LOST))
        return received(message.message)

    def _end(self, reason: str | None) -> None:
        if reason is not None and not self.ended.is_set():
            self.ending = reason
            self.ended.set()


class SseTransport:
    """The older HTTP transport: one stream of events from the server, whose first names where messages are posted.

    The SDK has such a transport, too. Ours sends messages beside each other, takes large ones, and answers a call
    whose message could not be posted instead of leaving it to its deadline.
    """

    refused = False

    @property
    def login_needed(self) -> str:
        """Why and how a person must log in, where the server does not take what it was sent last."""
        return self._wire.login_needed

    def __init__(self, target: HttpTarget, read_timeout_s: float, auth: httpx2.Auth | None = None) -> None:
        self.ended = anyio.Event()
        self.ending = "the server closed its stream of events"
        self._target = target
        self._wire = Wire(target, read_timeout_s, auth)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Streams, None]:
        """Open the stream of events.

        Raises:
            httpx2.HTTPError: it cannot be opened.
            ConnectionError: it is none, or does not begin as it should.
        """
        to_session, incoming = anyio.create_memory_object_stream[Incoming](0)
        outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        async with (
            self._wire as http,
            http.sse(self._target.url, max_event_size=MAX_MESSAGE_BYTES) as events,
            anyio.create_task_group() as tasks,
        ):
            events.response.raise_for_status()
            stream = aiter(events)
            endpoint = await self._endpoint(stream)
            tasks.start_soon(self._read, stream, to_session)
            tasks.start_soon(self._write, http, endpoint, from_session, to_session)
            try:
                yield incoming, outgoing
            finally:
                tasks.cancel_scope.cancel()

    async def _endpoint(self, stream: AsyncIterator[httpx2.ServerSentEvent]) -> str:
        """Where messages go: at the same server, or headers with secrets would be sent elsewhere."""
        first = await anext(stream, None)
        if first is None or first.event != "endpoint":
            raise ConnectionError("its stream of events does not begin with an endpoint")
        endpoint = urljoin(self._target.url, first.data)
        here, there = urlsplit(self._target.url), urlsplit(endpoint)
        if (here.scheme, here.netloc) != (there.scheme, there.netloc):
            raise ConnectionError("it names an endpoint at another server")
        return endpoint

    async def _read(
        self,
        stream: AsyncIterator[httpx2.ServerSentEvent],
        to_session: MemoryObjectSendStream[Incoming],
    ) -> None:
        async with to_session:
            try:
                async for event in stream:
                    if event.event == "message" and event.data:
                        with suppress(*_GONE):
                            await to_session.send(_message(event.data))
            except httpx2.TransportError as exc:
                self._end(f"its stream of events broke: {words(exc)}")
            self._end(self.ending)

    async def _write(
        self,
        http: httpx2.AsyncClient,
        endpoint: str,
        from_session: MemoryObjectReceiveStream[SessionMessage],
        to_session: MemoryObjectSendStream[Incoming],
    ) -> None:
        places = anyio.Semaphore(_POSTS)

        async def post(message: mcp_types.JSONRPCMessage) -> None:
            async with places:
                failure = await self._post(http, endpoint, message)
            if failure is not None:
                answer = SessionMessage(failure)
                with suppress(*_GONE):
                    await to_session.send(answer)
                self._end(unsent_reason(answer))

        async with from_session, anyio.create_task_group() as tasks:
            async for each in from_session:
                tasks.start_soon(post, each.message)

    async def _post(
        self, http: httpx2.AsyncClient, endpoint: str, message: mcp_types.JSONRPCMessage
    ) -> JSONRPCError | None:
        """Post one message; what the session is told where that failed."""
        body = message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        try:
            response = await http.post(endpoint, json=body)
        except (httpx2.HTTPError, httpx2.StreamError) as exc:
            reason = f"the connection broke: {words(exc)}"
            return lost(message.id, reason) if isinstance(message, JSONRPCRequest) else None
        if response.status_code < 400 or not isinstance(message, JSONRPCRequest):
            return None
        try:
            failure = JSONRPCError.model_validate_json(response.content)
        except ValueError:
            # A stream that is open and a message that is refused: the server has lost this session.
            return unsent(message.id, f"the server refused the message with HTTP {response.status_code}")
        return failure.model_copy(update={"id": message.id})

    def _end(self, reason: str | None) -> None:
        if reason is not None and not self.ended.is_set():
            self.ending = reason
            self.ended.set()


def _message(data: str) -> Incoming:
    try:
        message = mcp_types.jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValueError as exc:
        return exc
    return received(message)


def kind_of(target: StdioTarget | HttpTarget) -> Kind:
    """How to speak to a server at first."""
    if isinstance(target, StdioTarget):
        return "stdio"
    return "sse" if target.kind == "sse" else "http"


def auth_of(
    target: StdioTarget | HttpTarget, learn: Callable[[str], None], want_login: Callable[[str], None]
) -> httpx2.Auth | None:
    """Who says to a server who calls it, besides its headers; the same for all its connections. `learn` is told of what
    is sent so, and `want_login` why and how a person must log in, each time that a request is refused for want of it.
    """
    if not isinstance(target, HttpTarget):
        return None
    if target.command is not None:
        return CommandAuth(target.command, learn)
    may_log_in = target.oauth is not None and target.oauth.folder is not None
    return OAuth(target.url, target.oauth, learn, want_login) if may_log_in and target.oauth is not None else None

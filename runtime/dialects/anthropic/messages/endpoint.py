"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's messages, with sessions and the server's tools."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from tenuto.errors import ContextTooLong, TenutoError
from tenuto.runtime.dialects.anthropic.errors import ERRORS, REQUEST_ID_HEADER, new_request_id
from tenuto.runtime.dialects.anthropic.messages.answer import message
from tenuto.runtime.dialects.anthropic.messages.request import MessageRequest, read_message, read_prompt, unseen
from tenuto.runtime.dialects.anthropic.messages.shapes import CountAnswer
from tenuto.runtime.dialects.anthropic.messages.stream import PING, EventEncoder, failed
from tenuto.runtime.dialects.anthropic.messages.tools import Listed, brought, with_servers
from tenuto.runtime.dialects.beginning import while_there
from tenuto.runtime.dialects.headers import run_headers
from tenuto.runtime.dialects.naming import naming
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import received
from tenuto.runtime.http.disconnect import while_connected
from tenuto.runtime.http.errors import INTERNAL
from tenuto.runtime.http.sse import EventStream
from tenuto.runtime.http.starting import StartingStream, comment
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.port import LoopPort
from tenuto.sessions.records import RunStatus
from tenuto.tools.host.requested import Requested
from tenuto.tools.registry import by_server

logger = logging.getLogger(__name__)

_NAMES = {"response_format": "output_config.format"}


@dataclass(frozen=True, slots=True)
class Messages:
    """The endpoints."""

    runner: LoopPort
    keep_alive_s: float

    async def create(self, request: Request) -> Response:
        """Answer one request."""
        read = await _received(request, read_message)
        if read.stream and (read.turn.names_offers or not self.runner.models.is_loaded(read.turn.model)):
            return self._late(read)
        asked, run = await self._begin(read, request.receive)
        if asked.stream:
            return self._stream(asked, run)
        return await _unstreamed(request, asked, run)

    async def _begin(self, read: MessageRequest, receive: Receive | None) -> tuple[MessageRequest, Follower]:
        """`receive`: where the client would be seen to leave, if nobody looks there meanwhile."""
        async with self._connected(read) as asked:
            start = partial(self.runner.start, asked.turn)
            with naming(_NAMES):
                return asked, await while_there(receive, asked.turn, start)

    def _late(self, read: MessageRequest) -> Response:
        """The stream of an answer for which a model has to be loaded first, or an MCP server asked."""

        async def start() -> EventStream:
            return self._stream(*await self._begin(read, None))

        def alive() -> bytes:
            return comment(self.runner.models.doing(read.turn.model))

        return StartingStream(start, ERRORS, alive=alive, failure=failed)

    async def count(self, request: Request) -> Response:
        """Count what the model would read of a request, also where it is more than it can."""
        async with self._connected(await _received(request, read_prompt)) as asked:
            try:
                with naming(_NAMES):
                    preview = partial(self.runner.preview, asked.turn)
                    count = len(await while_there(request.receive, asked.turn, preview))
            except ContextTooLong as exc:
                if exc.at_least:
                    raise
                count = exc.prompt_tokens
        return answered(CountAnswer(input_tokens=count), headers={REQUEST_ID_HEADER: new_request_id()})

    @asynccontextmanager
    async def _connected(self, asked: MessageRequest) -> AsyncIterator[MessageRequest]:
        """What a client wants, with the servers that it brings connected for the block."""
        principal = asked.turn.principal
        async with self.runner.models.using(asked.turn.model, principal.id) as model:
            reads = model.codec.info.modalities
        left_out = (*asked.turn.left_out, *unseen(asked.carried, reads))
        asked = replace(asked, turn=replace(asked.turn, model=model.id, left_out=left_out))
        if not asked.tools.servers:
            yield asked
            return
        listed = by_server(self.runner.registry.list())
        servers = brought(asked.tools, self.runner.registry.servers)
        if not servers:
            yield _with_servers(asked, listed, None)
            return
        async with self.runner.connected(principal, servers) as requested:
            silent: Listed = {server.label: () for server in servers}
            yield _with_servers(asked, {**listed, **silent, **by_server(requested.tools)}, requested)

    def _stream(self, asked: MessageRequest, run: Follower) -> EventStream:
        request_id = new_request_id()
        encoder = EventEncoder(request_id, run.session_id, asked.shows, named_events=asked.turn.wants_events)
        return EventStream(
            _frames(run, encoder),
            run,
            headers=_headers(run, request_id),
            keep_alive=lambda: PING,
            keep_alive_s=self.keep_alive_s,
        )


async def _received(request: Request, read: Callable[..., MessageRequest]) -> MessageRequest:
    return await received(request, partial(read, headers=request.headers, principal=principal_of(request)))


def _with_servers(asked: MessageRequest, listed: Listed, requested: Requested | None) -> MessageRequest:
    """The request with the tools of its servers."""
    tools = replace(with_servers(asked.tools, listed), requested=requested)
    names = {one.name: (one.server, one.tool.spec.name) for own in listed.values() for one in own}
    return replace(asked, turn=replace(asked.turn, tools=tools), served=names)


async def _unstreamed(request: Request, asked: MessageRequest, run: Follower) -> Response:
    answer = await while_connected(request.receive, run, run.answer)
    if answer.status is RunStatus.FAILED:
        status, error = ERRORS.told_of_run(answer.error, answer.error_code, run.id)
        return answered(error, status, {**_headers(run, ""), **ERRORS.headers(error)})
    events = [event async for _, event in run.events()]
    whole = message(answer, events, asked.shows)
    return answered(whole, headers=_headers(run, new_request_id()))


async def _frames(run: Follower, encoder: EventEncoder) -> AsyncGenerator[bytes, None]:
    try:
        yield encoder.opening(run.snapshot())
        async for events in run.batches():
            yield b"".join(map(encoder.encode, events))
        yield encoder.closing(run.snapshot())
    except TenutoError as exc:
        yield encoder.failure(exc)
    except Exception:
        logger.exception("the stream of run %s failed", run.id)
        yield encoder.failure(TenutoError(INTERNAL))


def _headers(run: Follower, request_id: str) -> dict[str, str]:
    """Which request, session and run an answer belongs to."""
    return {REQUEST_ID_HEADER: request_id, **run_headers(run)}

"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's messages, with sessions and the server's tools."""

import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import ContextTooLong, TenutoError
from tenuto.runtime.dialects.anthropic.errors import ERRORS, REQUEST_ID_HEADER, new_request_id
from tenuto.runtime.dialects.anthropic.messages.answer import message
from tenuto.runtime.dialects.anthropic.messages.request import MessageRequest, read_message, read_prompt, unseen
from tenuto.runtime.dialects.anthropic.messages.shapes import CountAnswer
from tenuto.runtime.dialects.anthropic.messages.stream import PING, EventEncoder
from tenuto.runtime.dialects.anthropic.messages.tools import with_servers
from tenuto.runtime.dialects.headers import run_headers
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import received
from tenuto.runtime.http.disconnect import while_connected
from tenuto.runtime.http.errors import INTERNAL
from tenuto.runtime.http.sse import EventStream
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.port import LoopPort
from tenuto.sessions.records import RunStatus

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Messages:
    """The endpoints."""

    runner: LoopPort
    keep_alive_s: float

    async def create(self, request: Request) -> Response:
        """Answer one request."""
        asked = await self._read(request, read_message)
        run = await self.runner.start(asked.turn)
        if asked.stream:
            return self._stream(asked, run)
        return await _unstreamed(request, asked, run)

    async def count(self, request: Request) -> Response:
        """Count what the model would read of a request, also where it is more than it can."""
        asked = await self._read(request, read_prompt)
        try:
            count = len(await self.runner.preview(asked.turn))
        except ContextTooLong as exc:
            if exc.at_least:
                raise
            count = exc.prompt_tokens
        return answered(CountAnswer(input_tokens=count), headers={REQUEST_ID_HEADER: new_request_id()})

    async def _read(self, request: Request, read: Callable[..., MessageRequest]) -> MessageRequest:
        reader = partial(read, headers=request.headers, principal=principal_of(request))
        asked = await received(request, reader)
        model = self.runner.models.find(asked.turn.model)
        turn = replace(asked.turn, model=model.id)
        if asked.tools.servers:
            offered = [exported.spec.name for exported in self.runner.registry.list()]
            turn = replace(turn, tools=with_servers(asked.tools, offered))
        reads = model.codec.info.modalities
        return replace(asked, turn=replace(turn, left_out=(*turn.left_out, *unseen(asked.carried, reads))))

    def _stream(self, asked: MessageRequest, run: Follower) -> Response:
        request_id = new_request_id()
        encoder = EventEncoder(request_id, run.session_id, asked.thinking, named_events=asked.turn.wants_events)
        return EventStream(
            _frames(run, encoder),
            run,
            headers=_headers(run, request_id),
            keep_alive=lambda: PING,
            keep_alive_s=self.keep_alive_s,
        )


async def _unstreamed(request: Request, asked: MessageRequest, run: Follower) -> Response:
    answer = await while_connected(request.receive, run, run.answer)
    if answer.status is RunStatus.FAILED:
        status, error = ERRORS.told_of_run(answer.error, answer.error_code, run.id)
        return answered(error, status, {**_headers(run, ""), **ERRORS.headers(error)})
    events = [event async for _, event in run.events()]
    whole = message(answer, events, asked.thinking)
    return answered(whole, headers=_headers(run, new_request_id()))


async def _frames(run: Follower, encoder: EventEncoder) -> AsyncGenerator[bytes, None]:
    try:
        yield encoder.opening(run.snapshot())
        async for _, event in run.events():
            yield encoder.encode(event)
        yield encoder.closing(run.snapshot())
    except TenutoError as exc:
        yield encoder.failure(exc)
    except Exception:
        logger.exception("the stream of run %s failed", run.id)
        yield encoder.failure(TenutoError(INTERNAL))


def _headers(run: Follower, request_id: str) -> dict[str, str]:
    """Which request, session and run an answer belongs to."""
    return {REQUEST_ID_HEADER: request_id, **run_headers(run)}

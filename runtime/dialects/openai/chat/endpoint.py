"""POST /v1/chat/completions: OpenAI's chat, with sessions and tools that the server runs; and the count of a chat."""

import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import TenutoError
from tenuto.runtime.dialects.beginning import while_there
from tenuto.runtime.dialects.headers import run_headers
from tenuto.runtime.dialects.openai.chat.answer import chat_answer, completion_id, several
from tenuto.runtime.dialects.openai.chat.choices import ChoiceFrames, ChoiceRuns, turns
from tenuto.runtime.dialects.openai.chat.chunks import ChunkEncoder, failed
from tenuto.runtime.dialects.openai.chat.request import ChatRequest, read_chat
from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.dialects.openai.usage import TokenCount
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import received
from tenuto.runtime.http.disconnect import while_connected
from tenuto.runtime.http.errors import INTERNAL
from tenuto.runtime.http.merge import MergedStream
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.http.sse import EventStream
from tenuto.runtime.http.starting import StartingStream, comment
from tenuto.runtime.loop.events import Answer
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.port import LoopPort
from tenuto.sessions.records import RunStatus

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChatCompletions:
    """The endpoints."""

    runner: LoopPort
    keep_alive_s: float

    async def create(self, request: Request) -> Response:
        """Answer one request."""
        reader = partial(read_chat, headers=request.headers, principal=principal_of(request))
        chat = await received(request, reader)
        if chat.n > 1:
            return await self._several(request, chat)
        if chat.stream and (chat.turn.names_offers or not self.runner.models.is_loaded(chat.turn.model)):
            return self._late(chat)
        run = await while_there(request.receive, chat.turn, partial(self.runner.start, chat.turn))
        if chat.stream:
            return self._stream(chat, run)
        return await _unstreamed(request, chat, run)

    async def count(self, request: Request) -> Response:
        """How many tokens the model would read."""
        reader = partial(read_chat, headers=request.headers, principal=principal_of(request))
        chat = await received(request, reader)
        tokens = await while_there(request.receive, chat.turn, partial(self.runner.preview, chat.turn))
        return answered(TokenCount(object="response.input_tokens", input_tokens=len(tokens)))

    def _late(self, chat: ChatRequest) -> Response:
        """The stream of an answer for which a model has to be loaded first, or an MCP server asked."""

        async def start() -> EventStream:
            return self._stream(chat, await self.runner.start(chat.turn))

        def alive() -> bytes:
            return comment(self.runner.models.doing(chat.turn.model))

        return StartingStream(start, ERRORS, alive=alive, failure=failed)

    def _stream(self, chat: ChatRequest, run: Follower) -> EventStream:
        encoder = ChunkEncoder(
            completion_id(run.leg_id),
            run.id,
            run.session_id,
            run.model,
            run.created_at,
            named_events=chat.turn.wants_events,
            include_usage=chat.include_usage,
            logprobs=_wants_logprobs(chat),
        )
        return EventStream(_frames(run, encoder), run, headers=run_headers(run), keep_alive_s=self.keep_alive_s)

    async def _several(self, request: Request, chat: ChatRequest) -> Response:
        start = partial(ChoiceRuns.start, self.runner, turns(chat))
        choices = await while_there(request.receive, chat.turn, start)
        if chat.stream:
            frames = ChoiceFrames(choices, chat)
            return MergedStream(frames.parts(), frames.closing(), choices, keep_alive_s=self.keep_alive_s)
        try:
            answers = await while_connected(request.receive, None, choices.answers)
            status, body = _several_body(answers, choices, chat)
        finally:
            await choices.close()
        return answered(body, status)


def _several_body(answers: list[Answer], choices: ChoiceRuns, chat: ChatRequest) -> tuple[int, Shape]:
    last = answers[-1]
    if last.status is RunStatus.FAILED:
        return ERRORS.told_of_run(last.error, last.error_code, last.run_id)
    return 200, several(answers, choices.runs[0].created_at, logprobs=_wants_logprobs(chat))


async def _unstreamed(request: Request, chat: ChatRequest, run: Follower) -> Response:
    answer = await while_connected(request.receive, run, run.answer)
    if answer.status is RunStatus.FAILED:
        status, error = ERRORS.told_of_run(answer.error, answer.error_code, run.id)
        return answered(error, status, run_headers(run))
    return answered(chat_answer(answer, run.created_at, logprobs=_wants_logprobs(chat)), headers=run_headers(run))


async def _frames(run: Follower, encoder: ChunkEncoder) -> AsyncGenerator[bytes, None]:
    try:
        yield encoder.opening()
        async for events in run.batches():
            yield b"".join(map(encoder.encode, events))
        yield encoder.closing(run.snapshot())
    except TenutoError as exc:
        yield encoder.failure(exc)
    except Exception:
        logger.exception("the stream of run %s failed", run.id)
        yield encoder.failure(TenutoError(INTERNAL))


def _wants_logprobs(chat: ChatRequest) -> bool:
    return chat.turn.sampling.logprobs is not None

"""POST /api/chat and /api/generate: Ollama's answers, with sessions and tools that the server runs."""

import logging
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import TenutoError
from tenuto.runtime.dialects.beginning import while_there
from tenuto.runtime.dialects.headers import run_headers
from tenuto.runtime.dialects.naming import naming
from tenuto.runtime.dialects.ollama import raw
from tenuto.runtime.dialects.ollama.errors import ERRORS
from tenuto.runtime.dialects.ollama.keep_alive import keep
from tenuto.runtime.dialects.ollama.lines import CHAT, GENERATE, Form, Lines
from tenuto.runtime.dialects.ollama.request import Asked, read_chat, read_generate
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import received
from tenuto.runtime.http.disconnect import while_connected
from tenuto.runtime.http.errors import INTERNAL
from tenuto.runtime.http.ndjson import MEDIA_TYPE, LineStream
from tenuto.runtime.http.starting import StartingStream
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.loop.requests import Turn
from tenuto.sessions.records import RunStatus

logger = logging.getLogger(__name__)

_NAMES = {"response_format": "format"}


@dataclass(frozen=True, slots=True)
class Answers:
    """The endpoints."""

    runner: LoopPort
    keep_alive_s: float

    async def chat(self, request: Request) -> Response:
        """Answer a conversation."""
        return await self._answer(request, CHAT, await _read(request, read_chat))

    async def generate(self, request: Request) -> Response:
        """Answer one prompt."""
        return await self._answer(request, GENERATE, await _read(request, read_generate))

    async def _answer(self, request: Request, form: Form, asked: Asked) -> Response:
        keep(self.runner.models, asked.model, asked.keep_alive, principal_of(request))
        if asked.turn is not None:
            return await self._run(request, form, asked, asked.turn)
        if asked.raw is not None:
            return await raw.answer(request, self.runner, asked, asked.raw, self.keep_alive_s)
        async with self.runner.models.using(asked.model, principal_of(request).id) as model:
            return answered(Lines(form, model.id, time.time()).end("", {"done": True, "done_reason": "load"}))

    async def _run(self, request: Request, form: Form, asked: Asked, turn: Turn) -> Response:
        began = time.monotonic()
        if asked.stream and (turn.names_offers or not self.runner.models.is_loaded(turn.model)):
            return self._late(form, asked, turn, began)
        run = await while_there(request.receive, turn, partial(self._begin, turn))
        if asked.stream:
            return self._stream(form, asked, run, began)
        lines = Lines(form, run.model, run.created_at, shows_thinking=asked.shows_thinking)
        return await _unstreamed(request, run, lines, began)

    async def _begin(self, turn: Turn) -> Follower:
        with naming(_NAMES):
            return await self.runner.start(turn)

    def _late(self, form: Form, asked: Asked, turn: Turn, began: float) -> Response:
        """The stream of an answer for which a model has to be loaded first, or an MCP server asked.

        What keeps it alive is a line without text.
        """

        async def start() -> LineStream:
            return self._stream(form, asked, await self._begin(turn), began)

        lines = Lines(form, self.runner.models.meant(turn.model).id, time.time())
        return StartingStream(
            start, ERRORS, alive=partial(lines.text, ""), failure=lines.failure, media_type=MEDIA_TYPE
        )

    def _stream(self, form: Form, asked: Asked, run: Follower, began: float) -> LineStream:
        lines = Lines(form, run.model, run.created_at, shows_thinking=asked.shows_thinking)
        return LineStream(
            _frames(run, lines, began),
            run,
            headers=run_headers(run),
            keep_alive=partial(lines.text, ""),
            keep_alive_s=self.keep_alive_s,
        )


async def _read(request: Request, read: Callable[..., Asked]) -> Asked:
    reader = partial(read, headers=request.headers, principal=principal_of(request))
    return await received(request, reader)


async def _unstreamed(request: Request, run: Follower, lines: Lines, began: float) -> Response:
    answer = await while_connected(request.receive, run, run.answer)
    if answer.status is RunStatus.FAILED:
        status, error = ERRORS.told_of_run(answer.error, answer.error_code, run.id)
        return answered(error, status, run_headers(run))
    return answered(lines.whole(answer, time.monotonic() - began), headers=run_headers(run))


async def _frames(run: Follower, lines: Lines, began: float) -> AsyncGenerator[bytes, None]:
    try:
        async for events in run.batches():
            yield b"".join(map(lines.encode, events))
        yield lines.closing(run.snapshot(), time.monotonic() - began)
    except TenutoError as exc:
        yield lines.failure(exc)
    except Exception:
        logger.exception("the stream of run %s failed", run.id)
        yield lines.failure(TenutoError(INTERNAL))

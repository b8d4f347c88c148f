"""POST /v1/completions: texts that go on from prompts. No session, no template, no tools."""

import logging
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from uuid import uuid4

import anyio
from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import ContextTooLong, TenutoError
from tenuto.runtime.dialects.openai.completions.answer import (
    Text,
    TextChunks,
    closing,
    completion_answer,
    finish_reason,
)
from tenuto.runtime.dialects.openai.completions.request import CompletionRequest, read_completion
from tenuto.runtime.dialects.openai.completions.shapes import CompletionAnswer, CompletionEnvelope
from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import read_body
from tenuto.runtime.http.disconnect import while_connected
from tenuto.runtime.http.errors import INTERNAL
from tenuto.runtime.http.merge import MergedStream
from tenuto.runtime.http.sse import DONE, frame, one_line
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.loop.raw import RawRun

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Completions:
    """The endpoint."""

    runner: LoopPort
    keep_alive_s: float

    async def create(self, request: Request) -> Response:
        """Answer one request."""
        body = await read_body(request)
        wanted = await anyio.to_thread.run_sync(read_completion, body, self.runner.models, principal_of(request))
        texts = Texts(wanted, self.runner)
        if wanted.stream:
            return MergedStream(texts.parts(), texts.closing(), texts, keep_alive_s=self.keep_alive_s)
        return answered(await while_connected(request.receive, texts, texts.answer))


class Texts:
    """The texts of one request, under way from the start. Read once, whole or as parts; closed by whoever reads."""

    def __init__(self, wanted: CompletionRequest, runner: LoopPort) -> None:
        self._wanted = wanted
        self._envelope = CompletionEnvelope(
            id=f"cmpl-{uuid4().hex}", object="text_completion", created=int(time.time()), model=wanted.model.id
        )
        self._runs: list[RawRun] = []
        self._failure: TenutoError | None = None
        try:
            for text in wanted.texts:
                self._runs.append(runner.complete(text.raw))
        except BaseException as exc:
            self._close()
            if isinstance(exc, ContextTooLong):
                exc.param = "prompt"
            raise

    async def disconnected(self) -> None:
        """The client is gone: nobody else reads these."""
        self._close()

    async def answer(self) -> CompletionAnswer:
        """The unstreamed answer.

        Raises:
            TenutoError: a text failed; the others have been stopped.
        """
        texts = [Text(text) for text in self._wanted.texts]
        async with anyio.create_task_group() as group:
            for run, text in zip(self._runs, texts, strict=True):
                group.start_soon(self._read, run, text, group.cancel_scope)
        if self._failure is not None:
            raise self._failure
        return completion_answer(self._envelope, texts, self._runs, logprobs=self._wanted.logprobs)

    def parts(self) -> list[AsyncGenerator[bytes, None]]:
        """The frames of each text."""
        return [self._part(index, run) for index, run in enumerate(self._runs)]

    async def closing(self) -> AsyncGenerator[bytes, None]:
        """The frames after all texts."""
        if self._failure is not None:
            yield frame(one_line(ERRORS.told(self._failure).encode())) + DONE
        else:
            figures = [run.usage for run in self._runs] if self._wanted.include_usage else None
            yield closing(self._envelope, figures)

    async def _read(self, run: RawRun, text: Text, scope: anyio.CancelScope) -> None:
        try:
            async for piece in run:
                text.add(piece)
        except Exception as exc:
            self._fail(exc)
            scope.cancel()

    async def _part(self, index: int, run: RawRun) -> AsyncGenerator[bytes, None]:
        wanted = self._wanted
        chunks = TextChunks(self._envelope, index, include_usage=wanted.include_usage, logprobs=wanted.logprobs)
        try:
            yield chunks.echo(wanted.texts[index].before)
            async for piece in run:
                yield chunks.piece(piece)
            if self._failure is None:
                yield chunks.ending(finish_reason(run))
        except Exception as exc:
            self._fail(exc)

    def _fail(self, exc: Exception) -> None:
        """The first failure ends all; what was not raised on purpose is told in the log alone."""
        if not isinstance(exc, TenutoError):
            logger.error("a text of %s failed", self._envelope.id, exc_info=exc)
        if self._failure is None:
            self._failure = exc if isinstance(exc, TenutoError) else TenutoError(INTERNAL)
            self._close()

    def _close(self) -> None:
        for run in self._runs:
            run.close()

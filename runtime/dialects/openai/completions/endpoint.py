"""POST /v1/completions: texts that go on from prompts. No session, no template, no tools."""

import logging
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from functools import partial

import anyio
from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import ContextTooLong, TenutoError
from tenuto.runtime.dialects.openai.completions.answer import CompletionForm, Text, TextForm
from tenuto.runtime.dialects.openai.completions.request import CompletionRequest, TextRequest, read_completion
from tenuto.runtime.dialects.openai.completions.shapes import CompletionEnvelope
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import read_body
from tenuto.runtime.http.disconnect import while_connected
from tenuto.runtime.http.errors import INTERNAL
from tenuto.runtime.http.merge import MergedStream
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.loop.raw import RawRun
from tenuto.sessions.ids import new_hex
from tenuto.sessions.principal import Principal

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Completions:
    """The endpoint."""

    runner: LoopPort
    keep_alive_s: float

    async def create(self, request: Request) -> Response:
        """Answer one request."""
        principal = principal_of(request)
        begin = partial(self._begin, await read_body(request), principal)
        wanted, texts = await self.runner.models.with_loaded(begin, principal.id)
        del begin  # the body is not kept for as long as the answer takes
        return await texts.response(request, stream=wanted.stream, keep_alive_s=self.keep_alive_s)

    async def _begin(self, body: bytes, principal: Principal) -> "tuple[CompletionRequest, Texts]":
        wanted = await anyio.to_thread.run_sync(read_completion, body, self.runner.models, principal)
        envelope = CompletionEnvelope(
            id=f"cmpl-{new_hex()}", object="text_completion", created=int(time.time()), model=wanted.model.id
        )
        return wanted, Texts(wanted.texts, CompletionForm(wanted, envelope), self.runner)


class Texts:
    """The texts of one request, under way from the start. Read once, whole or as parts; closed by whoever reads."""

    def __init__(self, wanted: Sequence[TextRequest], form: TextForm, runner: LoopPort) -> None:
        self._wanted, self._form = wanted, form
        self._runs: list[RawRun] = []
        self._failure: TenutoError | None = None
        try:
            for text in wanted:
                self._runs.append(runner.complete(text.raw))
        except BaseException as exc:
            self._close()
            if isinstance(exc, ContextTooLong):
                exc.param = "prompt"
            raise

    async def response(self, request: Request, *, stream: bool, keep_alive_s: float) -> Response:
        """What the request is answered with.

        Raises:
            TenutoError: a text failed, and it is not streamed.
        """
        if stream:
            return MergedStream(self.parts(), self.closing(), self, keep_alive_s=keep_alive_s)
        answer = await while_connected(request.receive, self, self.answer)
        return Response(answer, media_type="application/json")

    async def disconnected(self) -> None:
        """The client is gone: nobody else reads these."""
        self._close()

    async def answer(self) -> bytes:
        """The unstreamed answer.

        Raises:
            TenutoError: a text failed; the others have been stopped.
        """
        texts = [Text(text) for text in self._wanted]
        async with anyio.create_task_group() as group:
            for run, text in zip(self._runs, texts, strict=True):
                group.start_soon(self._read, run, text, group.cancel_scope)
        if self._failure is not None:
            raise self._failure
        return self._form.whole(texts, self._runs)

    def parts(self) -> list[AsyncGenerator[bytes, None]]:
        """The frames of each text."""
        return [self._part(index, run) for index, run in enumerate(self._runs)]

    async def closing(self) -> AsyncGenerator[bytes, None]:
        """The frames after all texts."""
        last = self._form.closing(self._runs) if self._failure is None else self._form.failure(self._failure)
        if last:
            yield last

    async def _read(self, run: RawRun, text: Text, scope: anyio.CancelScope) -> None:
        try:
            async for piece in run:
                text.add(piece)
        except Exception as exc:
            self._fail(exc)
            scope.cancel()

    async def _part(self, index: int, run: RawRun) -> AsyncGenerator[bytes, None]:
        try:
            yield self._form.opening(index)
            async for piece in run:
                yield self._form.piece(index, piece)
            if self._failure is None:
                yield self._form.ending(index, run)
        except Exception as exc:
            self._fail(exc)

    def _fail(self, exc: Exception) -> None:
        """The first failure ends all; what was not raised on purpose is told in the log alone."""
        if not isinstance(exc, TenutoError):
            logger.error("a text failed", exc_info=exc)
        if self._failure is None:
            self._failure = exc if isinstance(exc, TenutoError) else TenutoError(INTERNAL)
            self._close()

    def _close(self) -> None:
        for run in self._runs:
            run.close()

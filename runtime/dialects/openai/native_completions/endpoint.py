"""POST /completion and /infill: llama-server's own form of text completions. No session, no template, no tools."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import anyio
from starlette.requests import Request
from starlette.responses import Response

from tenuto.runtime.dialects.openai.completions.endpoint import Texts
from tenuto.runtime.dialects.openai.native_completions.answer import NativeForm
from tenuto.runtime.dialects.openai.native_completions.infill import read_infill
from tenuto.runtime.dialects.openai.native_completions.request import NativeCompletionRequest, read_native_completion
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import read_body
from tenuto.runtime.loop.models import Models
from tenuto.runtime.loop.port import LoopPort
from tenuto.sessions.principal import Principal

Read = Callable[[bytes, Models, Principal], NativeCompletionRequest]


@dataclass(frozen=True, slots=True)
class NativeCompletions:
    """The endpoint."""

    runner: LoopPort
    keep_alive_s: float

    async def create(self, request: Request) -> Response:
        """Answer one request."""
        return await self._answer(request, read_native_completion)

    async def infill(self, request: Request) -> Response:
        """Fill a gap."""
        return await self._answer(request, read_infill)

    async def _answer(self, request: Request, read: Read) -> Response:
        principal = principal_of(request)
        begin = partial(self._begin, await read_body(request), read, principal)
        asked, texts = await self.runner.models.with_loaded(begin, principal.id)
        del begin  # the body is not kept for as long as the answer takes
        return await texts.response(request, stream=asked.completion.stream, keep_alive_s=self.keep_alive_s)

    async def _begin(self, body: bytes, read: Read, principal: Principal) -> tuple[NativeCompletionRequest, Texts]:
        asked = await anyio.to_thread.run_sync(read, body, self.runner.models, principal)
        return asked, Texts(asked.completion.texts, NativeForm(asked), self.runner)

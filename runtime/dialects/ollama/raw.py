"""POST /api/generate with `raw`: a text that goes on from the prompt itself. No session, no template, no tools."""

import logging
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import TenutoError
from tenuto.pipelines.infill import Gap
from tenuto.runtime.dialects.ollama.answer import figures, logprobs
from tenuto.runtime.dialects.ollama.lines import GENERATE, Lines
from tenuto.runtime.dialects.ollama.request import Asked, RawPrompt
from tenuto.runtime.dialects.ollama.shapes import DoneReason
from tenuto.runtime.dialects.ollama.wire import MOST_NUMBER
from tenuto.runtime.dialects.prompts import infill_tokens, prompt_tokens
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.disconnect import while_connected
from tenuto.runtime.http.errors import INTERNAL
from tenuto.runtime.http.ndjson import LineStream
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.loop.events import TextLogprob
from tenuto.runtime.loop.models import Model
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.loop.raw import RawRequest, RawRun
from tenuto.runtime.loop.room import check_length
from tenuto.sessions.principal import Principal

logger = logging.getLogger(__name__)


async def answer(request: Request, runner: LoopPort, asked: Asked, prompt: RawPrompt, keep_alive_s: float) -> Response:
    """Answer one request.

    Raises:
        TenutoError: the prompt is wrong or too long, or the text failed before anything was sent.
    """
    began = time.monotonic()
    principal = principal_of(request)

    async def begin() -> _Text:
        raw = await anyio.to_thread.run_sync(_request, runner.models.find(asked.model), prompt, principal)
        run = runner.complete(raw)
        return _Text(run, Lines(GENERATE, run.model.id, time.time()), began)

    text = await runner.models.with_loaded(begin, principal.id)
    if not asked.stream:
        return answered(await while_connected(request.receive, text, text.whole))
    return LineStream(text.frames(), text, keep_alive=partial(text.lines.text, ""), keep_alive_s=keep_alive_s)


def _request(model: Model, prompt: RawPrompt, principal: Principal) -> RawRequest:
    if prompt.suffix:
        tokens = infill_tokens(model, Gap(prompt.text, prompt.suffix), prompt.max_tokens, "suffix")
    else:
        check_length(model.codec, [prompt.text], model.context)
        tokens = prompt_tokens(model.codec, prompt.text)
    return RawRequest(
        principal,
        model.id,
        tokens,
        prompt.sampling.over(model.defaults),
        prompt.max_tokens or MOST_NUMBER,
        prompt.stop,
    )


@dataclass(frozen=True, slots=True)
class _Text:
    """A text under way. Read once, whole or as frames."""

    run: RawRun
    lines: Lines
    began: float

    async def disconnected(self) -> None:
        """The client is gone: nobody else reads it."""
        self.run.close()

    async def whole(self) -> Shape:
        """The unstreamed answer."""
        texts: list[str] = []
        likely: list[TextLogprob] = []
        async for piece in self.run:
            texts.append(piece.text)
            likely += piece.logprobs
        more: dict[str, Any] = {"logprobs": logprobs(likely)} if likely else {}
        return self.lines.end("".join(texts), {**more, **self._end()})

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The lines of the stream."""
        try:
            async for piece in self.run:
                yield self.lines.text(piece.text, piece.logprobs)
            yield self.lines.last(self._end())
        except TenutoError as exc:
            yield self.lines.failure(exc)
        except Exception:
            logger.exception("a raw text failed")
            yield self.lines.failure(TenutoError(INTERNAL))

    def _end(self) -> dict[str, Any]:
        usage = self.run.usage
        reason: DoneReason = "length" if self.run.was_cut else "stop"
        return figures(reason, usage.prompt, usage.sampled, [usage], time.monotonic() - self.began)

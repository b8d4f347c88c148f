"""POST /v1/responses: OpenAI's responses, with sessions and tools that the server runs; and the count of an input."""

import logging
import time
from collections import defaultdict
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import TenutoError
from tenuto.runtime.dialects.headers import run_headers
from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.dialects.openai.responses.answer import Head
from tenuto.runtime.dialects.openai.responses.approvals import pause_id
from tenuto.runtime.dialects.openai.responses.encoder import ResponseEncoder
from tenuto.runtime.dialects.openai.responses.request import ResponseRequest, read_count, read_responses
from tenuto.runtime.dialects.openai.responses.shapes import TokenCount
from tenuto.runtime.dialects.openai.responses.tools import Listed
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import read_body, understood
from tenuto.runtime.http.disconnect import while_connected
from tenuto.runtime.http.errors import INTERNAL
from tenuto.runtime.http.sse import EventStream
from tenuto.runtime.loop.events import Answer
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.port import LoopPort
from tenuto.sessions.records import RunStatus
from tenuto.tools.registry import Exported

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Responses:
    """The endpoints."""

    runner: LoopPort
    keep_alive_s: float

    async def create(self, request: Request) -> Response:
        """Answer one request."""
        listed = self._listed()
        reader = partial(read_responses, headers=request.headers, principal=principal_of(request), listed=listed)
        wanted = await understood(await read_body(request), reader)
        run = await self._begin(wanted)
        encoder = ResponseEncoder(self._head(wanted, run), listed, streamed=wanted.stream)
        if wanted.stream:
            frames = _frames(run, encoder)
            return EventStream(
                frames,
                run,
                headers=run_headers(run),
                keep_alive=encoder.keep_alive,
                keep_alive_s=self.keep_alive_s,
            )
        answer = await while_connected(request.receive, run, partial(_gathered, run, encoder))
        if answer.status is RunStatus.FAILED:
            status, error = ERRORS.told_of_run(answer.error, answer.error_code, run.id)
            return answered(error, status, run_headers(run))
        return answered(encoder.whole(answer), headers=run_headers(run))

    async def count(self, request: Request) -> Response:
        """How many tokens the model would read."""
        reader = partial(read_count, headers=request.headers, principal=principal_of(request), listed=self._listed())
        tokens = await self.runner.preview(await understood(await read_body(request), reader))
        return answered(TokenCount(object="response.input_tokens", input_tokens=len(tokens)))

    async def _begin(self, wanted: ResponseRequest) -> Follower:
        """The run that answers: a new one, one that gets its results, or one that has waited for a person's word."""
        approval = wanted.approval
        if approval is None:
            return await self.runner.start(wanted.turn)
        run = await self.runner.decide(
            wanted.turn.principal,
            pause_id(approval.request_id),
            approve=approval.approve,
            message=approval.reason,
            remember=False,
        )
        return Follower(run, claims=True)

    def _head(self, wanted: ResponseRequest, run: Follower) -> Head:
        asked = wanted.turn.temperature
        # A decision goes on with a leg that has been answered before: the response is another one all the same.
        name = run.leg_id if wanted.approval is None else wanted.approval.request_id.partition("_")[2]
        return Head(
            id=f"resp_{name.replace('-', '')}",
            request=wanted,
            model=run.model,
            temperature=self.runner.models.find(run.model).temperature if asked is None else asked,
            created_at=time.time(),
            stored=run.run.stored,
            clock=time.time,
        )

    def _listed(self) -> Listed:
        tools: dict[str, list[Exported]] = defaultdict(list)
        for exported in self.runner.registry.list():
            tools[exported.server].append(exported)
        return dict(tools)


async def _gathered(run: Follower, encoder: ResponseEncoder) -> Answer:
    encoder.opening()
    async for _, event in run.events():
        encoder.take(event)
    return run.snapshot()


async def _frames(run: Follower, encoder: ResponseEncoder) -> AsyncGenerator[bytes, None]:
    try:
        yield encoder.opening()
        async for _, event in run.events():
            yield encoder.take(event)
        yield encoder.closing(run.snapshot())
    except TenutoError as exc:
        yield encoder.failure(exc)
    except Exception:
        logger.exception("the stream of run %s failed", run.id)
        yield encoder.failure(TenutoError(INTERNAL))

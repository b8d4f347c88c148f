"""/v1/runs: a run's state, its cancel, and its events for whoever comes back to it."""

import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import TenutoError
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.dialect import errors_of
from tenuto.runtime.http.errors import INTERNAL, ErrorForm
from tenuto.runtime.http.query import number
from tenuto.runtime.http.sse import EventStream, frame, one_line
from tenuto.runtime.loop.events import RunEvent
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.loop.run import Run
from tenuto.runtime.schema.conversion import encoded
from tenuto.runtime.schema.events import VERSION, ToldAgain
from tenuto.runtime.schema.runs import run_answer

logger = logging.getLogger(__name__)

_MOST = 2**53 - 1
"""Above it, JSON readers disagree about whole numbers."""
_DIGITS = len(str(_MOST))
VERSION_HEADER = "x-tenuto-events-version"


@dataclass(frozen=True, slots=True)
class RunsApi:
    """The endpoints."""

    runner: LoopPort
    keep_alive_s: float

    async def show(self, request: Request) -> Response:
        """How a run stands."""
        return answered(run_answer(await self._run(request)))

    async def cancel(self, request: Request) -> Response:
        """Stop a run; answered when it has stopped. A run that has ended stays as it is."""
        return answered(run_answer(await self.runner.cancel(principal_of(request), request.path_params["id"])))

    async def events(self, request: Request) -> Response:
        """The events after number N, and those to come, until the run waits or has ended.

        Where those up to N were told before the run was read from the store, as after a restart, the first frame is
        `told_again`: what follows is all that was kept of it, in fewer pieces and with greater numbers.

        Watching does not hold a run: it goes on when the watcher leaves.
        """
        run = await self._run(request)
        after = number(request, "after", _last_seen(request), least=0, most=_MOST)
        headers = {VERSION_HEADER: str(VERSION)}
        return EventStream(_frames(run, after, errors_of(request)), headers=headers, keep_alive_s=self.keep_alive_s)

    async def _run(self, request: Request) -> Run:
        return await self.runner.run(principal_of(request), request.path_params["id"])


def event_frame(number_: int, event: RunEvent) -> bytes:
    """An event as a frame whose id is its number."""
    return frame(one_line(encoded(number_, event)), number=number_)


def _last_seen(request: Request) -> int:
    """What a browser's EventSource says when it comes back."""
    text = request.headers.get("last-event-id", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else 0


async def _frames(run: Run, after: int, errors: ErrorForm) -> AsyncGenerator[bytes, None]:
    try:
        if run.tells_again(after):
            yield frame(ToldAgain(after=after).encode())
        async for number_, event in run.events(after):
            yield event_frame(number_, event)
    except TenutoError as exc:
        yield frame(one_line(errors.told(exc).encode()))
    except Exception:
        logger.exception("the events of run %s failed", run.id)
        yield frame(one_line(errors.told(TenutoError(INTERNAL)).encode()))

"""/v1/runs: a run's state, its cancel, and its events for whoever comes back to it."""

import dataclasses
import logging
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import TenutoError
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.errors import INTERNAL, openai_error
from tenuto.runtime.http.query import number
from tenuto.runtime.http.sse import EventStream, frame, json_line
from tenuto.runtime.loop.events import RunEvent
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.runner import Runner

logger = logging.getLogger(__name__)

_DIGITS = 15
_MAX_EVENTS = 10**_DIGITS - 1
_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class RunsApi:
    """The endpoints."""

    runner: Runner
    keep_alive_s: float

    async def show(self, request: Request) -> Response:
        """How a run stands."""
        return described(await self._run(request))

    async def cancel(self, request: Request) -> Response:
        """Stop a run; answered when it has stopped. A run that has ended stays as it is."""
        return described(await self.runner.cancel(principal_of(request), request.path_params["id"]))

    async def events(self, request: Request) -> Response:
        """The events after number N, and those to come, until the run waits or has ended.

        Where those up to N were told before the run was read from the store, as after a restart, the first frame is
        `told_again`: what follows is all that was kept of it, in fewer pieces and with greater numbers.

        Watching does not hold a run: it goes on when the watcher leaves.
        """
        run = await self._run(request)
        after = number(request, "after", _last_seen(request), least=0, most=_MAX_EVENTS)
        return EventStream(_frames(run, after), keep_alive_s=self.keep_alive_s)

    async def _run(self, request: Request) -> Run:
        return await self.runner.run(principal_of(request), request.path_params["id"])


def described(run: Run) -> Response:
    """A run as JSON."""
    return Response(to_json(run.describe()), media_type="application/json")


def event_frame(number_: int, event: RunEvent) -> bytes:
    """An event in the loop's own words: its type, its number and its fields."""
    fields = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    return frame(json_line({"type": event_type(type(event)), "number": number_} | fields), number=number_)


def event_type(kind: type) -> str:
    """A class's name as a word for the wire: `text_added` of `TextAdded`."""
    return _WORD_START.sub("_", kind.__name__).lower()


def _last_seen(request: Request) -> int:
    """What a browser's EventSource says when it comes back."""
    text = request.headers.get("last-event-id", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else 0


async def _frames(run: Run, after: int) -> AsyncGenerator[bytes, None]:
    try:
        if run.tells_again(after):
            yield frame(json_line({"type": "told_again", "after": after}))
        async for number_, event in run.events(after):
            yield event_frame(number_, event)
    except TenutoError as exc:
        yield frame(json_line(openai_error(exc)))
    except Exception:
        logger.exception("the events of run %s failed", run.id)
        yield frame(json_line(openai_error(TenutoError(INTERNAL))))

"""GET /v1/agent/inputs and POST /v1/agent/inputs/{id}: what MCP servers ask in the middle of calls, and the answers."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import Wire, read_wire, received
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.schema.questions import inputs_answer
from tenuto.runtime.schema.runs import run_answer
from tenuto.tools.asking import Action, Reply


class InputBody(Wire):
    """The answer. `content` is what a form is filled in with; it goes to the server that asks, and is not kept."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = Field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class InputsApi:
    """The endpoints."""

    runner: LoopPort

    async def index(self, request: Request) -> Response:
        """What the caller's runs wait for."""
        return answered(inputs_answer(await self.runner.questions(principal_of(request))))

    async def answer(self, request: Request) -> Response:
        """Answer once. The run then continues on its own; its events are at /v1/runs/{id}/events."""
        wire = await received(request, partial(read_wire, InputBody))
        reply = Reply(Action(wire.action), wire.content)
        return answered(run_answer(await self.runner.answer(principal_of(request), request.path_params["id"], reply)))

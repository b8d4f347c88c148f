"""POST /v1/agent/approvals/{id}: a person's answer to a tool call that waits for it."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import Wire, read_wire, received
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.schema.runs import run_answer


class DecisionBody(Wire):
    """The answer. `message` is for the model to read where the call is denied."""

    decision: Literal["approve", "deny"]
    message: str | None = None
    remember_for_session: bool | None = None


@dataclass(frozen=True, slots=True)
class ApprovalsApi:
    """The endpoint."""

    runner: LoopPort

    async def decide(self, request: Request) -> Response:
        """Answer once. The run then continues on its own; its events are at /v1/runs/{id}/events."""
        wire = await received(request, partial(read_wire, DecisionBody))
        run = await self.runner.decide(
            principal_of(request),
            request.path_params["id"],
            approve=wire.decision == "approve",
            message=wire.message,
            remember=wire.remember_for_session is True,
        )
        return answered(run_answer(run))

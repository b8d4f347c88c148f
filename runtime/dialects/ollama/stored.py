"""POST /api/pull and DELETE /api/delete: the models that are stored on the server's machine."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import InvalidRequest, ModelLoadFailed, NotFound
from tenuto.pipelines.finding import model_store
from tenuto.runtime.dialects.ollama.shapes import PullAnswer
from tenuto.runtime.dialects.ollama.wire import ModelBody, PullBody, name_of
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import expect_admin, principal_of
from tenuto.runtime.http.body import read_wire, received
from tenuto.runtime.http.disconnect import while_connected
from tenuto.runtime.http.ndjson import LineStream
from tenuto.runtime.http.sse import json_line
from tenuto.runtime.loop.models import Models
from tenuto.runtime.pulls import Pulls, can_be_pulled_again
from tenuto.sessions.principal import Principal

_DONE = {"status": "success"}
_SIGN_OF_LIFE = b'{"status":"pulling"}\n'


@dataclass(frozen=True, slots=True)
class StoredApi:
    """The endpoints."""

    models: Models
    pulls: Pulls
    keep_alive_s: float

    async def pull(self, request: Request) -> Response:
        """Say that a model is there, or fetch it where the settings and the caller's role allow that."""
        wire = await received(request, partial(read_wire, PullBody))
        name = name_of(wire)
        if await self._serves(name, principal_of(request)):
            steps = _told_at_once()
        else:
            _require_admin(request, "pulls")
            steps = await self.pulls.follow(name)
        if wire.stream is not False:
            return LineStream(
                _lines(steps),
                keep_alive=lambda: _SIGN_OF_LIFE,
                keep_alive_s=self.keep_alive_s,
            )
        last = await while_connected(request.receive, None, partial(_last, steps))
        if "error" in last:
            raise ModelLoadFailed(str(last["error"]))
        return answered(PullAnswer(status="success"))

    async def delete(self, request: Request) -> Response:
        """Remove a stored model with all of its versions."""
        wire = await received(request, partial(read_wire, ModelBody))
        name = name_of(wire)
        _require_admin(request, "removes")
        try:
            await anyio.to_thread.run_sync(partial(model_store().remove, name))
        except NotFound as error:
            raise NotFound("model", name, error.known) from error
        except ModelLoadFailed as error:
            raise InvalidRequest(str(error), "model") from error
        return Response()

    async def _serves(self, name: str, principal: Principal) -> bool:
        """Where nothing may be fetched, whatever answers to the name will do, as it does for a chat."""
        if not self.pulls.are_allowed:
            self.models.meant(name)
            return True
        try:
            if name != "default":
                self.models.known(name)
        except NotFound:
            return False
        return not (principal.is_admin and await anyio.to_thread.run_sync(can_be_pulled_again, name))


def _require_admin(request: Request, does: str) -> None:
    expect_admin(request, f"only an admin {does} models: it is done")


async def _told_at_once() -> AsyncGenerator[dict[str, Any], None]:
    yield _DONE


async def _lines(steps: AsyncGenerator[dict[str, Any], None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(steps):
        async for step in steps:
            yield json_line(_DONE if step.get("status") == "success" else step) + b"\n"


async def _last(steps: AsyncGenerator[dict[str, Any], None]) -> dict[str, Any]:
    last: dict[str, Any] = {}
    async with aclosing(steps):
        async for step in steps:
            last = step
    return last

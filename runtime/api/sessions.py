"""/v1/sessions: list, export, import, delete, fork."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import anyio.to_thread
from pydantic import Field
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tenuto.errors import InvalidRequest
from tenuto.json_bounds import has_at_most
from tenuto.runtime.apart.pool import Pool
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import LARGE_BYTES, Wire, parse_object, read_body, read_wire, received
from tenuto.runtime.http.query import number, switch
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.schema.sessions import deleted_answer, imported_answer, session_answer, session_page
from tenuto.sessions.ids import checked_new_session_id
from tenuto.sessions.transfer import restore_text

MOST_VALUES = 2_000_000
"""Most of them are tokens, of which a session has as many as its model has read."""
IMPORT_S = 10.0
_PAGE, _MAX_PAGE = 20, 100


class Fork(Wire):
    """Where to fork, in items, and the new session's id; None: the last completed turn, and an id of ours."""

    at: Annotated[int, Field(ge=0)] | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class SessionsApi:
    """The endpoints."""

    runner: LoopPort
    apart: Pool

    async def index(self, request: Request) -> Response:
        """A page of the caller's sessions, those last used first."""
        limit = number(request, "limit", _PAGE, least=1, most=_MAX_PAGE)
        after = request.query_params.get("after")
        implicit = switch(request, "implicit")
        found = await self.runner.list_sessions(principal_of(request), implicit=implicit, limit=limit + 1, after=after)
        return answered(session_page(found, limit))

    async def export(self, request: Request) -> Response:
        """A whole session, as import reads it; `raw`: all that is kept of it, also of one that is damaged."""
        principal, session_id = principal_of(request), request.path_params["id"]
        if switch(request, "raw"):
            document = await self.runner.export_session(principal, session_id, raw=True)
            return await anyio.to_thread.run_sync(_document, document)  # which can be long
        pages = await self.runner.export_pages(principal, session_id)
        return StreamingResponse(pages, media_type="application/json")  # which makes each in a worker thread

    async def put(self, request: Request) -> Response:
        """Make a session of what export gave."""
        principal = principal_of(request)
        session_id = checked_new_session_id(request.path_params["id"], "id")
        body = await read_body(request)
        if len(body) < LARGE_BYTES:
            session, dropped = await self.runner.import_session(principal, session_id, parse_object(body))
        else:
            if not await anyio.to_thread.run_sync(has_at_most, body, MOST_VALUES):
                raise InvalidRequest(f"a session can have at most {MOST_VALUES} JSON values")
            read = partial(self.apart.do, "reading the session", restore_text, seconds=IMPORT_S)
            session, dropped = await self.runner.keep_imported(await read(body, principal.id, session_id))
        return answered(imported_answer(session, dropped))

    async def delete(self, request: Request) -> Response:
        """Forget a session; its open run is cancelled."""
        session_id = request.path_params["id"]
        await self.runner.delete_session(principal_of(request), session_id)
        return answered(deleted_answer(session_id))

    async def fork(self, request: Request) -> Response:
        """A new session with the first items of another."""
        wire = await received(request, _fork)
        new_id = None if wire.session_id is None else checked_new_session_id(wire.session_id, "session_id")
        forked = await self.runner.fork_session(principal_of(request), request.path_params["id"], wire.at, new_id)
        return answered(session_answer(forked))


def _fork(body: bytes) -> Fork:
    return read_wire(Fork, body) if body else Fork()


def _document(value: dict[str, Any]) -> Response:
    return Response(to_json(value), media_type="application/json")

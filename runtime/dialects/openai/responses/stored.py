"""Responses that are there already: read again, followed, cancelled, deleted, and what their requests brought."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import LegNotFound
from tenuto.runtime.dialects.headers import run_headers
from tenuto.runtime.dialects.openai.responses.ids import leg_id
from tenuto.runtime.dialects.openai.responses.input_items import items_of
from tenuto.runtime.dialects.openai.responses.list_shapes import DeletedResponse
from tenuto.runtime.dialects.openai.responses.pages import page
from tenuto.runtime.dialects.openai.responses.reading import (
    AnyLeg,
    as_it_stands,
    asked_of,
    encoder_of,
    frames,
    servers_tools,
)
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.query import number, switch
from tenuto.runtime.http.sse import EventStream
from tenuto.runtime.loop.port import LoopPort

MOST_EVENTS = 2**53
"""More than a response has; a number that every client can hold."""


@dataclass(frozen=True, slots=True)
class StoredResponses:
    """The endpoints under a response's id."""

    runner: LoopPort
    keep_alive_s: float

    async def retrieve(self, request: Request) -> Response:
        """The response as it stands, or the stream of its events."""
        streamed = switch(request, "stream")
        after = number(request, "starting_after", -1, least=0, most=MOST_EVENTS)
        with _named(request) as id:
            leg = await self.runner.leg(principal_of(request), id)
        if not streamed:
            return await self._standing(leg)
        encoder = encoder_of(leg, asked_of(leg), servers_tools(self.runner), streamed=True, after=after)
        return EventStream(
            frames(leg, encoder),
            leg,
            headers=run_headers(leg),
            keep_alive=encoder.keep_alive,
            keep_alive_s=self.keep_alive_s,
        )

    async def cancel(self, request: Request) -> Response:
        """Stop the response where it is under way; it as it is then."""
        with _named(request) as id:
            return await self._standing(await self.runner.cancel_leg(principal_of(request), id))

    async def delete(self, request: Request) -> Response:
        """Forget the response. Its conversation keeps what was said."""
        with _named(request) as id:
            await self.runner.forget_leg(principal_of(request), id)
        return answered(DeletedResponse(id=_id(request), object="response", deleted=True))

    async def input_items(self, request: Request) -> Response:
        """What the response's request has brought, in pages."""
        principal = principal_of(request)
        with _named(request) as id:
            leg = await self.runner.leg(principal, id)
            await leg.disconnected()
            brought = await self.runner.brought(principal, id)
        return answered(page(request, items_of(brought, id, asked_of(leg).callables)))

    async def _standing(self, leg: AnyLeg) -> Response:
        try:
            encoder = encoder_of(leg, asked_of(leg), servers_tools(self.runner), streamed=False)
            return answered(as_it_stands(leg, encoder), headers=run_headers(leg))
        finally:
            await leg.disconnected()


def _id(request: Request) -> str:
    id: str = request.path_params["id"]
    return id


@contextmanager
def _named(request: Request) -> Iterator[str]:
    """The id of the leg that the request names; errors name the response as the request does."""
    try:
        yield leg_id(_id(request))
    except LegNotFound:
        raise LegNotFound(_id(request)) from None

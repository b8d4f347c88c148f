"""POST /v1/responses: OpenAI's responses, with sessions and tools that the server runs; and the count of an input."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from tenuto.errors import InvalidRequest, LegNotFound, NotFound, UnknownPrevious
from tenuto.runtime.dialects.beginning import while_there
from tenuto.runtime.dialects.headers import run_headers
from tenuto.runtime.dialects.naming import naming
from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.dialects.openai.responses.approvals import pause_id
from tenuto.runtime.dialects.openai.responses.asked import Asked
from tenuto.runtime.dialects.openai.responses.ids import response_id
from tenuto.runtime.dialects.openai.responses.input import Approval
from tenuto.runtime.dialects.openai.responses.reading import AnyLeg, as_it_stands, encoder_of, frames, servers_tools
from tenuto.runtime.dialects.openai.responses.request import ResponseRequest, Unlisted, read_count, read_responses
from tenuto.runtime.dialects.openai.responses.tools import Listed
from tenuto.runtime.dialects.openai.usage import TokenCount
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import read_body, understood
from tenuto.runtime.http.disconnect import while_connected
from tenuto.runtime.http.sse import EventStream
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.loop.requests import KeepAs, Turn
from tenuto.sessions.principal import Principal
from tenuto.sessions.records import RunStatus

ReadT = TypeVar("ReadT", ResponseRequest, Turn)
_NAMES = {"messages": "input", "response_format": "text.format"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request that has been read, with the server's tools as they were then."""

    request: ResponseRequest
    asked: Asked
    listed: Listed


@dataclass(frozen=True, slots=True)
class Responses:
    """The endpoints."""

    runner: LoopPort
    keep_alive_s: float

    async def create(self, request: Request) -> Response:
        """Answer one request."""
        async with self.reading(await read_body(request), request) as wanted:
            leg = await while_there(request.receive, wanted.request.turn, partial(self.begin, wanted))
        if wanted.request.stream:
            return self.stream(leg, wanted)
        return await self._whole(request, leg, wanted.asked, wanted.listed)

    @asynccontextmanager
    async def reading(self, body: bytes, connection: HTTPConnection) -> AsyncIterator[Wanted]:
        """What a client wants, with the servers that it brings connected for the block.

        Raises what `read_responses` does, what `LoopPort.connected` does, and NotFound.
        """
        listed = servers_tools(self.runner)
        reader = partial(read_responses, headers=connection.headers, principal=principal_of(connection), listed=listed)
        async with self._understood(reader, body, connection) as request:
            yield Wanted(request, await self._with_defaults(request), listed)

    @asynccontextmanager
    async def _understood(
        self, reader: Callable[..., ReadT | Unlisted], body: bytes, connection: HTTPConnection
    ) -> AsyncIterator[ReadT]:
        """What a body says, once the tools of its servers are known."""
        read = await understood(body, reader)
        if not isinstance(read, Unlisted):
            yield read
            return
        async with self.runner.connected(principal_of(connection), read.servers) as requested:
            again = await understood(body, partial(reader, requested=requested))
            assert not isinstance(again, Unlisted)
            yield again

    async def begin(self, wanted: Wanted) -> AnyLeg:
        """The leg that answers. Raises what the loop does, and UnknownPrevious."""
        with following(wanted.request.turn):
            return await self._begin(wanted.request, wanted.asked)

    def stream(self, leg: AnyLeg, wanted: Wanted) -> EventStream:
        """The events of a response."""
        encoder = encoder_of(leg, wanted.asked, wanted.listed, streamed=True)
        return EventStream(
            frames(leg, encoder),
            leg,
            headers=run_headers(leg),
            keep_alive=encoder.keep_alive,
            keep_alive_s=self.keep_alive_s,
        )

    async def _whole(self, request: Request, leg: AnyLeg, asked: Asked, listed: Listed) -> Response:
        """The response once it has ended; one in the background as it stands at once."""
        if asked.background:
            await leg.disconnected()
        else:
            answer = await while_connected(request.receive, leg, leg.answer)
            if answer.status is RunStatus.FAILED:
                status, error = ERRORS.told_of_run(answer.error, answer.error_code, leg.id)
                return answered(error, status, run_headers(leg))
        encoder = encoder_of(leg, asked, listed, streamed=False)
        return answered(as_it_stands(leg, encoder), headers=run_headers(leg))

    async def count(self, request: Request) -> Response:
        """How many tokens the model would read."""
        listed = servers_tools(self.runner)
        reader = partial(read_count, headers=request.headers, principal=principal_of(request), listed=listed)
        async with self._understood(reader, await read_body(request), request) as turn:
            with following(turn):
                tokens = await while_there(request.receive, turn, partial(self.runner.preview, turn))
        return answered(TokenCount(object="response.input_tokens", input_tokens=len(tokens)))

    async def _with_defaults(self, wanted: ResponseRequest) -> Asked:
        asked, turn = wanted.asked, wanted.turn
        if asked.temperature is not None and asked.top_p is not None:
            return asked
        async with self.runner.models.using(turn.model, turn.principal.id) as model:
            chosen = turn.sampling.over(model.defaults)
        return replace(asked, temperature=chosen.temperature, top_p=chosen.top_p)

    async def _begin(self, wanted: ResponseRequest, asked: Asked) -> AnyLeg:
        """The leg that answers: of a new run, of one that gets its results, or of one that waited for a word."""
        keep_as = KeepAs(asked.to_json(), is_detached=asked.background)
        turn, approval = wanted.turn, wanted.approval
        if approval is None:
            kept = turn if turn.stored is False else replace(turn, keep_as=keep_as)
            begun = await self.runner.start(kept)
            asked_by = begun.run.request_leg_id
            if not begun.run.stored or (begun.kept is not None and begun.leg_id == asked_by):
                return begun
            # An earlier request with its Idempotency-Key began it: before the server started, or a decision came since.
            await begun.disconnected()
            return await self.runner.leg(turn.principal, asked_by)
        if turn.after is not None:
            await self._expect_asked(turn.principal, turn.after, approval)
        if turn.is_appended and turn.session_id is not None:
            await self.runner.session(turn.principal, turn.session_id)
        run = await self.runner.decide(
            turn.principal,
            pause_id(approval.request_id),
            approve=approval.approve,
            message=approval.reason,
            remember=False,
            keep_as=keep_as,
            requested=turn.tools.requested,
        )
        return Follower(run, claims=not asked.background)

    async def _expect_asked(self, principal: Principal, after: str, approval: Approval) -> None:
        """Raises InvalidRequest where the response that the request names did not ask for this approval."""
        leg = await self.runner.leg(principal, after)
        await leg.disconnected()
        pause = leg.snapshot().pause
        if pause is None or pause.pause_id != pause_id(approval.request_id):
            raise InvalidRequest(
                f"previous_response_id: response {response_id(after)!r} did not ask for {approval.request_id!r}",
                "previous_response_id",
            )


@contextmanager
def following(turn: Turn) -> Iterator[None]:
    """For what fails where there is no response, or no conversation, after which the turn is to go on. Fields have this
    dialect's names."""
    try:
        with naming(_NAMES):
            yield
    except LegNotFound:
        name = response_id(turn.after or "")
        raise UnknownPrevious(f"Previous response with id {name!r} not found.", "previous_response_id") from None
    except NotFound as missing:
        if missing.kind != "session" or turn.session_id is None:
            raise
        raise NotFound("conversation", turn.session_id) from None

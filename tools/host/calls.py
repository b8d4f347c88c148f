"""The calls in flight on one server, and what the server asks while they are.

Until 2025-11-25 it sends requests of its own, which do not say in which call they come. Since 2026-07-28 a call ends
with the question, and is made again with the answer: no process has to wait, so it can be answered after a restart.
"""

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import anyio
from mcp import MCPError
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_REQUEST,
    URL_ELICITATION_REQUIRED,
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    ListRootsRequest,
    ListRootsResult,
    LoggingMessageNotificationParams,
)
from pydantic import TypeAdapter, ValidationError

from tenuto.sessions.items import JsonObject
from tenuto.tools.asking import Action, CannotAsk, Reply, Resumed
from tenuto.tools.host.callbacks import Offered, SampleResult
from tenuto.tools.host.connection import Connection
from tenuto.tools.host.flight import Flight, Over
from tenuto.tools.host.latest_progress import LatestProgress
from tenuto.tools.host.questions import question_of, result_of
from tenuto.tools.host.samples import consent_to, request_of
from tenuto.tools.host.samples import result_of as sample_result
from tenuto.tools.host.task_calls import call_as_task
from tenuto.tools.host.told_roots import ToldRoots
from tenuto.tools.mcp_config import ServerConfig
from tenuto.tools.spec import CallContext

MOST_ROUNDS = 100
"""How often one call may end with questions. A person is asked less often than that."""
MOST_REQUESTS = 64
"""Requests of one server that are being answered, or wait for that."""
MOST_STATE_BYTES = 256 << 10
"""Of what a call needs to go on after a restart; with more it ends with the process."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
"""Before a call is made again whose server only wants it to be."""

_LINKS = TypeAdapter(list[ElicitRequestURLParams])

T = TypeVar("T")


class ServerCalls:
    """Makes calls of one server and answers it; the `ClientCallbacks` of its connections. Event-loop thread only.

    `hidden` takes secrets out of what the server says.
    """

    def __init__(self, config: ServerConfig, hidden: Callable[[str], str]) -> None:
        self._server, self._sampling, self._hidden = config.name, config.sampling, hidden
        self._roots = ToldRoots(config.roots or ())
        self.offered = Offered(config.sampling.is_on, config.sampling.context, config.roots is not None)
        """What the server is told that it may ask for."""
        self._flights: list[Flight] = []
        self._requests = 0
        self._samples = anyio.CapacityLimiter(config.sampling.concurrency)

    async def make(
        self, connection: Connection, name: str, arguments: dict[str, Any], context: CallContext
    ) -> CallToolResult:
        """Make a call and answer what the server asks until it has a result. Raises what the SDK's client does."""
        flight = Flight(context)
        self._flights.append(flight)
        try:
            if self.offered.roots:
                await self._roots.tell(connection, self._contexts())
            responses, state = await self._resumed(flight, context.resumed)
            pause_s = _FIRST_PAUSE_S
            for _ in range(MOST_ROUNDS):
                result = await self._send(connection, name, arguments, flight, responses, state)
                if isinstance(result, CallToolResult):
                    flight.has_result = True
                    return result
                state, responses = result.request_state, None
                if result.input_requests:
                    responses, pause_s = await self._responses(flight, result), _FIRST_PAUSE_S
                else:
                    await anyio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            raise _refused(f"it has asked {MOST_ROUNDS} times in one call, and is not asked again")
        finally:
            self._flights.remove(flight)
            flight.end()

    # What the server asks in requests of its own.

    async def elicit(self, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """Ask whoever waits for the call in which the server most likely asks."""
        return await self._answered(lambda flight: self._ask(flight, params))

    async def sample(self, params: CreateMessageRequestParams) -> SampleResult | ErrorData:
        """Ask the model, for the call in which the server most likely asks."""
        return await self._answered(lambda flight: self._sample(flight, params))

    async def roots(self) -> ListRootsResult:
        """The folders of the entry, and those of the session where calls of one alone are under way."""
        return self._roots.listed(self._contexts())

    async def logged(self, params: LoggingMessageNotificationParams) -> None:
        """Tell the one call that is under way; with several, nobody can tell whose it is."""
        if len(self._flights) == 1 and (log := self._flights[0].context.log) is not None:
            data = params.data if isinstance(params.data, str) else json.dumps(params.data, ensure_ascii=False)
            log(params.level, self._hidden(data if params.logger is None else f"{params.logger}: {data}"))

    async def _answered(self, answer: Callable[[Flight], Awaitable[T]]) -> T | ErrorData:
        try:
            with self._admitted():
                while True:
                    flight = self._asking_flight()
                    try:
                        return await flight.answering(partial(answer, flight))
                    except Over:
                        if not (flight.has_result and self._flights):
                            raise
        except CannotAsk as exc:
            return ErrorData(code=INVALID_REQUEST, message=str(exc))

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        if self._requests >= MOST_REQUESTS:
            raise CannotAsk(f"{self._requests} requests of this server are being answered already")
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    def _asking_flight(self) -> Flight:
        """The call in which the server asks, as far as that can be told. Nobody is asked what may be another's affair.

        Raises:
            CannotAsk: it cannot be told, or no call is under way.
        """
        if len({flight.context.principal for flight in self._flights}) > 1:
            raise CannotAsk("calls of several principals are under way, and nobody can tell whose this question is")
        if not self._flights:
            raise CannotAsk("no call is under way in which it could be asked")
        free = [flight for flight in self._flights if not flight.asking.locked()]
        return (free or self._flights)[-1]

    def _contexts(self) -> list[CallContext]:
        return [flight.context for flight in self._flights]

    # The answers, alike in both eras.

    async def _ask(self, flight: Flight, params: ElicitRequestParams, resume: JsonObject | None = None) -> ElicitResult:
        ask = flight.context.ask
        if ask is None:
            raise CannotAsk("the call is not one in which a person can be asked")
        question = question_of(self._server, params, resume)
        async with flight.asking:
            with flight.context.off_the_clock():
                return result_of(question, await ask(question))

    async def _sample(
        self,
        flight: Flight,
        params: CreateMessageRequestParams,
        resume: JsonObject | None = None,
        reply: Reply | None = None,
    ) -> SampleResult:
        """What the model says; `reply` is what a person has said to that, where they have been asked already."""
        settings, ask, sample = self._sampling, flight.context.ask, flight.context.sample
        if not settings.is_on:
            raise CannotAsk(f'sampling is off: "sampling" in the entry of {self._server} can allow it')
        if sample is None:
            raise CannotAsk("the call is not one in which the model can be asked")
        request = request_of(self._server, params, settings)
        async with flight.asking:
            with flight.context.off_the_clock():
                if settings.mode == "ask" and reply is None:
                    if ask is None:
                        raise CannotAsk("the call is not one in which a person can be asked whether the model may be")
                    reply = await ask(consent_to(request, resume))
                if reply is not None and reply.action is not Action.ACCEPT:
                    raise CannotAsk("the user has refused that the model is asked this")
                async with self._samples:
                    return sample_result(await sample(request), request)

    async def _send(
        self,
        connection: Connection,
        name: str,
        arguments: dict[str, Any],
        flight: Flight,
        responses: dict[str, InputResponse] | None,
        state: str | None,
    ) -> CallToolResult | InputRequiredResult:
        """Make the call once, and again where the server says what must be done first."""
        was_listed = was_opened = False
        progress = self._progress(flight.context)
        while True:
            try:
                if name in connection.made_as_tasks:
                    return await call_as_task(connection.client.session, name, arguments, progress)
                return await connection.client.session.call_tool(
                    name,
                    arguments,
                    progress_callback=progress,
                    input_responses=responses,
                    request_state=state,
                    allow_input_required=True,
                )
            except MCPError as exc:
                if exc.code == HEADER_MISMATCH and connection.modern and not was_listed:
                    was_listed = True  # its schema has changed, and with it what stands in headers
                    await connection.list_tools()
                elif exc.code == URL_ELICITATION_REQUIRED and not was_opened:
                    was_opened = True
                    if not await self._open(flight, exc.data):
                        raise
                else:
                    raise

    def _progress(self, context: CallContext) -> ProgressFnT | None:
        if context.progress is None:
            return None
        return LatestProgress(context.progress, self._hidden).tell

    async def _open(self, flight: Flight, data: Any) -> bool:
        """Ask a person to open the links that a refused call names; whether they have opened all."""
        try:
            links = _LINKS.validate_python(data.get("elicitations") if isinstance(data, dict) else None)
            results = [await self._ask(flight, link) for link in links]
        except (ValidationError, CannotAsk):
            return False
        return bool(results) and all(result.action == Action.ACCEPT.value for result in results)

    # What a call ends with.

    async def _responses(
        self, flight: Flight, asked: InputRequiredResult, known: dict[str, InputResponse] | None = None
    ) -> dict[str, InputResponse]:
        """The answers to all that a call has ended with, but for those that are known already.

        Raises:
            MCPError: one of them cannot be answered.
        """
        responses = dict(known or {})
        if len(asked.input_requests or {}) > MOST_REQUESTS:
            raise _refused(f"it asks more than {MOST_REQUESTS} things at once")
        for key, request in (asked.input_requests or {}).items():
            if key not in responses:
                responses[key] = await self._response(flight, request, _kept(asked, key))
        return responses

    async def _response(
        self, flight: Flight, request: InputRequest, resume: JsonObject | None, reply: Reply | None = None
    ) -> InputResponse:
        """The answer to one. `reply` is what a person has said, in another process, to what was asked of them for it.

        Raises:
            MCPError: it cannot be answered.
        """
        try:
            match request:
                case ElicitRequest() if reply is not None:
                    return result_of(question_of(self._server, request.params), reply)
                case ElicitRequest():
                    return await self._ask(flight, request.params, resume)
                case CreateMessageRequest():
                    return await self._sample(flight, request.params, resume, reply)
                case ListRootsRequest() if self.offered.roots:
                    return self._roots.listed([flight.context])
                case _:
                    raise CannotAsk(f"{request.method} is not offered")
        except CannotAsk as exc:
            raise _refused(str(exc)) from exc

    async def _resumed(
        self, flight: Flight, resumed: Resumed | None
    ) -> tuple[dict[str, InputResponse] | None, str | None]:
        """With what a call is made that has asked in another process, and has its answer now."""
        if resumed is None:
            return None, None
        key = str(resumed.state["key"])
        asked = InputRequiredResult.model_validate(resumed.state["asked"])
        request = (asked.input_requests or {})[key]
        known = {key: await self._response(flight, request, None, resumed.reply)}
        return await self._responses(flight, asked, known), asked.request_state


def _kept(asked: InputRequiredResult, key: str) -> JsonObject | None:
    """What a call needs to go on with an answer in another process."""
    kept = asked.model_dump(mode="json", by_alias=True, exclude_none=True)
    size = len(asked.model_dump_json(by_alias=True, exclude_none=True))
    return {"asked": kept, "key": key} if size <= MOST_STATE_BYTES else None


def _refused(why: str) -> MCPError:
    return MCPError(code=INVALID_REQUEST, message=why)

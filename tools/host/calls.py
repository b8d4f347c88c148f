"""The calls in flight on one server, and what the server asks while they are.

Until 2025-11-25 it sends requests of its own, which do not say in which call they come. Since 2026-07-28 a call ends
with the question, and is made again with the answer: no process has to wait, so it can be answered after a restart.
"""

from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp import MCPError
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_REQUEST,
    URL_ELICITATION_REQUIRED,
    CallToolResult,
    ElicitRequest,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    InputRequest,
    InputRequiredResult,
    InputResponse,
)
from pydantic import TypeAdapter, ValidationError

from tenuto.sessions.items import JsonObject
from tenuto.tools.asking import Action, CannotAsk, Resumed
from tenuto.tools.host.connection import Connection
from tenuto.tools.host.questions import question_of, result_of
from tenuto.tools.spec import CallContext

MOST_ROUNDS = 100
"""How often one call may end with questions. A person is asked less often than that."""
MOST_STATE_BYTES = 256 << 10
"""Of what a call needs to go on after a restart; with more it ends with the process."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
"""Before a call is made again whose server only wants it to be."""

_LINKS = TypeAdapter(list[ElicitRequestURLParams])


@dataclass(slots=True, eq=False)
class _Flight:
    """A call under way. One question of it is asked at a time."""

    context: CallContext
    asking: anyio.Lock = field(default_factory=anyio.Lock)


class ServerCalls:
    """Makes calls of one server and answers it; the `ClientCallbacks` of its connections. Event-loop thread only."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._flights: list[_Flight] = []

    async def make(
        self, connection: Connection, name: str, arguments: dict[str, Any], context: CallContext
    ) -> CallToolResult:
        """Make a call and answer what the server asks until it has a result. Raises what the SDK's client does."""
        flight = _Flight(context)
        self._flights.append(flight)
        try:
            responses, state = await self._resumed(flight, context.resumed)
            pause_s = _FIRST_PAUSE_S
            for _ in range(MOST_ROUNDS):
                result = await self._send(connection, name, arguments, flight, responses, state)
                if isinstance(result, CallToolResult):
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

    async def elicit(self, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """Ask whoever waits for the call in which the server most likely asks."""
        try:
            return await self._ask(self._asking_flight(), params)
        except CannotAsk as exc:
            return ErrorData(code=INVALID_REQUEST, message=str(exc))

    def _asking_flight(self) -> _Flight:
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

    async def _ask(
        self, flight: _Flight, params: ElicitRequestParams, resume: JsonObject | None = None
    ) -> ElicitResult:
        ask = flight.context.ask
        if ask is None:
            raise CannotAsk("the call is not one in which a person can be asked")
        question = question_of(self._server, params, resume)
        async with flight.asking:
            return result_of(question, await ask(question))

    async def _send(
        self,
        connection: Connection,
        name: str,
        arguments: dict[str, Any],
        flight: _Flight,
        responses: dict[str, InputResponse] | None,
        state: str | None,
    ) -> CallToolResult | InputRequiredResult:
        """Make the call once, and again where the server says what must be done first."""
        was_listed = was_opened = False
        while True:
            try:
                return await connection.client.session.call_tool(
                    name,
                    arguments,
                    progress_callback=_progress(flight.context),
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

    async def _open(self, flight: _Flight, data: Any) -> bool:
        """Ask a person to open the links that a refused call names; whether they have opened all."""
        try:
            links = _LINKS.validate_python(data.get("elicitations") if isinstance(data, dict) else None)
            results = [await self._ask(flight, link) for link in links]
        except (ValidationError, CannotAsk):
            return False
        return bool(results) and all(result.action == Action.ACCEPT.value for result in results)

    async def _responses(
        self, flight: _Flight, asked: InputRequiredResult, known: dict[str, InputResponse] | None = None
    ) -> dict[str, InputResponse]:
        """The answers to all that a call has ended with, but for those that are known already.

        Raises:
            MCPError: one of them cannot be answered.
        """
        responses = dict(known or {})
        for key, request in (asked.input_requests or {}).items():
            if key not in responses:
                try:
                    responses[key] = await self._response(flight, request, _kept(asked, key))
                except CannotAsk as exc:
                    raise _refused(str(exc)) from exc
        return responses

    async def _response(self, flight: _Flight, request: InputRequest, resume: JsonObject | None) -> InputResponse:
        match request:
            case ElicitRequest():
                return await self._ask(flight, request.params, resume)
            case _:
                raise CannotAsk(f"{request.method} is not offered")

    async def _resumed(
        self, flight: _Flight, resumed: Resumed | None
    ) -> tuple[dict[str, InputResponse] | None, str | None]:
        """With what a call is made that has asked in another process, and has its answer now."""
        if resumed is None:
            return None, None
        key = str(resumed.state["key"])
        asked = InputRequiredResult.model_validate(resumed.state["asked"])
        request = (asked.input_requests or {})[key]
        assert isinstance(request, ElicitRequest)
        result = result_of(question_of(self._server, request.params), resumed.reply)
        return await self._responses(flight, asked, {key: result}), asked.request_state


def _kept(asked: InputRequiredResult, key: str) -> JsonObject | None:
    """What a call needs to go on with an answer in another process."""
    kept = asked.model_dump(mode="json", by_alias=True, exclude_none=True)
    size = len(asked.model_dump_json(by_alias=True, exclude_none=True))
    return {"asked": kept, "key": key} if size <= MOST_STATE_BYTES else None


def _refused(why: str) -> MCPError:
    return MCPError(code=INVALID_REQUEST, message=why)


def _progress(context: CallContext) -> ProgressFnT | None:
    told = context.progress
    if told is None:
        return None

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        await told(progress, total, message)

    return tell

"""Calls of tools that clients make themselves, while the server behind asks something: the client answers.

A client of the older protocol is asked while its call waits. One of the newer protocol gets what is asked as its
result, and makes the call again with the answer; until then the call is held here, in a task of its own. It ends when
its client goes away or does not come back, and with this process.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from uuid import uuid4

import anyio
import mcp.types as t
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ValidationError

from tenuto.errors import InvalidRequest, Overloaded
from tenuto.runtime.mcp import questions, samples
from tenuto.runtime.mcp.call_log import CallLog, Wanted
from tenuto.runtime.mcp.server_base import Context, can_ask, can_open, put_now
from tenuto.sessions.principal import Principal
from tenuto.sessions.questions import Question
from tenuto.sessions.shares import Shares
from tenuto.tools.asking import CannotAsk, Reply
from tenuto.tools.sampling import Sample, SampleRequest
from tenuto.tools.spec import Caller, Log, Progress, ToolResult

MOST_HELD = 256
"""Calls that wait for their clients' answers, shared by principals."""
MOST_ASKED = 64
"""Of one call."""
_KEY = "it"
_GONE = "this call retries one that is not under way any more; call again from the start"
_UNANSWERED = "this call retries one that asked something, but carries no answer to that"

Put = Callable[[t.InputRequest], Awaitable[t.InputResponse]]
"""Puts a request to the client. Raises CannotAsk."""
Make = Callable[[Caller], Awaitable[ToolResult]]
"""Makes the call."""


class _State(BaseModel):
    """What a client carries from a question to its answer."""

    held: str
    number: int


class Asks:
    """What one call asks of its client, in the forms of tools. `context` is that of the request that waits for it."""

    def __init__(self, context: Context, put: Put) -> None:
        self.context, self._put = context, put
        self._number = 0

    async def ask(self, question: Question) -> Reply:
        """Ask the person behind the client. Raises CannotAsk."""
        if not questions.can_relay(self.context, question):
            raise CannotAsk(f"the client can show nobody a {question.mode.value}")
        params = questions.elicitation(f"ask-{self._number + 1}", question)
        response = await self._put_next(t.ElicitRequest(params=params))
        if not isinstance(response, t.ElicitResult):
            raise CannotAsk("the client has answered something else")
        return questions.reply_of(response)

    async def sample(self, request: SampleRequest) -> Sample:
        """Ask the client's model. Raises CannotAsk."""
        if not samples.can_sample(self.context, request):
            raise CannotAsk("the client that makes the call does not let its model be asked this")
        response = await self._put_next(samples.wire_request(request))
        if not isinstance(response, t.CreateMessageResult | t.CreateMessageResultWithTools):
            raise CannotAsk("the client has answered something else")
        return samples.sample_of(response)

    def caller(self, progress: Progress, log: Log) -> Caller:
        """The client, as tools know it."""
        return Caller(progress, self.ask, self.sample if samples.offers_model(self.context) else None, log)

    async def _put_next(self, request: t.InputRequest) -> t.InputResponse:
        if self._number >= MOST_ASKED:
            raise CannotAsk(f"this call has asked {MOST_ASKED} times, and is not asked for more")
        self._number += 1
        return await self._put(request)


class DirectCalls:
    """All of them. Works while `run` is entered. Event-loop thread only. `wait_s` bounds each wait for an answer."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._held: dict[str, _Held] = {}
        self._waiting: Shares[str] = Shares("the table of calls that ask their clients", MOST_HELD, lambda _: False)
        self._group: TaskGroup | None = None

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Hold calls. Leaving ends them."""
        async with anyio.create_task_group() as group:
            self._group = group
            yield
            group.cancel_scope.cancel()

    async def make(
        self, context: Context, principal: Principal, name: str, make: Make, wanted: Wanted
    ) -> ToolResult | t.InputRequiredResult:
        """Make a call of the tool that the client knows as `name`: its result, or what it asks first."""
        assert self._group is not None
        if context.session.can_send_request or not _can_answer(context):
            log = CallLog(self._group, name, lambda: context, wanted)
            asks = Asks(context, partial(self._put_now, context, principal.id))
            result = await make(asks.caller(context.session.report_progress, log.take))
            await log.flush()
            return result
        held = _Held(self, principal.id, context)
        self._held[held.id] = held
        self._group.start_soon(held.run, make, CallLog(self._group, name, held.waiting, wanted))
        return await held.turn(context)

    async def resumed(
        self, context: Context, principal: Principal, params: t.CallToolRequestParams
    ) -> ToolResult | t.InputRequiredResult | None:
        """Go on with a call that has asked something; None where this is no such call.

        Raises:
            InvalidRequest: the call has ended, or its question has been answered, or no answer has come.
        """
        try:
            state = _State.model_validate_json(params.request_state or "")
        except ValidationError:
            return None
        held = self._held.get(state.held)
        if held is None or held.principal != principal.id or held.number != state.number or held.asked is None:
            raise InvalidRequest(_GONE)
        response = (params.input_responses or {}).get(_KEY)
        if response is None:
            raise InvalidRequest(_UNANSWERED)
        held.answer(response)
        return await held.turn(context)

    # For the calls.

    @contextmanager
    def awaiting(self, principal: str) -> Iterator[None]:
        """Let a call wait for its client's answer. Raises CannotAsk where too many do, and when the time is over."""
        id = uuid4().hex
        try:
            self._waiting.admit(id, principal, anyio.current_time(), 1.0)
        except Overloaded as exc:
            raise CannotAsk("too many calls wait for their clients already") from exc
        try:
            with anyio.fail_after(self._wait_s):
                yield
        except TimeoutError:
            raise CannotAsk(f"nobody answered within {self._wait_s:g} s") from None
        finally:
            self._waiting.remove(id)

    def forget(self, held: "_Held") -> None:
        """It is over."""
        self._held.pop(held.id, None)

    async def _put_now(self, context: Context, principal: str, request: t.InputRequest) -> t.InputResponse:
        with self.awaiting(principal):
            try:
                return await put_now(context, request)
            except (MCPError, ValidationError) as exc:
                raise CannotAsk(f"the client has not answered: {str(exc)[:500]}") from exc


class _Held:
    """One call of a client that is asked by results."""

    def __init__(self, table: DirectCalls, principal: str, context: Context) -> None:
        self.id, self.principal = uuid4().hex, principal
        self.asked: t.InputRequest | None = None
        self.number = 0
        self._table = table
        self._asks = Asks(context, self._put)
        self._response: t.InputResponse | None = None
        self._result: ToolResult | None = None
        self._failure: Exception | None = None
        self._is_over = False
        self._scope = anyio.CancelScope()
        self._moved = anyio.Event()

    async def run(self, make: Make, log: CallLog) -> None:
        """Make it."""
        try:
            with self._scope:
                result = await make(self._asks.caller(self._report, log.take))
                await log.flush()
                self._result = result
        except Exception as exc:  # whoever waits for the call gets it
            self._failure = exc
        finally:
            self._is_over = True
            self._table.forget(self)
            self._tell()

    async def turn(self, context: Context) -> ToolResult | t.InputRequiredResult:
        """Wait until it has a result, or asks something. A client that goes away meanwhile ends it."""
        self._asks.context = context
        settled = False
        try:
            while not self._is_over and self.asked is None:
                await self._moved.wait()
            settled = True
        finally:
            if not settled:
                self._scope.cancel()
        if self.asked is not None and not self._is_over:
            state = _State(held=self.id, number=self.number)
            return t.InputRequiredResult(input_requests={_KEY: self.asked}, request_state=state.model_dump_json())
        if self._failure is not None:
            raise self._failure
        return self._result or ToolResult("Error: the call was cancelled", is_error=True)

    def waiting(self) -> Context | None:
        """The request that waits for it now; None while its client is asked something."""
        return self._asks.context if self.asked is None else None

    def answer(self, response: t.InputResponse) -> None:
        """What its client says to what was asked."""
        self.asked, self._response = None, response
        self._tell()

    async def _put(self, request: t.InputRequest) -> t.InputResponse:
        with self._table.awaiting(self.principal):
            self.number += 1
            self.asked, self._response = request, None
            self._tell()
            try:
                while self._response is None:
                    await self._moved.wait()
                return self._response
            finally:
                if self.asked is not None:  # there is nobody any more to whom its result could be told
                    self.asked = None
                    self._scope.cancel()

    async def _report(self, progress: float, total: float | None, message: str | None) -> None:
        if (context := self.waiting()) is not None:
            await context.session.report_progress(progress, total, message)

    def _tell(self) -> None:
        moved, self._moved = self._moved, anyio.Event()
        moved.set()


def _can_answer(context: Context) -> bool:
    return can_ask(context) or can_open(context) or samples.offers_model(context)

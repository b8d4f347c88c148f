"""The calls of one round: who may make them, making them at once, and what the model reads of each."""

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import anyio

from tenuto.errors import ServerUnreachable, ToolFailed
from tenuto.runtime.loop.events import ToolCalling, ToolReturned, ToolStatus, ToolTold
from tenuto.runtime.loop.held_calls import HeldCall, HeldCalls
from tenuto.runtime.loop.pending import PendingCall, finished, stand_in
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.run_tools import RunTools
from tenuto.runtime.loop.samples import Sampler
from tenuto.runtime.loop.tellings import Tellings
from tenuto.sessions.changes import SaveCall
from tenuto.sessions.items import ToolCall, ToolResultItem
from tenuto.sessions.questions import Question
from tenuto.sessions.records import CallStatus
from tenuto.tools.asking import Ask, Reply, Resumed
from tenuto.tools.roots import root
from tenuto.tools.spec import CallContext, ToolResult

logger = logging.getLogger(__name__)

Commit = Callable[..., Awaitable[None]]

T = TypeVar("T")


@dataclass(slots=True)
class CallRunner:
    """Makes a round's server calls for one run. Event-loop thread only."""

    run: Run
    session_uid: str
    tools: RunTools
    commit: Commit
    held: HeldCalls
    deadline: float
    """On anyio's clock: when the run's time is over."""
    clock: Callable[[], float]
    """Seconds since the epoch."""

    async def make(self, calls: Sequence[PendingCall]) -> None:
        """Make calls concurrently, or go on with those that have asked. Their starts are committed before any is made,
        each result as it comes. One that asks a person has no result, but `asks`.

        On cancellation the calls under way are cancelled at their servers; what has finished is kept.
        """
        now = self.clock()
        begins = [pending for pending in calls if not self.goes_on(pending)]
        started = [replace(pending.record, status=CallStatus.STARTED, started_at=now) for pending in begins]
        if started:
            await self.commit(*map(SaveCall, started))
        for pending, record in zip(begins, started, strict=True):
            pending.record = record
        try:
            async with anyio.create_task_group() as group:
                for pending in calls:
                    if pending.call.id not in self.run.leg.begun:  # else it is made again after a crash
                        self.run.emit(ToolCalling(pending.record.round, pending.call))
                    group.start_soon(self._make, pending)
        except BaseExceptionGroup as several:  # a result that could not be kept; the other calls were cancelled
            raise several.exceptions[0] from None

    def goes_on(self, pending: PendingCall) -> bool:
        """Whether a call has begun in an earlier leg, and goes on in this one."""
        return self.held.of(self.run.id, pending.call.id) is not None or pending.resumed is not None

    async def settle(self, pending: PendingCall, result: ToolResultItem, status: ToolStatus) -> None:
        """Commit a result and tell it."""
        # What a tool has answered is known, whatever becomes of this commit: the next one brings it.
        pending.record = finished(pending, result, self.clock())
        await self.commit(SaveCall(pending.record))
        if pending.call.server:
            self.run.emit(ToolReturned(pending.record.round, pending.call, status, result.text))
            self.tools.count(pending.call.name, status)

    async def deny(self, pending: PendingCall, reason: str) -> None:
        """Put a denial where the result would be."""
        await self.settle(pending, stand_in(pending.call, reason), ToolStatus.DENIED)

    async def _make(self, pending: PendingCall) -> None:
        call, held = pending.call, self._held(pending)
        try:
            await held.settled()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await held.cancel()
            self.held.forget(held)
            raise
        if held.asks and held.question is not None:
            pending.asks = held.pause_id, held.question
            return
        self.held.forget(held)
        result = held.result or ToolResult(f"Error: the call of {call.name} was cancelled", is_error=True)
        item = ToolResultItem(
            call.id,
            call.name,
            _storable(result.text),
            result.is_error,
            server=True,
            structured=_storable(result.structured),
            attachments=result.attachments,
        )
        with anyio.CancelScope(shield=True):  # what a tool has answered is kept, even if the run is being cancelled
            await self.settle(pending, item, ToolStatus.FAILED if result.is_error else ToolStatus.COMPLETED)

    def _held(self, pending: PendingCall) -> HeldCall:
        """The call in its own task: begun now, or the one that has asked, with its answer."""
        call, answered, resumed = pending.call, pending.answered, pending.resumed
        pending.asks = pending.answered = None
        held = self.held.of(self.run.id, call.id)
        if held is None:
            make = partial(self._call, call, pending.record.round, resumed)
            return self.held.begin(self.run.id, call.id, self.run.record.principal, make)
        if answered is not None and held.pause_id == answered[0].id:
            held.reply(answered[1])
        return held

    async def _call(self, call: ToolCall, round: int, resumed: Resumed | None, ask: Ask) -> ToolResult:
        try:
            arguments = _arguments(call.arguments)
        except (ValueError, RecursionError) as error:
            return ToolResult(f"Error: the arguments of {call.name} are not a JSON object: {error}", is_error=True)
        sampler = Sampler(self.tools.services, self.run, self.tools.session, call.id)
        tellings = Tellings(call.id, call.name, round, self._tell)
        left = max(self.deadline - anyio.current_time(), 0.0)
        began, asked = anyio.current_time(), False

        async def asking(question: Question) -> Reply:
            nonlocal asked
            asked = True
            return await ask(question)

        try:
            context = CallContext(
                principal=self.run.record.principal,
                session=self.session_uid,
                run=self.run.id,
                call=call.id,
                progress=tellings.progress,
                log=tellings.log,
                ask=asking,
                resumed=resumed,
                sample=sampler.sample,
                roots=tuple(map(root, self.run.options.roots)),
            )
            result = await self.tools.call(call.name, arguments, context, timeout=left)
            counted = self.tools.counted_as(call.name)
            if counted is not None and not asked and resumed is None:  # else it has waited for a person
                self.tools.services.expectations.called(counted, anyio.current_time() - began)
            return result
        except (ToolFailed, ServerUnreachable) as error:
            return ToolResult(f"Error: {error}", is_error=True)
        except Exception:  # a tool with a bug is one that failed: the others and the run go on
            logger.exception("the call of %s failed inside", call.name)
            return ToolResult(f"Error: {call.name} failed; the server's log has the details", is_error=True)
        finally:
            sampler.close()

    def _tell(self, event: ToolTold) -> None:
        if self.run.working:
            self.run.emit(event)


def _storable(value: T) -> T:
    """A JSON value as it can be stored: half a character, which JSON can spell, becomes a question mark."""
    text = json.dumps(value, ensure_ascii=False)
    clean = text.encode("utf-8", "replace").decode()
    return value if clean == text else json.loads(clean)


def _arguments(text: str) -> dict[str, Any]:
    value = json.loads(text) if text.strip() else {}
    if not isinstance(value, dict):
        raise ValueError(f"it is of type {type(value).__name__}")
    return value

"""A run while it is in memory: its log of events, and how requests follow it. Event-loop thread only.

A run has one or more legs: from its start, or from the answer to a pause, to the next pause or the end. A request
follows one leg; the log goes on over all of them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, assert_never

import anyio
from pydantic import TypeAdapter

from tenuto.pipelines.base import CallBroken
from tenuto.runtime.engine.messages import RoundUsage
from tenuto.runtime.loop.events import (
    Answer,
    ClientCallArguments,
    ClientCallStarted,
    ReasoningAdded,
    RoundEnded,
    RunDone,
    RunEvent,
    RunPaused,
    ServerCall,
    TextAdded,
    ToolCalling,
    ToolReturned,
    Usage,
)
from tenuto.runtime.loop.options import RunOptions
from tenuto.runtime.loop.pending import PendingCall
from tenuto.sessions.items import ToolCall
from tenuto.sessions.records import PauseRecord, RunRecord, RunStatus


class Run:
    """One answer to one request, as those see it who follow it.

    `record` is its stored form as of the last commit; the loop alone replaces it.
    """

    def __init__(self, record: RunRecord, session_id: str, *, stored: bool) -> None:
        self.record = record
        self.session_id = session_id
        self.stored = stored
        self.options = RunOptions.load(record.options)
        self.rounds = [_usage_from_json(entry) for entry in record.usage.get("rounds", [])]
        self.ledger_tokens: int = record.usage.get("ledger_tokens", 0)
        self.tool_rounds: int = record.usage.get("tool_rounds", 0)
        self.had = 0
        """How many of the prompt's tokens had a cache before the run began."""
        self.cancelling = False
        self.pending: list[PendingCall] = []
        """The calls of the last round while the run waits, where they are in memory."""
        self.pause: PauseRecord | None = None
        """What is asked while the run waits, where it is in memory."""
        self.close_waiting: Callable[[Run], Awaitable[None]] | None = None
        """How a run that waits is cancelled; set by the loop."""
        self.scope: anyio.CancelScope | None = None
        """Set while a leg is under way."""
        self.attached = 0
        """How many requests wait for the answer of the present leg."""
        self._log: list[RunEvent] = []
        self._leg_start = 0
        self._wake = anyio.Event()
        self._answer = self._fresh_answer()

    @property
    def id(self) -> str:
        """The run's id."""
        return self.record.id

    @property
    def model(self) -> str:
        """The model's public id."""
        return self.record.model

    @property
    def created_at(self) -> float:
        """Seconds since the epoch."""
        return self.record.created_at

    @property
    def working(self) -> bool:
        """Whether a leg is under way."""
        return self.scope is not None

    # For the loop.

    def begin_leg(self, scope: anyio.CancelScope) -> None:
        """A leg begins; who asks for the run's events from now on follows this leg."""
        self.scope = scope
        self.attached = 0
        self._leg_start = len(self._log)
        self._answer = self._fresh_answer()

    def emit(self, event: RunEvent) -> None:
        """Tell everybody who follows the run."""
        self._log.append(event)
        self._gather(event)
        if isinstance(event, RunPaused | RunDone):
            self.scope = None
        wake, self._wake = self._wake, anyio.Event()
        wake.set()

    def drop_cut_calls(self) -> None:
        """The round was cut: the calls that it had begun are none."""
        self._answer.calls.clear()

    def finish_answer(self, event: RunPaused | RunDone) -> None:
        """Write how the leg ends into the answer, before that is committed and told."""
        self._gather(event)

    def usage_json(self) -> dict[str, Any]:
        """The stored form of the figures."""
        rounds = [_usage_to_json(usage) for usage in self.rounds]
        return {"rounds": rounds, "ledger_tokens": self.ledger_tokens, "tool_rounds": self.tool_rounds}

    # For front ends.

    async def events(self, after: int | None = None) -> AsyncIterator[tuple[int, RunEvent]]:
        """The events with their numbers (from 1), from `after`, or from the beginning of the present leg.

        Ends where the run waits or has ended.
        """
        at = self._leg_start if after is None else min(after, len(self._log))
        while True:
            while at < len(self._log):
                at += 1
                yield at, self._log[at - 1]
            if self.scope is None:
                return
            await self._wake.wait()

    async def answer(self) -> Answer:
        """The whole answer of the present leg, once it is there."""
        while self.scope is not None:
            await self._wake.wait()
        return self.snapshot()

    def snapshot(self) -> Answer:
        """What there is of the answer now, with the figures so far."""
        completion = sum(usage.sampled for usage in self.rounds)
        computed = sum(usage.computed for usage in self.rounds)
        prompt = max(self.ledger_tokens - completion, 0)
        self._answer.usage = Usage(
            prompt=prompt,
            completion=completion,
            computed=computed,
            cached=max(prompt - computed, 0),
            rounds=list(self.rounds),
        )
        self._answer.status = self.record.status
        return self._answer

    async def cancel(self) -> None:
        """Stop it: the model within a step, tools by a cancel. Returns when the run has ended."""
        await self._stop()
        if self.record.status is RunStatus.PAUSED and self.close_waiting is not None:
            await self.close_waiting(self)

    async def disconnected(self) -> None:
        """A client is gone. If nobody else reads the answer it is cancelled, unless it waits for one."""
        self.attached -= 1
        if self.attached <= 0:
            await self._stop()

    def interrupt(self) -> None:
        """The server is stopping: break the leg off where it is. What there is of it is kept as interrupted."""
        if self.scope is not None:
            self.scope.cancel()

    async def _stop(self) -> None:
        if self.scope is not None:
            self.cancelling = True
            self.scope.cancel()
            while self.scope is not None:
                await self._wake.wait()

    def describe(self) -> dict[str, Any]:
        """The run as JSON values, for programs."""
        record, answer = self.record, self.snapshot()
        return {
            "id": record.id,
            "object": "run",
            "session_id": self.session_id,
            "model": record.model,
            "status": record.status.value,
            "reason": None if record.reason is None else record.reason.value,
            "stop_reason": record.stop_reason,
            "error": record.error,
            "created_at": record.created_at,
            "updated_at": record.updated_at,
            "expires_at": record.expires_at,
            "pause": None if answer.pause is None else _pause_to_json(answer.pause),
            "text": answer.text,
            "usage": {
                "prompt_tokens": answer.usage.prompt,
                "completion_tokens": answer.usage.completion,
                "computed_tokens": answer.usage.computed,
                "cached_tokens": answer.usage.cached,
                "rounds": [_usage_to_json(usage) for usage in self.rounds],
            },
        }

    def _fresh_answer(self) -> Answer:
        return Answer(self.record.id, self.session_id, self.record.model)

    def restore(self, value: dict[str, Any], last: RunEvent | None) -> None:
        """The answer as the record has it, and the event with which the last leg ended."""
        for name in ("text", "reasoning", "stop_reason", "error", "error_code", "diagnostics"):
            setattr(self._answer, name, value.get(name, getattr(self._answer, name)))
        self._answer.calls = [ToolCall(**call) for call in value.get("calls", [])]
        self._answer.server_calls = [ServerCall(**call) for call in value.get("server_calls", [])]
        if last is not None:
            self._log.append(last)
            self._gather(last)

    def answer_json(self) -> dict[str, Any]:
        """What `restore` reads."""
        answer = self._answer
        return {
            "text": answer.text,
            "reasoning": answer.reasoning,
            "stop_reason": answer.stop_reason,
            "error": answer.error,
            "error_code": answer.error_code,
            "diagnostics": answer.diagnostics,
            "calls": [_call_to_json(call) for call in answer.calls],
            "server_calls": [
                {"round": c.round, "name": c.name, "arguments": c.arguments, "result": c.result, "status": c.status}
                for c in answer.server_calls
            ],
        }

    def broken_call(self, event: CallBroken) -> None:
        """Note for the client that what looked like a call was none."""
        self._answer.diagnostics.append({"kind": "broken_call", "reason": event.reason, "text": event.text})

    def _gather(self, event: RunEvent) -> None:
        answer = self._answer
        match event:
            case TextAdded():
                answer.text += event.text
                answer.logprobs += event.logprobs
            case ReasoningAdded():
                answer.reasoning += event.text
            case ClientCallStarted():
                answer.calls.append(ToolCall(event.call_id, event.name, ""))
            case ClientCallArguments():
                call = answer.calls[event.index]
                answer.calls[event.index] = replace(call, arguments=call.arguments + event.text)
            case ToolReturned():
                call = event.call
                answer.server_calls.append(
                    ServerCall(event.round, call.name, call.arguments, event.result, event.status)
                )
            case RunPaused():
                answer.pause = event
            case RunDone():
                answer.stop_reason, answer.error, answer.error_code = event.stop_reason, event.error, event.error_code
            case ToolCalling() | RoundEnded():
                pass
            case _:
                assert_never(event)


def _call_to_json(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": call.arguments, "server": call.server}


def _pause_to_json(pause: RunPaused) -> dict[str, Any]:
    return {
        "reason": pause.reason.value,
        "id": pause.pause_id,
        "expires_at": pause.expires_at,
        "calls": [_call_to_json(call) for call in pause.calls],
    }


_USAGE: TypeAdapter[RoundUsage] = TypeAdapter(RoundUsage)


def _usage_to_json(usage: RoundUsage) -> dict[str, Any]:
    dumped: dict[str, Any] = _USAGE.dump_python(usage, mode="json")
    return dumped


def _usage_from_json(value: dict[str, Any]) -> RoundUsage:
    return _USAGE.validate_python(value)

"""Calls on their way to their results, and what stands where a result should. No I/O."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tenuto.runtime.loop.events import StopReason
from tenuto.sessions.changes import SaveCall
from tenuto.sessions.items import AssistantItem, Item, ToolCall, ToolResultItem, item_from_json, item_to_json
from tenuto.sessions.questions import Question
from tenuto.sessions.records import CallRecord, CallStatus, PauseRecord
from tenuto.sessions.rounds import outstanding
from tenuto.tools.asking import Reply, Resumed

_NAME_DIGITS = 32


@dataclass(slots=True)
class PendingCall:
    """A call on its way to its result, as it is stored.

    `approved`: a person has said yes to this very call; `denial` is what the model reads where they said no.
    """

    call: ToolCall
    record: CallRecord
    approved: bool = False
    denial: str | None = None
    asks: tuple[str, Question] | None = None
    """What it asks a person now, and the id of that."""
    answered: tuple[PauseRecord, Reply] | None = None
    """What a person has answered it."""

    @property
    def resumed(self) -> Resumed | None:
        """With what it is made again where the call that asked has ended with its process."""
        if self.answered is None:
            return None
        pause, reply = self.answered
        state = None if pause.question is None else pause.question.resume
        return None if state is None else Resumed(state, reply)

    @property
    def was_lost(self) -> bool:
        """Whether the process ended while it was made, and it may not be made twice."""
        return self.record.status is CallStatus.STARTED and not self.record.repeatable

    @property
    def result(self) -> ToolResultItem | None:
        """The result, once it is there."""
        if self.record.result is None:
            return None
        item = item_from_json(self.record.result)
        assert isinstance(item, ToolResultItem)
        return item


LOST = "the server stopped while this call was made; it may have had an effect"
"""What the model reads of a call that was lost in a crash, where its run goes on."""


def named(calls: Sequence[PendingCall]) -> str:
    """A name for calls with their results: equal names, equal calls that gave the same."""
    made = [(one.call.name, one.call.arguments, "" if one.result is None else one.result.text) for one in calls]
    return hashlib.sha256(json.dumps(made).encode()).hexdigest()[:_NAME_DIGITS]


def pending_calls(run_id: str, round: int, item: AssistantItem, repeatable: Callable[[str], bool]) -> list[PendingCall]:
    """The calls of an assistant item, none of them made yet."""
    return [
        PendingCall(
            call,
            CallRecord(
                run_id=run_id,
                call_id=call.id,
                round=round,
                position=position,
                name=call.name,
                arguments=call.arguments,
                server=call.server,
                status=CallStatus.WAITING,
                repeatable=call.server and repeatable(call.name),
            ),
        )
        for position, call in enumerate(item.calls)
    ]


def last_calls(items: Sequence[Item]) -> tuple[ToolCall, ...]:
    """The calls of a session's last round, where they have not all been answered."""
    for item in reversed(items):
        if isinstance(item, AssistantItem):
            return item.calls if outstanding(items) else ()
        if not isinstance(item, ToolResultItem):
            return ()
    return ()


def pending_of(
    run_id: str, round: int, call: ToolCall, position: int, records: Mapping[str, CallRecord]
) -> PendingCall:
    """A call as it is kept; one that has no record yet has not been made."""
    record = records.get(call.id)
    if record is None:
        status = CallStatus.WAITING
        record = CallRecord(run_id, call.id, round, position, call.name, call.arguments, call.server, status)
    return PendingCall(call, record)


def finished(pending: PendingCall, result: ToolResultItem, now: float) -> CallRecord:
    """The record of a call that has its result, which is the call's own once it is kept."""
    return replace(pending.record, status=CallStatus.FINISHED, result=item_to_json(result), finished_at=now)


def stand_in(call: ToolCall, text: str) -> ToolResultItem:
    """What stands where a result should: the runtime says why there is none."""
    return ToolResultItem(call.id, call.name, text, is_error=True, server=True)


def stand_ins(items: Sequence[Item], new: Sequence[Item], why: str) -> list[ToolResultItem]:
    """What stands for the results of the last round that no run waits for any more, where `new` does not bring them.

    So it is in a session that was exported while its run waited, and imported again.
    """
    brought = {item.call_id for item in new if isinstance(item, ToolResultItem)}
    return [stand_in(call, f"not executed: {why}") for call in outstanding(items) if call.id not in brought]


def results_of(calls: Sequence[PendingCall], why: str) -> list[ToolResultItem]:
    """The results of a round that ends before its time: those that there are, else one that tells why."""
    return [pending.result or stand_in(pending.call, _untold(pending, why)) for pending in calls]


def closing(calls: Sequence[PendingCall], results: Sequence[ToolResultItem], now: float) -> list[SaveCall]:
    """The changes that keep the results of those calls that have none."""
    pairs = zip(calls, results, strict=True)
    return [SaveCall(finished(pending, result, now)) for pending, result in pairs if pending.result is None]


def _untold(pending: PendingCall, why: str) -> str:
    if pending.record.status is CallStatus.STARTED:
        return f"{why}; it may have had an effect"
    return f"not executed: {_WHOLE.get(why, why)}"


_WHOLE = {
    StopReason.CANCELLED.value: "the run was cancelled",
    StopReason.INTERRUPTED.value: "the run was interrupted",
    StopReason.ERROR.value: "the run failed",
}
"""Why a call was not made, where the reason is one word."""

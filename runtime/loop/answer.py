"""A request's answer: gathered from a run's events, kept with the run, and turned back into events. No I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, assert_never

from pydantic import TypeAdapter

from tenuto.pipelines.turns import CallBroken
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
    ServerSampled,
    TextAdded,
    ToolCalling,
    ToolReturned,
    ToolTold,
    Usage,
)
from tenuto.runtime.loop.options import RunOptions
from tenuto.sessions.items import ToolCall
from tenuto.sessions.records import PauseReason

_END = ("stop_reason", "stop_string", "error", "error_code", "diagnostics")
_KEPT = ("text", "reasoning", *_END)


def gather(answer: Answer, event: RunEvent) -> None:
    """Add to the answer what an event tells."""
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
            answer.server_calls.append(ServerCall(event.round, call.name, call.arguments, event.result, event.status))
        case RunPaused():
            answer.pause = event
            if event.reason is not PauseReason.CLIENT_TOOL:
                # Its client must not bring results yet: the calls are announced again when they are asked for.
                answer.calls.clear()
        case RunDone():
            answer.pause = None
            answer.stop_reason, answer.error, answer.error_code = event.stop_reason, event.error, event.error_code
        case ToolCalling() | ToolTold() | ServerSampled() | RoundEnded():
            pass
        case _:
            assert_never(event)


def gone_on(answer: Answer, leg_id: str) -> Answer:
    """The answer of a leg after a decision: a text of its own, beside the server's calls that the request led to."""
    return Answer(
        answer.run_id,
        answer.session_id,
        answer.model,
        leg_id,
        server_calls=list(answer.server_calls),
        diagnostics=list(answer.diagnostics),
    )


def copied(answer: Answer) -> Answer:
    """An answer of its own with the same in it."""
    return replace(
        answer,
        calls=list(answer.calls),
        server_calls=list(answer.server_calls),
        logprobs=list(answer.logprobs),
        diagnostics=list(answer.diagnostics),
    )


def with_broken_call(answer: Answer, event: CallBroken) -> None:
    """Note for the client that what looked like a call was none."""
    answer.diagnostics.append({"kind": "broken_call", "reason": event.reason, "text": event.text})


def with_shortfalls(answer: Answer, options: RunOptions) -> Answer:
    """Note for the client what it asked for and the model could not be held to, and what was left out of account."""
    kinds = (("not_enforced", options.unenforced), ("left_out", options.left_out))
    answer.diagnostics += [
        {"kind": kind, "what": each.what, "reason": each.reason} for kind, found in kinds for each in found
    ]
    return answer


def figures(rounds: Sequence[RoundUsage], ledger_tokens: int) -> Usage:
    """The usage of rounds, after the last of which their run's ledger has so many tokens."""
    completion = sum(usage.sampled for usage in rounds)
    computed = sum(usage.computed for usage in rounds)
    prompt = max(ledger_tokens - completion, 0)
    reasoning = sum(usage.reasoning for usage in rounds)
    return Usage(prompt, completion, computed, max(prompt - computed, 0), reasoning, list(rounds))


def restore_figures(answer: Answer, kept: dict[str, Any]) -> None:
    """Fill in the figures from what was kept of a run's rounds at the leg's end. Raises pydantic.ValidationError."""
    rounds = [usage_from_json(entry) for entry in kept.get("rounds", [])]
    tokens, first = kept.get("ledger_tokens", 0), kept.get("first_round", 1)
    answer.usage, answer.run_usage = figures(rounds[first - 1 :], tokens), figures(rounds, tokens)


def answer_to_json(answer: Answer) -> dict[str, Any]:
    """What is kept of an answer, as JSON values. What is empty needs no room."""
    whole = {name: getattr(answer, name) for name in _KEPT} | {
        "calls": [call_to_json(call) for call in answer.calls],
        "server_calls": [
            {"round": c.round, "name": c.name, "arguments": c.arguments, "result": c.result, "status": c.status}
            for c in answer.server_calls
        ],
    }
    return {name: value for name, value in whole.items() if value}


def end_to_json(answer: Answer) -> dict[str, Any]:
    """What is kept of an answer beside the events that it was gathered from."""
    return {name: value for name in _END if (value := getattr(answer, name))}


def gathered(answer: Answer, events: Iterable[RunEvent], end: dict[str, Any]) -> Answer:
    """The answer that these events tell, with what `end_to_json` gave."""
    for event in events:
        gather(answer, event)
    restore_end(answer, end)
    return answer


def restore_end(answer: Answer, end: dict[str, Any]) -> None:
    """Fill in what `end_to_json` gave."""
    for name in _END:
        setattr(answer, name, end.get(name, getattr(answer, name)))


def restore(answer: Answer, kept: dict[str, Any]) -> None:
    """Fill in what was kept. Raises TypeError or AttributeError where another version has kept it in another form."""
    for name in _KEPT:
        setattr(answer, name, kept.get(name, getattr(answer, name)))
    answer.calls = [ToolCall(**call) for call in kept.get("calls", [])]
    answer.server_calls = [ServerCall(**call) for call in kept.get("server_calls", [])]


def events_of(answer: Answer, rounds: Sequence[RoundUsage]) -> list[RunEvent]:
    """What a run has told, as far as its kept answer says: pieces are joined, and stand in the order of their kinds."""
    events: list[RunEvent] = []
    for at, call in enumerate(answer.server_calls):
        made = ToolCall(f"call_{at}", call.name, call.arguments, server=True)
        events += [ToolCalling(call.round, made), ToolReturned(call.round, made, call.status, call.result)]
    last = max(len(rounds), 1)
    if answer.reasoning:
        events.append(ReasoningAdded(last, answer.reasoning))
    if answer.text:
        events.append(TextAdded(last, answer.text))
    for index, wanted in enumerate(answer.calls):
        events += announced(last, index, wanted)
    return [*events, *(RoundEnded(number, usage) for number, usage in enumerate(rounds, 1))]


def announced(round: int, index: int, call: ToolCall) -> list[RunEvent]:
    """A whole call of the client's as events."""
    return [ClientCallStarted(round, index, call.id, call.name), ClientCallArguments(round, index, call.arguments)]


def call_to_json(call: ToolCall) -> dict[str, Any]:
    """A call as JSON values."""
    return {"id": call.id, "name": call.name, "arguments": call.arguments, "server": call.server}


_USAGE: TypeAdapter[RoundUsage] = TypeAdapter(RoundUsage)


def usage_to_keep(usage: RoundUsage) -> dict[str, Any]:
    """A round's figures as JSON values in little room: what is nothing is left out."""
    dumped: dict[str, Any] = _USAGE.dump_python(usage, mode="json", exclude_defaults=True)
    return dumped


def usage_from_json(value: dict[str, Any]) -> RoundUsage:
    """Read what `usage_to_keep` gave. Raises pydantic.ValidationError."""
    return _USAGE.validate_python(value)

"""The stored form of what a leg has told: its events one by one, with pieces of one text as that text and where each
ends. Pure.

What is read back are the same events, so a front end makes of them what it made of them when they were told.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any, assert_never

from tenuto.runtime.loop.answer import usage_from_json, usage_to_keep
from tenuto.runtime.loop.events import (
    ClientCallArguments,
    ClientCallStarted,
    ReasoningAdded,
    RoundEnded,
    RunDone,
    RunEvent,
    RunPaused,
    ServerSampled,
    TextAdded,
    TextLogprob,
    ToolCalling,
    ToolReturned,
    ToolTold,
)
from tenuto.sessions.items import ToolCall
from tenuto.sessions.questions import Question
from tenuto.sessions.records import PauseReason, RunStatus

_PIECES: dict[str, type[TextAdded | ReasoningAdded]] = {"text": TextAdded, "reasoning": ReasoningAdded}


def dump(events: Iterable[RunEvent]) -> str:
    """The stored form."""
    entries: list[list[Any]] = []
    for (kind, *rest), some in groupby(map(_entry, events), key=lambda entry: entry[:2]):
        if kind in _PIECES:
            texts = [entry[2] for entry in some]
            entries.append([kind, *rest, "".join(texts), [len(text) for text in texts]])
        else:
            entries += some
    return json.dumps(entries, separators=(",", ":"))


def load(text: str) -> list[RunEvent]:
    """The events of a stored form. Raises ValueError where another version has kept it in a form of its own."""
    try:
        return [event for entry in json.loads(text) for event in _events(entry)]
    except (TypeError, KeyError, IndexError) as exc:
        raise ValueError(f"what was told cannot be read ({type(exc).__name__})") from exc


def _entry(event: RunEvent) -> list[Any]:
    match event:
        case TextAdded(logprobs=()):
            return ["text", event.round, event.text]
        case TextAdded():
            return ["tokens", event.round, event.text, [_logprob(one) for one in event.logprobs]]
        case ReasoningAdded():
            return ["reasoning", event.round, event.text]
        case ClientCallStarted():
            return ["call", event.round, event.index, event.call_id, event.name]
        case ClientCallArguments():
            return ["arguments", event.round, event.index, event.text]
        case ToolCalling() | ToolReturned() | ToolTold():
            return _tool_entry(event)
        case ServerSampled():
            calls = [_call(call) for call in event.calls]
            facts = [event.round, event.call_id, event.server, event.asked, event.text]
            return ["sampled", *facts, calls, usage_to_keep(event.usage)]
        case RoundEnded():
            return ["round", event.round, usage_to_keep(event.usage)]
        case RunPaused():
            calls = [_call(call) for call in event.calls]
            question = [] if event.question is None else [event.question.told()]
            return ["paused", event.reason.value, event.round, calls, event.expires_at, event.pause_id, *question]
        case RunDone():
            return ["done", event.status.value, str(event.stop_reason), event.error, event.error_code]
        case _:
            assert_never(event)


def _tool_entry(event: ToolCalling | ToolReturned | ToolTold) -> list[Any]:
    match event:
        case ToolCalling():
            return ["calling", event.round, _call(event.call)]
        case ToolReturned():
            return ["returned", event.round, _call(event.call), str(event.status), event.result]
        case ToolTold():
            said = [event.text, event.done, event.total, event.level]
            return ["told", event.round, event.call_id, event.name, *said]


def _events(entry: Sequence[Any]) -> list[RunEvent]:
    kind, *values = entry
    if kind in _PIECES:
        round, text, lengths = values
        ends = [0]
        for length in lengths:
            ends.append(ends[-1] + length)
        return [_PIECES[kind](round, text[start:end]) for start, end in pairwise(ends)]
    return [_event(kind, values)]


def _event(kind: str, values: Sequence[Any]) -> RunEvent:
    match kind:
        case "tokens":
            round, text, logprobs = values
            return TextAdded(round, text, tuple(_read_logprob(*one) for one in logprobs))
        case "call":
            return ClientCallStarted(*values)
        case "arguments":
            return ClientCallArguments(*values)
        case "calling":
            return ToolCalling(values[0], ToolCall(*values[1]))
        case "returned":
            round, call, status, result = values
            return ToolReturned(round, ToolCall(*call), status, result)
        case "told":
            return ToolTold(*values)
        case "sampled":
            round, call_id, server, asked, text, calls, usage = values
            made = tuple(ToolCall(*call) for call in calls)
            return ServerSampled(round, call_id, server, asked, text, made, usage_from_json(usage))
        case "round":
            return RoundEnded(values[0], usage_from_json(values[1]))
        case "paused":
            reason, round, calls, expires_at, pause_id, *question = values
            asked = tuple(ToolCall(*call) for call in calls)
            return RunPaused(PauseReason(reason), round, asked, expires_at, pause_id, *map(Question.load, question))
        case "done":
            return RunDone(RunStatus(values[0]), *values[1:])
        case _:
            raise ValueError(f"an event of the kind {kind!r}")


def _call(call: ToolCall) -> list[Any]:
    return [call.id, call.name, call.arguments, call.server]


def _logprob(one: TextLogprob) -> list[Any]:
    top = [[token, data.hex(), logprob] for token, data, logprob in one.top]
    return [one.token, one.data.hex(), one.logprob, top]


def _read_logprob(token: str, data: str, logprob: float, top: Sequence[Sequence[Any]]) -> TextLogprob:
    others = tuple((each, bytes.fromhex(raw), chance) for each, raw, chance in top)
    return TextLogprob(token, bytes.fromhex(data), logprob, others)

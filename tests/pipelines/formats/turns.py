"""Turns as the events of a parser: what is expected of them, and what holds of all."""

import json
from collections.abc import Iterable, Sequence

from tenuto.pipelines.turns import (
    CallArguments,
    CallBroken,
    CallFinished,
    CallStarted,
    ReasoningDelta,
    TextDelta,
    TurnEvent,
)


def called(index: int, name: str, arguments: str) -> list[TurnEvent]:
    """The events of one call, its arguments in one piece."""
    return [CallStarted(index, name), CallArguments(index, arguments), CallFinished(index, name, arguments)]


def assert_calls_end(events: Sequence[TurnEvent]) -> None:
    """Every started call ends, calls count from zero, and the pieces of a call's arguments are an object's text."""
    started = [event.index for event in events if isinstance(event, CallStarted)]
    ended = [
        e.index for e in events if isinstance(e, CallFinished) or (isinstance(e, CallBroken) and e.index is not None)
    ]
    assert started == ended == list(range(len(started)))
    for event in events:
        if isinstance(event, CallFinished):
            assert isinstance(json.loads(event.arguments), dict)
            pieces = [e.text for e in events if isinstance(e, CallArguments) and e.index == event.index]
            assert "".join(pieces) == event.arguments


def merged(events: Iterable[TurnEvent]) -> list[TurnEvent]:
    """Events with the pieces of one text put together."""
    result: list[TurnEvent] = []
    for event in events:
        match (result[-1] if result else None), event:
            case TextDelta(before), TextDelta(after):
                result[-1] = TextDelta(before + after)
            case ReasoningDelta(before), ReasoningDelta(after):
                result[-1] = ReasoningDelta(before + after)
            case CallArguments(index, before), CallArguments(_, after):
                result[-1] = CallArguments(index, before + after)
            case _:
                result.append(event)
    return result

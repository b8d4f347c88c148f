"""What a person sees of a run while it goes on, read from the two forms in which the server streams it."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from httpx2 import EventSource, Response, ServerSentEvent

from tenuto.runtime.schema.events import ReasoningAdded, TextAdded, ToolCalling, ToolReturned, read_event


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of the answer, or of the model's reasoning."""

    text: str
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Calling:
    """A tool's call has begun. `arguments` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Returned:
    """A tool's call has its result. `status`: `completed`, `failed`, `denied`, ..."""

    name: str
    status: str
    result: str


@dataclass(frozen=True, slots=True)
class Broke:
    """The stream ended with an error."""

    message: str


Seen = Said | Calling | Returned | Broke


@dataclass(frozen=True, slots=True)
class OfRun:
    """The stream is that of a run. Where the server had to wait before it began, only the stream's end tells it."""

    run_id: str


def events_in(response: Response) -> EventSource:
    """The events of a stream that a server of ours sends. They may be of any size: a tool's result is one."""
    return EventSource(response, max_event_size=None)


def of_chunks(events: Iterable[ServerSentEvent]) -> Iterator[Seen | OfRun]:
    """From the chunks of a chat completions stream."""
    for data in frames(events):
        run_id = (data.get("tenuto") or data.get("error") or {}).get("run_id")
        if run_id is not None:
            yield OfRun(run_id)
        if "error" in data:
            yield Broke(str(data["error"].get("message", data["error"])))
        elif data.get("type") == "agentic_tool_call_progress":
            yield _progress(data)
        for choice in data.get("choices", []):
            delta = choice.get("delta", {})
            if delta.get("reasoning_content"):
                yield Said(delta["reasoning_content"], reasoning=True)
            if delta.get("content"):
                yield Said(delta["content"])


def of_events(events: Iterable[ServerSentEvent]) -> Iterator[Seen]:
    """From a run's own events."""
    for data in frames(events):
        if "error" in data and "type" not in data:
            yield Broke(str(data["error"].get("message", data["error"])))
            continue
        match read_event(data):
            case TextAdded(text=text):
                yield Said(text)
            case ReasoningAdded(text=text):
                yield Said(text, reasoning=True)
            case ToolCalling(call=call):
                yield Calling(call.name, call.arguments)
            case ToolReturned(call=call, status=status, result=result):
                yield Returned(call.name, status, result)


def last_number(events: Iterable[ServerSentEvent]) -> int:
    """The number of the last event; 0 where there is none."""
    return max((data.get("number", 0) for data in frames(events)), default=0)


def frames(events: Iterable[ServerSentEvent]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events."""
    for event in events:
        if event.data and event.data != "[DONE]":
            data = json.loads(event.data)
            if isinstance(data, dict):
                yield data


def _progress(data: dict[str, Any]) -> Seen:
    details = data["data"]
    if data["phase"] == "calling":
        return Calling(data["tool_name"], details["arguments"])
    return Returned(data["tool_name"], details["status"], details["content"])

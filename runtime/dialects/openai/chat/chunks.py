"""A run's events as the chunks of a chat completions stream. Bytes out, no I/O."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import from_json

from tenuto.errors import TenutoError
from tenuto.runtime.dialects.openai.chat.answer import (
    choices_fields,
    client_calls,
    completion_id,
    finish_reason,
    session_fields,
    summed,
    usage,
)
from tenuto.runtime.dialects.openai.logprobs import chat_logprobs
from tenuto.runtime.http.errors import openai_error, openai_error_of_run
from tenuto.runtime.http.sse import DONE, frame, json_line
from tenuto.runtime.loop.events import (
    Answer,
    ClientCallArguments,
    ClientCallStarted,
    ReasoningAdded,
    RoundEnded,
    RunDone,
    RunEvent,
    RunPaused,
    TextAdded,
    ToolCalling,
    ToolReturned,
    Usage,
)
from tenuto.sessions.items import ToolCall
from tenuto.sessions.records import PauseReason, RunStatus

_ASKS = (PauseReason.APPROVAL, PauseReason.INPUT)


class ChunkEncoder:
    """A run's events to the frames of one stream. What is the same in all chunks is encoded once.

    `index` is the run's choice in the answer that `completion` names, where it is one of several.
    """

    def __init__(
        self,
        run_id: str,
        session_id: str,
        model: str,
        created_at: float,
        *,
        named_events: bool,
        include_usage: bool,
        logprobs: bool = False,
        index: int = 0,
        completion: str | None = None,
    ) -> None:
        self._run_id, self._session_id = run_id, session_id
        self._named, self._include_usage = named_events, include_usage
        self._logprobs, self._index = logprobs, index
        self._has_shown = False
        envelope = {
            "id": completion or completion_id(run_id),
            "object": "chat.completion.chunk",
            "created": int(created_at),
            "model": model,
        }
        self._head = json_line(envelope)[:-1]
        before = b"data: " + self._head + b',"choices":[{"index":%d,"delta":{' % index
        self._after_text = b'},"logprobs":null,"finish_reason":null}]' + self._no_usage() + b"}\n\n"
        self._before_text = before + b'"content":'
        self._before_reasoning = before + b'"reasoning_content":'

    def opening(self) -> bytes:
        """The first chunk: who speaks."""
        return self._chunk({"role": "assistant", "content": ""})

    def encode(self, event: RunEvent) -> bytes:
        """The frames for one event; empty where a chunk shows nothing of it."""
        match event:
            case TextAdded() if self._logprobs:
                self._has_shown = True
                return self._chunk({"content": event.text}, logprobs=chat_logprobs(event.logprobs))
            case TextAdded():
                self._has_shown = True
                return self._before_text + json_line(event.text) + self._after_text
            case ReasoningAdded():
                self._has_shown = True
                return self._before_reasoning + json_line(event.text) + self._after_text
            case ClientCallArguments():
                return self._tool_call({"index": event.index, "function": {"arguments": event.text}})
            case ClientCallStarted():
                self._has_shown = True
                function = {"name": event.name, "arguments": ""}
                call = {"index": event.index, "id": event.call_id, "type": "function", "function": function}
                return self._tool_call(call)
            case ToolCalling():
                return self._progress(event.round, event.call, "calling", {})
            case ToolReturned():
                data = {"content": event.result, "status": event.status}
                return self._progress(event.round, event.call, "complete", data)
            case RunPaused() if event.reason in _ASKS:
                return self._approval(event)
            case RunPaused() | RunDone() | RoundEnded():
                return b""

    def closing(self, answer: Answer) -> bytes:
        """What ends the stream after the run's last event."""
        if answer.status is RunStatus.FAILED:
            _, error = openai_error_of_run(answer.error, answer.error_code, self._run_id)
            return frame(json_line(error)) + DONE
        return self.ending(answer, session_fields(answer)) + self.figures(answer.usage) + DONE

    def ending(self, answer: Answer, extra: Mapping[str, Any] | None = None) -> bytes:
        """What ends the choice; the answer has not failed."""
        return self._missed(answer) + self._chunk({}, finish_reason(answer), extra)

    def figures(self, of: Usage) -> bytes:
        """The chunk with the usage, where it is asked for."""
        return self._frame({"choices": [], "usage": usage(of)}) if self._include_usage else b""

    def closing_of(self, answers: Sequence[Answer]) -> bytes:
        """What ends a stream of several choices, each of which has ended."""
        state = self._frame({"choices": [], **choices_fields(answers)})
        return state + self.figures(summed([answer.usage for answer in answers])) + DONE

    def failure(self, exc: TenutoError) -> bytes:
        """What ends the stream where something else than the run failed."""
        return frame(json_line(openai_error(exc))) + DONE

    def _missed(self, answer: Answer) -> bytes:
        """The answer at once, to a repeat of a request whose run has ended so long ago that its pieces are gone."""
        if self._has_shown:
            return b""
        pieces: list[RunEvent] = [ReasoningAdded(0, answer.reasoning)] if answer.reasoning else []
        if answer.text:
            pieces.append(TextAdded(0, answer.text, tuple(answer.logprobs)))
        for index, call in enumerate(client_calls(answer)):
            pieces.append(ClientCallStarted(0, index, call.id, call.name))
            pieces.append(ClientCallArguments(0, index, call.arguments))
        return b"".join(self.encode(piece) for piece in pieces)

    def _no_usage(self) -> bytes:
        return b',"usage":null' if self._include_usage else b""

    def _tool_call(self, call: Mapping[str, Any]) -> bytes:
        return self._chunk({"tool_calls": [call]})

    def _chunk(
        self,
        delta: Mapping[str, Any],
        finish: str | None = None,
        extra: Mapping[str, Any] | None = None,
        *,
        logprobs: Mapping[str, Any] | None = None,
    ) -> bytes:
        choice = {"index": self._index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        no_usage = {"usage": None} if self._include_usage else {}
        return self._frame({"choices": [choice], **no_usage, **(extra or {})})

    def _frame(self, fields: Mapping[str, Any], event: str | None = None) -> bytes:
        return frame(self._head + b"," + json_line(fields)[1:], event=event)

    def _progress(self, round_: int, call: ToolCall, phase: str, data: Mapping[str, Any]) -> bytes:
        """Also a valid chunk without choices: OpenAI's client reads every `data` as a chunk, whatever its event."""
        if not self._named:
            return b""
        fields = {
            "choices": [],
            "type": "agentic_tool_call_progress",
            "round": round_,
            "tool_name": call.name,
            "phase": phase,
            "data": {"tool_type": "custom", "call_id": call.id, "arguments": call.arguments, **data},
        }
        return self._frame(fields, event="agentic_tool_call_progress")

    def _approval(self, pause: RunPaused) -> bytes:
        if not self._named:
            return b""
        fields = {
            "choices": [],
            "type": "agentic_tool_approval_required",
            "approval_id": pause.pause_id,
            "session_id": self._session_id,
            "round": pause.round,
            **_question(pause.calls[0]),
            "expires_at": pause.expires_at,
        }
        return self._frame(fields, event="agentic_tool_approval_required")


def _question(call: ToolCall) -> dict[str, Any]:
    """The tool is described as mistral.rs does it; the arguments are an object where they are one."""
    try:
        arguments = from_json(call.arguments)
    except ValueError:
        arguments = call.arguments
    return {"tool": {"source": "mcp", "kind": "custom", "label": call.name, "name": call.name}, "arguments": arguments}

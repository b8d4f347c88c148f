"""A run as a chat completions answer: whole, or as the chunks of a stream. Bytes out, no I/O."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from tenuto.errors import TenutoError
from tenuto.runtime.api.errors import openai_error, openai_error_of_run
from tenuto.runtime.api.sse import DONE, frame, json_line
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
from tenuto.sessions.items import ToolCall
from tenuto.sessions.records import PauseReason, RunStatus

_ASKS = (PauseReason.APPROVAL, PauseReason.INPUT)


def completion_id(run_id: str) -> str:
    """The id by which this dialect knows a run."""
    return f"chatcmpl-{run_id}"


def whole(answer: Answer, created_at: float) -> dict[str, Any]:
    """The unstreamed response. The answer has not failed."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if calls := _client_calls(answer):
        message["content"] = answer.text or None
        message["tool_calls"] = [_call(call) for call in calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(answer)}
    return {
        "id": completion_id(answer.run_id),
        "object": "chat.completion",
        "created": int(created_at),
        "model": answer.model,
        "choices": [choice],
        "usage": usage(answer.usage),
        **session_fields(answer),
    }


def finish_reason(answer: Answer) -> str:
    """Why it ended, in the words that stock clients know."""
    if answer.stop_reason == "length":
        return "length"
    return "tool_calls" if _client_calls(answer) else "stop"


def session_fields(answer: Answer) -> dict[str, Any]:
    """What stock clients do not know: the session, the server's tool calls, and how the run stands."""
    return {
        "session_id": answer.session_id,
        "agentic_tool_calls": [_server_call(call) for call in answer.server_calls],
        "tenuto": _run_state(answer),
    }


def usage(of: Usage) -> dict[str, Any]:
    """A run's figures as OpenAI has them, and ours beside."""
    first = of.rounds[0] if of.rounds else RoundUsage()
    return {
        "prompt_tokens": of.prompt,
        "completion_tokens": of.completion,
        "total_tokens": of.prompt + of.completion,
        "prompt_tokens_details": {"cached_tokens": of.cached},
        "tenuto": {
            "computed_tokens": of.computed,
            "cached_tokens": of.cached,
            "residency": first.residency,
            "miss_reason": next((each.miss_reason for each in of.rounds if each.miss_reason), None),
            "rounds": [_round(each) for each in of.rounds],
        },
    }


def _client_calls(answer: Answer) -> list[ToolCall]:
    return [call for call in answer.calls if not call.server]


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _server_call(call: ServerCall) -> dict[str, Any]:
    return {
        "round": call.round,
        "name": call.name,
        "arguments": call.arguments,
        "result_content": call.result,
        "status": call.status,
    }


def _round(of: RoundUsage) -> dict[str, Any]:
    return {
        "prompt_tokens": of.prompt,
        "computed_tokens": of.computed,
        "cached_tokens": of.cached,
        "new_tokens": of.new,
        "sampled_tokens": of.sampled,
        "residency": of.residency,
        "miss_reason": of.miss_reason,
        "waited_s": of.waited_s,
        "first_token_s": of.first_token_s,
        "total_s": of.total_s,
    }


def _run_state(answer: Answer) -> dict[str, Any]:
    state: dict[str, Any] = {
        "run_id": answer.run_id,
        "status": answer.status,
        "stop_reason": answer.stop_reason,
    }
    if (pause := answer.pause) is not None:
        state |= {"reason": pause.reason, "expires_at": pause.expires_at}
        if pause.pause_id is not None:
            state["approval_id"] = pause.pause_id
    if answer.diagnostics:
        state["diagnostics"] = answer.diagnostics
    return state


class ChunkEncoder:
    """A run's events to the frames of one stream. What is the same in all chunks is encoded once."""

    def __init__(
        self,
        run_id: str,
        session_id: str,
        model: str,
        created_at: float,
        *,
        named_events: bool,
        include_usage: bool,
    ) -> None:
        self._run_id, self._session_id = run_id, session_id
        self._named, self._include_usage = named_events, include_usage
        self._has_shown = False
        envelope = {
            "id": completion_id(run_id),
            "object": "chat.completion.chunk",
            "created": int(created_at),
            "model": model,
        }
        self._head = json_line(envelope)[:-1]
        before = b"data: " + self._head + b',"choices":[{"index":0,"delta":{'
        self._after_text = b'},"logprobs":null,"finish_reason":null}]' + self._no_usage() + b"}\n\n"
        self._before_text = before + b'"content":'
        self._before_reasoning = before + b'"reasoning_content":'

    def opening(self) -> bytes:
        """The first chunk: who speaks."""
        return self._chunk({"role": "assistant", "content": ""})

    def encode(self, event: RunEvent) -> bytes:
        """The frames for one event; empty where a chunk shows nothing of it."""
        match event:
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
        last = self._missed(answer) + self._chunk({}, finish_reason(answer), session_fields(answer))
        if not self._include_usage:
            return last + DONE
        figures = self._frame({"choices": [], "usage": usage(answer.usage)})
        return last + figures + DONE

    def failure(self, exc: TenutoError) -> bytes:
        """What ends the stream where something else than the run failed."""
        return frame(json_line(openai_error(exc))) + DONE

    def _missed(self, answer: Answer) -> bytes:
        """The answer at once, to a repeat of a request whose run has ended so long ago that its pieces are gone."""
        if self._has_shown:
            return b""
        pieces: list[RunEvent] = [ReasoningAdded(0, answer.reasoning)] if answer.reasoning else []
        if answer.text:
            pieces.append(TextAdded(0, answer.text))
        for index, call in enumerate(_client_calls(answer)):
            pieces.append(ClientCallStarted(0, index, call.id, call.name))
            pieces.append(ClientCallArguments(0, index, call.arguments))
        return b"".join(self.encode(piece) for piece in pieces)

    def _no_usage(self) -> bytes:
        return b',"usage":null' if self._include_usage else b""

    def _tool_call(self, call: Mapping[str, Any]) -> bytes:
        return self._chunk({"tool_calls": [call]})

    def _chunk(
        self, delta: Mapping[str, Any], finish: str | None = None, extra: Mapping[str, Any] | None = None
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
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

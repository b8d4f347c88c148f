"""A response as it stands: the fields of its request that come back, how its run stands, and what it took. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.errors import ContextTooLong, Overloaded, TenutoError
from tenuto.runtime.dialects.openai.responses.asked import Asked
from tenuto.runtime.dialects.openai.responses.shapes import (
    ConversationName,
    IncompleteDetails,
    InputDetails,
    OutputDetails,
    OutputItem,
    ResponseAnswer,
    ResponseError,
    ResponseState,
    ResponseStatus,
    ResponseUsage,
)
from tenuto.runtime.dialects.openai.usage import usage
from tenuto.runtime.loop.events import Answer, StopReason
from tenuto.runtime.schema.answers import state_fields
from tenuto.sessions.records import RunStatus

_STATUS: Mapping[RunStatus, ResponseStatus] = {
    RunStatus.RUNNING: "in_progress",
    RunStatus.PAUSED: "completed",  # what it waits for stands in its output
    RunStatus.COMPLETED: "completed",
    RunStatus.CANCELLED: "cancelled",
    RunStatus.FAILED: "failed",
}
_ECHOED = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "safety_identifier",
    "user",
)
_KNOWN_CODES = {ContextTooLong.code: "context_length_exceeded", Overloaded.code: "rate_limit_exceeded"}
"""The codes by which clients decide to shorten a conversation, and to come again; the others are `server_error`."""


@dataclass(frozen=True, slots=True)
class Head:
    """What is a response's own from its beginning. Times are seconds since the epoch."""

    id: str
    asked: Asked
    model: str
    created_at: float
    stored: bool

    def begun(self, output: list[OutputItem]) -> ResponseAnswer:
        """The response before it has ended."""
        return self._response("in_progress", output)

    def ended(self, answer: Answer, output: list[OutputItem], ended_at: float) -> ResponseAnswer:
        """The response at its end, or where its run waits."""
        status = status_of(answer)
        return self._response(
            status,
            output,
            completed_at=int(ended_at) if status == "completed" else None,
            error=_error(answer) if status == "failed" else None,
            incomplete_details=_incomplete(answer) if status == "incomplete" else None,
            usage=usage_of(answer) if answer.usage.prompt else None,
            tenuto=ResponseState(session_id=answer.session_id, **state_fields(answer)),
        )

    def failed(self, exc: TenutoError, output: list[OutputItem]) -> ResponseAnswer:
        """The response where something else than its run has failed."""
        return self._response("failed", output, error=ResponseError(code=_code(exc.code), message=str(exc)))

    def _response(self, status: ResponseStatus, output: list[OutputItem], **ended: Any) -> ResponseAnswer:
        asked, echo = self.asked, self.asked.echo
        fields: dict[str, Any] = {
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "usage": None,
            **{name: echo.get(name) for name in _ECHOED},
            **({} if asked.conversation is None else {"conversation": ConversationName(id=asked.conversation)}),
            **ended,
        }
        return ResponseAnswer(
            id=self.id,
            object="response",
            created_at=int(self.created_at),
            status=status,
            background=asked.background,
            model=self.model,
            output=output,
            parallel_tool_calls=asked.parallel,
            reasoning={"effort": None, "summary": None} | (echo.get("reasoning") or {}),
            service_tier="flex" if asked.is_flex else "default",
            store=self.stored,
            temperature=1.0 if asked.temperature is None else asked.temperature,
            text={"format": {"type": "text"}} | _given(echo.get("text")),
            tool_choice=echo.get("tool_choice") or "auto",
            tools=[_tool(tool) for tool in echo.get("tools") or ()],
            top_logprobs=asked.top_logprobs,
            top_p=1.0 if asked.top_p is None else asked.top_p,
            truncation=echo.get("truncation") or "disabled",
            metadata=echo.get("metadata") or {},
            **fields,
        )


def status_of(answer: Answer) -> ResponseStatus:
    """How a response stands whose run stands so. One that was broken off, whatever the cause, is incomplete."""
    return _STATUS.get(answer.status, "incomplete")


def is_cut(answer: Answer) -> bool:
    """Whether what was being said last has no end."""
    return status_of(answer) != "completed"


def _given(value: Any) -> dict[str, Any]:
    return {name: each for name, each in (value or {}).items() if each is not None}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool with the fields that clients with types expect of a function."""
    if tool.get("type") != "function":
        return tool
    return {"description": None, "parameters": None, "strict": None, **tool}


def _error(answer: Answer) -> ResponseError:
    return ResponseError(code=_code(answer.error_code), message=answer.error or "the run failed")


def _code(ours: str | None) -> str:
    return _KNOWN_CODES.get(ours or "", "server_error")


def _incomplete(answer: Answer) -> IncompleteDetails:
    length = answer.stop_reason == StopReason.LENGTH
    return IncompleteDetails(reason="max_output_tokens" if length else answer.stop_reason or "interrupted")


def usage_of(answer: Answer) -> ResponseUsage:
    """What a response took."""
    figures = usage([answer])
    return ResponseUsage(
        input_tokens=figures.prompt_tokens,
        input_tokens_details=InputDetails(
            cached_tokens=figures.prompt_tokens_details.cached_tokens, cache_write_tokens=0
        ),
        output_tokens=figures.completion_tokens,
        output_tokens_details=OutputDetails(reasoning_tokens=answer.usage.reasoning),
        total_tokens=figures.total_tokens,
        tenuto=figures.tenuto,
    )

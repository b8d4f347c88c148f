"""Runs as a chat completions answer that is whole. No I/O; `chunks` has the streamed form."""

from collections.abc import Sequence
from typing import Any

from tenuto.runtime.dialects.openai.logprobs import chat_logprobs
from tenuto.runtime.engine.messages import RoundUsage
from tenuto.runtime.loop.events import Answer, ServerCall, Usage
from tenuto.sessions.items import ToolCall


def completion_id(run_id: str) -> str:
    """The id by which this dialect knows a run."""
    return f"chatcmpl-{run_id}"


def whole(answer: Answer, created_at: float, *, logprobs: bool = False) -> dict[str, Any]:
    """The unstreamed response. The answer has not failed."""
    return {
        "id": completion_id(answer.run_id),
        "object": "chat.completion",
        "created": int(created_at),
        "model": answer.model,
        "choices": [_choice(0, answer, logprobs=logprobs)],
        "usage": usage(answer.usage),
        **session_fields(answer),
    }


def several(answers: Sequence[Answer], created_at: float, *, logprobs: bool) -> dict[str, Any]:
    """The unstreamed response with a choice for each answer, under the name of the first. None has failed."""
    return {
        "id": completion_id(answers[0].run_id),
        "object": "chat.completion",
        "created": int(created_at),
        "model": answers[0].model,
        "choices": [_choice(index, answer, logprobs=logprobs) for index, answer in enumerate(answers)],
        "usage": usage(summed([answer.usage for answer in answers])),
        **choices_fields(answers),
    }


def _choice(index: int, answer: Answer, *, logprobs: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if calls := client_calls(answer):
        message["content"] = answer.text or None
        message["tool_calls"] = [_call(call) for call in calls]
    return {
        "index": index,
        "message": message,
        "logprobs": chat_logprobs(answer.logprobs) if logprobs else None,
        "finish_reason": finish_reason(answer),
    }


def finish_reason(answer: Answer) -> str:
    """Why it ended, in the words that stock clients know."""
    if answer.stop_reason == "length":
        return "length"
    return "tool_calls" if client_calls(answer) else "stop"


def session_fields(answer: Answer) -> dict[str, Any]:
    """What stock clients do not know: the session, the server's tool calls, and how the run stands."""
    return {
        "session_id": answer.session_id,
        "agentic_tool_calls": [_server_call(call) for call in answer.server_calls],
        "tenuto": _run_state(answer),
    }


def choices_fields(answers: Sequence[Answer]) -> dict[str, Any]:
    """The same for several answers: they have no session, and how each run stands is told in their order."""
    return {"agentic_tool_calls": [], "tenuto": {"choices": [_run_state(answer) for answer in answers]}}


def summed(figures: Sequence[Usage]) -> Usage:
    """The figures of several runs together."""
    return Usage(
        prompt=sum(of.prompt for of in figures),
        completion=sum(of.completion for of in figures),
        computed=sum(of.computed for of in figures),
        cached=sum(of.cached for of in figures),
        rounds=[each for of in figures for each in of.rounds],
    )


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


def client_calls(answer: Answer) -> list[ToolCall]:
    """The calls that the client is to make."""
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

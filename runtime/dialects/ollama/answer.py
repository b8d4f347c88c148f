"""What an answer says as a whole: its text, its calls, why it ended, and what it took. No I/O."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic_core import from_json

from tenuto.runtime.dialects.ollama.shapes import (
    DoneReason,
    OllamaCallAnswer,
    OllamaFunctionAnswer,
    OllamaLikelyAnswer,
    OllamaLogprobAnswer,
    OllamaRunAnswer,
)
from tenuto.runtime.loop.events import Answer, RoundUsage, StopReason, TextLogprob
from tenuto.runtime.schema.answers import server_call, state_fields
from tenuto.runtime.schema.usage import cache_use
from tenuto.sessions.items import ToolCall

LEAST = -9999.0
"""Stands for a token that could not be: JSON has no infinity."""


def timestamp(seconds: float) -> str:
    """A time since the epoch as RFC 3339 has it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def ending(answer: Answer, seconds: float) -> dict[str, Any]:
    """The fields of the end of an answer that took so long. It has not failed."""
    reason: DoneReason = "length" if answer.stop_reason == StopReason.LENGTH else "stop"
    usage = answer.usage
    calls = [server_call(call) for call in answer.server_calls]
    tenuto = OllamaRunAnswer(
        session_id=answer.session_id,
        agentic_tool_calls=calls,
        usage=cache_use(usage, answer.run_usage),
        **state_fields(answer),
    )
    return {**figures(reason, usage.prompt, usage.completion, usage.rounds, seconds), "tenuto": tenuto}


def figures(
    reason: DoneReason, prompt: int, sampled: int, rounds: Sequence[RoundUsage], seconds: float
) -> dict[str, Any]:
    """The same of any answer, as far as Ollama's clients know it."""
    first = [one.total_s if one.first_token_s is None else one.first_token_s for one in rounds]
    return {
        "done": True,
        "done_reason": reason,
        "total_duration": _nanoseconds(seconds),
        "load_duration": _nanoseconds(sum(one.waited_s for one in rounds)),
        "prompt_eval_count": prompt,
        "prompt_eval_duration": _nanoseconds(sum(first) - sum(one.waited_s for one in rounds)),
        "eval_count": sampled,
        "eval_duration": _nanoseconds(sum(one.total_s for one in rounds) - sum(first)),
    }


def client_calls(calls: Sequence[ToolCall]) -> list[OllamaCallAnswer]:
    """The calls that the client is to make."""
    return [
        OllamaCallAnswer(
            id=call.id, function=OllamaFunctionAnswer(index=index, name=call.name, arguments=_object(call.arguments))
        )
        for index, call in enumerate(call for call in calls if not call.server)
    ]


def logprobs(of: Sequence[TextLogprob]) -> list[OllamaLogprobAnswer]:
    """How likely tokens were."""
    return [OllamaLogprobAnswer(one.token, _finite(one.logprob), list(one.data), _top(one)) for one in of]


def _top(one: TextLogprob) -> list[OllamaLikelyAnswer]:
    return [OllamaLikelyAnswer(text, _finite(logprob), list(data)) for text, data, logprob in one.top]


def _finite(logprob: float) -> float:
    return max(LEAST, logprob)


def _nanoseconds(seconds: float) -> int:
    return max(0, round(seconds * 1e9))


def _object(text: str) -> dict[str, Any]:
    """A call's arguments, as far as they are an object; `tenuto.diagnostics` tells of one that is broken."""
    try:
        value = from_json(text, allow_partial=True) if text.strip() else None
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}

"""Runs as a chat completions answer that is whole. No I/O; `chunks` has the streamed form."""

from collections.abc import Sequence
from typing import Any

from tenuto.runtime.dialects.openai.chat.shapes import (
    ChatAnswer,
    ChoiceAnswer,
    FinishReason,
    FunctionAnswer,
    MessageAnswer,
    RunFields,
    RunStatesAnswer,
    ToolCallAnswer,
)
from tenuto.runtime.dialects.openai.logprobs import chat_logprobs
from tenuto.runtime.dialects.openai.usage import usage
from tenuto.runtime.loop.events import Answer, StopReason
from tenuto.runtime.schema.answers import RunStateAnswer, server_call, state_fields
from tenuto.sessions.items import ToolCall


def completion_id(leg_id: str) -> str:
    """The id by which this dialect knows an answer: one of its own for each request."""
    return f"chatcmpl-{leg_id}"


def chat_answer(answer: Answer, created_at: float, *, logprobs: bool = False) -> ChatAnswer:
    """The unstreamed response. The answer has not failed."""
    return _chat_answer([answer], created_at, run_fields(answer), logprobs=logprobs)


def several(answers: Sequence[Answer], created_at: float, *, logprobs: bool) -> ChatAnswer:
    """The unstreamed response with a choice for each answer, under the name of the first. None has failed."""
    return _chat_answer(answers, created_at, choices_fields(answers), logprobs=logprobs)


def _chat_answer(answers: Sequence[Answer], created_at: float, runs: RunFields, *, logprobs: bool) -> ChatAnswer:
    return ChatAnswer(
        id=completion_id(answers[0].leg_id),
        object="chat.completion",
        created=int(created_at),
        model=answers[0].model,
        choices=[_choice(index, answer, logprobs=logprobs) for index, answer in enumerate(answers)],
        usage=usage(answers),
        **given(runs),
    )


def _choice(index: int, answer: Answer, *, logprobs: bool) -> ChoiceAnswer:
    more: dict[str, Any] = {"reasoning_content": answer.reasoning} if answer.reasoning else {}
    content: str | None = answer.text
    if calls := client_calls(answer):
        content = answer.text or None
        more["tool_calls"] = [_call(call) for call in calls]
    return ChoiceAnswer(
        index=index,
        message=MessageAnswer(role="assistant", content=content, refusal=None, **more),
        logprobs=chat_logprobs(answer.logprobs) if logprobs else None,
        finish_reason=finish_reason(answer),
    )


def finish_reason(answer: Answer) -> FinishReason:
    """Why it ended, in the words that stock clients know."""
    if answer.stop_reason == StopReason.LENGTH:
        return "length"
    return "tool_calls" if client_calls(answer) else "stop"


def run_fields(answer: Answer) -> RunFields:
    """The session, the server's tool calls, and how the run stands."""
    return RunFields(
        session_id=answer.session_id,
        agentic_tool_calls=[server_call(call) for call in answer.server_calls],
        tenuto=RunStateAnswer(**state_fields(answer)),
    )


def choices_fields(answers: Sequence[Answer]) -> RunFields:
    """The same for several answers: they have no session, and how each run stands is told in their order."""
    states = RunStatesAnswer(choices=[RunStateAnswer(**state_fields(answer)) for answer in answers])
    return RunFields(agentic_tool_calls=[], tenuto=states)


def given(fields: RunFields) -> dict[str, Any]:
    """The fields that are given, for a form that has them too."""
    return {name: getattr(fields, name) for name in fields.model_fields_set}


def client_calls(answer: Answer) -> list[ToolCall]:
    """The calls that the client is to make."""
    return [call for call in answer.calls if not call.server]


def _call(call: ToolCall) -> ToolCallAnswer:
    function = FunctionAnswer(name=call.name, arguments=call.arguments)
    return ToolCallAnswer(id=call.id, type="function", function=function)

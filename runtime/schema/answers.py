"""What Tenuto tells beside a dialect's own fields: how the run of an answer stands, and the server's tool calls."""

from typing import Any

from pydantic import Field

from tenuto.runtime.http.shape import Shape
from tenuto.runtime.loop.events import Answer, ServerCall
from tenuto.runtime.schema.questions import QuestionAnswer, question_answer
from tenuto.sessions.records import PauseReason, RunStatus


class ServerCallAnswer(Shape):
    """A tool call that the server made."""

    round: int
    name: str
    arguments: str
    result_content: str
    status: str


class RunStateAnswer(Shape):
    """How a run stands, and what a paused one waits for."""

    run_id: str
    status: RunStatus
    stop_reason: str | None
    reason: PauseReason | None = None
    expires_at: float | None = None
    approval_id: str | None = None
    input_id: str | None = Field(default=None, description="Of a run that an MCP server asks something.")
    question: QuestionAnswer | None = None
    diagnostics: list[dict[str, Any]] = Field(default=[])


def server_call(call: ServerCall) -> ServerCallAnswer:
    """A tool call that the server made."""
    return ServerCallAnswer(
        round=call.round,
        name=call.name,
        arguments=call.arguments,
        result_content=call.result,
        status=call.status,
    )


def state_fields(answer: Answer) -> dict[str, Any]:
    """The fields of a `RunStateAnswer`."""
    fields: dict[str, Any] = {"run_id": answer.run_id, "status": answer.status, "stop_reason": answer.stop_reason}
    if (pause := answer.pause) is not None:
        fields |= {"reason": pause.reason, "expires_at": pause.expires_at}
        if pause.question is not None:
            fields |= {"input_id": pause.pause_id, "question": question_answer(pause.question)}
        elif pause.pause_id is not None:
            fields["approval_id"] = pause.pause_id
    if answer.diagnostics:
        fields["diagnostics"] = answer.diagnostics
    return fields

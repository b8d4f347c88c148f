"""Runs as Tenuto shows them, alike in every front end. What a run tells while it goes on is in `events`."""

from typing import Literal

from pydantic import Field

from tenuto.runtime.http.shape import Shape
from tenuto.runtime.loop.events import RunPaused
from tenuto.runtime.loop.run import Run
from tenuto.runtime.schema.conversion import call_answer, round_figures
from tenuto.runtime.schema.events import CallAnswer, RoundFigures
from tenuto.runtime.schema.questions import QuestionAnswer, question_answer
from tenuto.sessions.records import PauseReason, RunStatus


class PauseAnswer(Shape):
    """What a run waits for."""

    reason: PauseReason
    id: str | None = Field(description="The id for /v1/agent/approvals/{id}, or /v1/agent/inputs/{id}.")
    expires_at: float
    calls: list[CallAnswer]
    question: QuestionAnswer | None = Field(default=None, description="For `input`: what an MCP server asks.")


class SamplesAnswer(Shape):
    """What an MCP server has had the model read and say in the middle of its calls, in tokens."""

    server: str
    requests: int
    prompt_tokens: int
    computed_tokens: int
    sampled_tokens: int


class RunUsageAnswer(Shape):
    """A run's figures, in tokens. Those of its samples come on top of the others."""

    prompt_tokens: int
    completion_tokens: int
    computed_tokens: int
    cached_tokens: int
    rounds: list[RoundFigures]
    samples: list[SamplesAnswer] = Field(description="By server, where servers have asked the model.")


class RunAnswer(Shape):
    """How a run stands."""

    id: str
    object: Literal["run"]
    session_id: str
    model: str
    status: RunStatus
    reason: PauseReason | None = Field(description="What a paused run is waiting for.")
    stop_reason: str | None
    error: str | None
    created_at: float
    updated_at: float
    expires_at: float | None
    pause: PauseAnswer | None
    text: str
    usage: RunUsageAnswer


def run_answer(run: Run) -> RunAnswer:
    """How a run stands now."""
    record, answer = run.record, run.snapshot()
    # Where the end could not be kept, the answer knows more of it than the record.
    ended = answer if run.unkept_end else record
    return RunAnswer(
        id=record.id,
        object="run",
        session_id=run.session_id,
        model=record.model,
        status=run.status,
        reason=record.reason,
        stop_reason=ended.stop_reason,
        error=ended.error,
        created_at=record.created_at,
        updated_at=record.updated_at,
        expires_at=record.expires_at,
        pause=None if answer.pause is None else _pause(answer.pause),
        text=answer.text,
        usage=RunUsageAnswer(
            prompt_tokens=answer.run_usage.prompt,
            completion_tokens=answer.run_usage.completion,
            computed_tokens=answer.run_usage.computed,
            cached_tokens=answer.run_usage.cached,
            rounds=[round_figures(usage) for usage in run.rounds],
            samples=[
                SamplesAnswer(
                    server=server,
                    requests=of.requests,
                    prompt_tokens=of.prompt,
                    computed_tokens=of.computed,
                    sampled_tokens=of.sampled,
                )
                for server, of in run.samples.of.items()
            ],
        ),
    )


def _pause(pause: RunPaused) -> PauseAnswer:
    return PauseAnswer(
        reason=pause.reason,
        id=pause.pause_id,
        expires_at=pause.expires_at,
        calls=[call_answer(call) for call in pause.calls],
        question=None if pause.question is None else question_answer(pause.question),
    )

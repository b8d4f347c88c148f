"""What a server asks a person while a run waits, as Tenuto shows it in every front end."""

from typing import Any, Literal

from pydantic import Field

from tenuto.runtime.http.shape import Shape
from tenuto.sessions.questions import Question
from tenuto.sessions.records import PauseRecord


class QuestionAnswer(Shape):
    """A form to fill in, or a page to open."""

    server: str = Field(description="The MCP server that asks.")
    mode: Literal["form", "url"]
    message: str
    requested_schema: dict[str, Any] | None = Field(
        default=None, description="Of a form: the JSON Schema that the answer's content has to fit."
    )
    url: str | None = Field(default=None, description="The page to open. Tenuto itself never opens it.")


class InputAnswer(Shape):
    """A question that waits for its answer."""

    id: str
    object: Literal["input"]
    run_id: str
    tool: str
    arguments: str
    created_at: float
    expires_at: float
    question: QuestionAnswer


class InputsAnswer(Shape):
    """Questions, the oldest first."""

    object: Literal["list"]
    data: list[InputAnswer]


def question_answer(question: Question) -> QuestionAnswer:
    """What is asked."""
    return QuestionAnswer(**question.told())


def inputs_answer(pauses: list[PauseRecord]) -> InputsAnswer:
    """All that is asked."""
    return InputsAnswer(object="list", data=[_input(each) for each in pauses if each.question is not None])


def _input(pause: PauseRecord) -> InputAnswer:
    assert pause.question is not None
    return InputAnswer(
        id=pause.id,
        object="input",
        run_id=pause.run_id,
        tool=pause.tool,
        arguments=pause.arguments,
        created_at=pause.created_at,
        expires_at=pause.expires_at,
        question=question_answer(pause.question),
    )

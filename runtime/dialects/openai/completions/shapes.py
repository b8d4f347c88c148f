"""What text completions answer with: whole, and as the chunks of a stream. No meaning.

https://platform.openai.com/docs/api-reference/completions/object
"""

from typing import Literal

from tenuto.runtime.dialects.openai.logprobs import TextLogprobsAnswer
from tenuto.runtime.dialects.openai.usage import TextUsageAnswer
from tenuto.runtime.http.shape import Shape

FinishReason = Literal["stop", "length"]


class TextChoiceAnswer(Shape):
    """One text, or a piece of it; the last piece says why it ended."""

    text: str
    index: int
    logprobs: TextLogprobsAnswer | None
    finish_reason: FinishReason | None


class CompletionEnvelope(Shape):
    """What every answer and chunk of one request has alike."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str


class CompletionFields(Shape):
    """What is an answer's or a chunk's own."""

    choices: list[TextChoiceAnswer]
    usage: TextUsageAnswer | None = None


class CompletionAnswer(CompletionFields, CompletionEnvelope):
    """Text completions, or a chunk of them."""

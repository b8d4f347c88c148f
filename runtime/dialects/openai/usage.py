"""Figures of an answer as OpenAI has them, and Tenuto's beside."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Literal

from pydantic import Field

from tenuto.runtime.http.shape import Shape
from tenuto.runtime.loop.events import Answer, RoundUsage, Usage
from tenuto.runtime.schema.usage import CacheUseAnswer, cache_use


class CachedAnswer(Shape):
    """What of the prompt was not computed again."""

    cached_tokens: int


class ReasonedAnswer(Shape):
    """What of the answer is reasoning, where the model has marked some."""

    reasoning_tokens: int


class TextUsageAnswer(Shape):
    """The figures of an answer, in tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedAnswer


class UsageAnswer(TextUsageAnswer):
    """The figures of an answer, in tokens: of what this request took, and no other."""

    completion_tokens_details: ReasonedAnswer | None = None
    tenuto: CacheUseAnswer = Field(description="How many of the prompt's tokens were computed or cached, and why.")


class TokenCount(Shape):
    """How many tokens an input has."""

    object: Literal["response.input_tokens"]
    input_tokens: int


def text_usage(figures: Sequence[RoundUsage]) -> TextUsageAnswer:
    """What raw texts took together."""
    prompt, completion = sum(of.prompt for of in figures), sum(of.sampled for of in figures)
    return TextUsageAnswer(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        prompt_tokens_details=CachedAnswer(cached_tokens=sum(of.cached for of in figures)),
    )


def usage(answers: Sequence[Answer]) -> UsageAnswer:
    """What the answers to one request took together."""
    of, runs = (_summed([figures(answer) for answer in answers]) for figures in _FIGURES)
    reasoned = {"completion_tokens_details": ReasonedAnswer(reasoning_tokens=of.reasoning)} if of.reasoning else {}
    return UsageAnswer(
        **reasoned,
        prompt_tokens=of.prompt,
        completion_tokens=of.completion,
        total_tokens=of.prompt + of.completion,
        prompt_tokens_details=CachedAnswer(cached_tokens=of.cached),
        tenuto=cache_use(of, runs),
    )


_FIGURES = (attrgetter("usage"), attrgetter("run_usage"))


def _summed(figures: Sequence[Usage]) -> Usage:
    return Usage(
        prompt=sum(of.prompt for of in figures),
        completion=sum(of.completion for of in figures),
        computed=sum(of.computed for of in figures),
        cached=sum(of.cached for of in figures),
        reasoning=sum(of.reasoning for of in figures),
        rounds=[each for of in figures for each in of.rounds],
    )

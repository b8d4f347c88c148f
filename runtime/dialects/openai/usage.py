"""Figures of an answer as OpenAI has them, and Tenuto's beside."""

from collections.abc import Sequence
from operator import attrgetter

from pydantic import Field

from tenuto.runtime.http.shape import Shape
from tenuto.runtime.loop.events import Answer, RoundUsage, Usage


class CachedAnswer(Shape):
    """What of the prompt was not computed again."""

    cached_tokens: int


class TextUsageAnswer(Shape):
    """The figures of an answer, in tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedAnswer


class RoundUsageAnswer(Shape):
    """What one round took, in tokens and seconds."""

    prompt_tokens: int
    computed_tokens: int
    cached_tokens: int
    new_tokens: int
    sampled_tokens: int
    residency: str
    miss_reason: str | None
    waited_s: float
    first_token_s: float | None
    total_s: float


class RunUsageAnswer(Shape):
    """The figures of a run, in tokens: of all requests that it has answered up to this one."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    computed_tokens: int
    cached_tokens: int


class CacheUseAnswer(Shape):
    """How many of the prompt's tokens were computed, where the cache lay, and why it was missed."""

    computed_tokens: int
    cached_tokens: int
    residency: str
    miss_reason: str | None
    rounds: list[RoundUsageAnswer]
    run: RunUsageAnswer


class UsageAnswer(TextUsageAnswer):
    """The figures of an answer, in tokens: of what this request took, and no other."""

    tenuto: CacheUseAnswer = Field(description="How many of the prompt's tokens were computed or cached, and why.")


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
    first = of.rounds[0] if of.rounds else RoundUsage()
    return UsageAnswer(
        prompt_tokens=of.prompt,
        completion_tokens=of.completion,
        total_tokens=of.prompt + of.completion,
        prompt_tokens_details=CachedAnswer(cached_tokens=of.cached),
        tenuto=CacheUseAnswer(
            computed_tokens=of.computed,
            cached_tokens=of.cached,
            residency=first.residency,
            miss_reason=next((each.miss_reason for each in of.rounds if each.miss_reason), None),
            rounds=[_round(each) for each in of.rounds],
            run=RunUsageAnswer(
                prompt_tokens=runs.prompt,
                completion_tokens=runs.completion,
                total_tokens=runs.prompt + runs.completion,
                computed_tokens=runs.computed,
                cached_tokens=runs.cached,
            ),
        ),
    )


_FIGURES = (attrgetter("usage"), attrgetter("run_usage"))


def _summed(figures: Sequence[Usage]) -> Usage:
    return Usage(
        prompt=sum(of.prompt for of in figures),
        completion=sum(of.completion for of in figures),
        computed=sum(of.computed for of in figures),
        cached=sum(of.cached for of in figures),
        rounds=[each for of in figures for each in of.rounds],
    )


def _round(of: RoundUsage) -> RoundUsageAnswer:
    return RoundUsageAnswer(
        prompt_tokens=of.prompt,
        computed_tokens=of.computed,
        cached_tokens=of.cached,
        new_tokens=of.new,
        sampled_tokens=of.sampled,
        residency=of.residency,
        miss_reason=of.miss_reason,
        waited_s=of.waited_s,
        first_token_s=of.first_token_s,
        total_s=of.total_s,
    )

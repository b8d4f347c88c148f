"""Figures of an answer that no other server has: what was computed of its prompt, and what its whole run has taken."""

from tenuto.runtime.http.shape import Shape
from tenuto.runtime.loop.events import RoundUsage, Usage


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


class RunTotalsAnswer(Shape):
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
    run: RunTotalsAnswer


def cache_use(of: Usage, run: Usage) -> CacheUseAnswer:
    """What a request took, and its whole run up to it."""
    first = of.rounds[0] if of.rounds else RoundUsage()
    return CacheUseAnswer(
        computed_tokens=of.computed,
        cached_tokens=of.cached,
        residency=first.residency,
        miss_reason=next((each.miss_reason for each in of.rounds if each.miss_reason), None),
        rounds=[_round(each) for each in of.rounds],
        run=RunTotalsAnswer(
            prompt_tokens=run.prompt,
            completion_tokens=run.completion,
            total_tokens=run.prompt + run.completion,
            computed_tokens=run.computed,
            cached_tokens=run.cached,
        ),
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

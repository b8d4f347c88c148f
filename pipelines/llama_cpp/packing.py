"""Which two streams to swap so that those of a step lie side by side. Pure, no cache.

llama.cpp computes neighbouring streams in one pass over the weights and begins a new pass at every gap. Paused
sequences make gaps.
"""

from collections.abc import Collection, Sequence


def passes(streams: Collection[int]) -> int:
    """Count the runs of neighbours among the streams of a step."""
    members = set(streams)
    return sum(stream - 1 not in members for stream in members)


def next_swap(streams: Collection[int], lengths: Sequence[int]) -> tuple[int, int] | None:
    """Give (a stream of the step, a stream that is not) whose swap is the next one towards a single run.

    `lengths` has the tokens that every stream holds. The run is the one that moves the fewest tokens in all, and the
    cheapest swap towards it comes first, so that the work left shrinks with every swap. None where there is one run.
    """
    if passes(streams) <= 1:
        return None
    members = set(streams)

    def cost(first: int) -> int:
        window = range(first, first + len(members))
        return sum(lengths[s] for s in window if s not in members) + sum(lengths[s] for s in members if s not in window)

    first = min(range(len(lengths) - len(members) + 1), key=cost)
    window = range(first, first + len(members))
    outside = min((s for s in members if s not in window), key=lambda s: (lengths[s], s))
    hole = min((s for s in window if s not in members), key=lambda s: (lengths[s], s))
    return outside, hole

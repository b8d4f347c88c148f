"""Which sequences decode in one pass: pure functions over the sizes of their caches.

A pass reads the weights once, and the cache of each of its rows as if it were as long as the longest. So long and short
ones part where reading the weights once more costs less than the padding.
"""

from collections.abc import Mapping, Sequence

Groups = list[list[int]]

_STEPS = 64
"""For how many steps a grouping is expected to last: what it costs to move caches is set against what they save."""


def pass_bytes(sizes: Sequence[int], weights: int) -> int:
    """The bytes that a pass over rows of these sizes reads."""
    return weights + len(sizes) * max(sizes)


def regroup(groups: Sequence[Sequence[int]], sizes: Mapping[int, int], weights: int) -> Groups:
    """Choose the groups of a step, given those that lie together now; one that lies by itself is a group of one.

    What lies together stays so and is joined by single ones, or all is grouped anew, whichever is cheaper.
    """
    joined, best = _join(groups, sizes, weights), _best(list(sizes), sizes, weights)
    now = {frozenset(group) for group in groups}

    def total(choice: Groups) -> int:
        reading = sum(pass_bytes([sizes[slot] for slot in group], weights) for group in choice)
        moving = sum(pass_bytes([sizes[slot] for slot in group], 0) for group in choice if frozenset(group) not in now)
        return reading * _STEPS + moving

    return min(joined, best, key=total)


def _join(groups: Sequence[Sequence[int]], sizes: Mapping[int, int], weights: int) -> Groups:
    """Let each single one, the largest first, join where it adds least to what the step reads, or stay by itself."""
    together = [list(group) for group in groups if len(group) > 1]
    alone = sorted((group[0] for group in groups if len(group) == 1), key=lambda slot: -sizes[slot])
    for slot in alone:
        added = [
            pass_bytes([sizes[one] for one in (*group, slot)], 0) - pass_bytes([sizes[one] for one in group], 0)
            for group in together
        ]
        cheapest = min(range(len(together)), key=added.__getitem__, default=None)
        if cheapest is None or added[cheapest] > weights + sizes[slot]:
            together.append([slot])
        else:
            together[cheapest].append(slot)
    return together


def _best(slots: Sequence[int], sizes: Mapping[int, int], weights: int) -> Groups:
    """The grouping that reads fewest bytes. In the order of size, each group of it is a run of neighbours."""
    order = sorted(slots, key=lambda slot: -sizes[slot])
    # For each number of the largest ones: the bytes they take at least, and where the last group of them begins.
    least: list[tuple[int, int]] = [(0, 0)]
    for end in range(1, len(order) + 1):
        least.append(
            min(
                (least[begin][0] + pass_bytes([sizes[slot] for slot in order[begin:end]], weights), begin)
                for begin in range(end)
            )
        )
    groups: Groups = []
    end = len(order)
    while end:
        begin = least[end][1]
        groups.append(order[begin:end])
        end = begin
    return groups

"""Which sequences decode in one pass."""

from hypothesis import given
from hypothesis import strategies as st

from tenuto.pipelines.mlx.grouping import pass_bytes, regroup

SIZES = st.dictionaries(st.integers(0, 15), st.integers(1, 10_000), min_size=1, max_size=10)


def by_itself(sizes: dict[int, int]) -> list[list[int]]:
    return [[slot] for slot in sizes]


def as_sets(groups: list[list[int]]) -> set[frozenset[int]]:
    return {frozenset(group) for group in groups}


def reading(groups: list[list[int]], sizes: dict[int, int], weights: int) -> int:
    return sum(pass_bytes([sizes[slot] for slot in group], weights) for group in groups)


def test_sequences_of_like_size_come_together() -> None:
    sizes = {0: 100, 1: 110, 2: 90}
    assert as_sets(regroup(by_itself(sizes), sizes, 1000)) == {frozenset({0, 1, 2})}


def test_long_and_short_ones_part_where_padding_costs_more_than_a_pass() -> None:
    sizes = {0: 10_000, 1: 9_000, 2: 100, 3: 90}
    assert as_sets(regroup(by_itself(sizes), sizes, 1000)) == {frozenset({0, 1}), frozenset({2, 3})}
    assert as_sets(regroup(by_itself(sizes), sizes, 100_000)) == {frozenset({0, 1, 2, 3})}


def test_who_lies_together_stays_and_is_joined() -> None:
    sizes = {0: 1000, 1: 1000, 2: 950, 3: 10}
    assert as_sets(regroup([[0, 1], [2], [3]], sizes, 100)) == {frozenset({0, 1, 2}), frozenset({3})}


def test_a_group_that_is_worth_little_more_is_not_worth_a_move() -> None:
    sizes = {0: 100_000, 1: 100_000, 2: 98_500, 3: 98_500}
    # Reading is least in two groups, by less than what moving all four costs.
    assert regroup([[0, 1, 2, 3]], sizes, 2_900) == [[0, 1, 2, 3]]


def test_groups_that_have_shrunk_come_together_when_that_saves_passes() -> None:
    sizes = {0: 100, 1: 100, 2: 120, 3: 120}
    assert as_sets(regroup([[0, 1], [2, 3]], sizes, 5000)) == {frozenset({0, 1, 2, 3})}


@given(sizes=SIZES, weights=st.integers(1, 20_000), seed=st.randoms(use_true_random=False))
def test_everybody_is_in_one_group_and_it_reads_little_more_than_the_best(
    sizes: dict[int, int], weights: int, seed: object
) -> None:
    chosen = regroup(by_itself(sizes), sizes, weights)
    assert sorted(slot for group in chosen for slot in group) == sorted(sizes)
    apart, together = by_itself(sizes), [list(sizes)]
    moved = sum(sizes.values()) * len(sizes)
    for other in (apart, together):
        assert reading(chosen, sizes, weights) * 64 <= reading(other, sizes, weights) * 64 + moved

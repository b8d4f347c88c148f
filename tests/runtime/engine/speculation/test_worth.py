"""Whether drafts pay: the pure rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.runtime.engine.speculation.tally import Tally
from tenuto.runtime.engine.speculation.worth import AGAIN, LENGTHS, Offer, Worth

offers = st.lists(st.builds(Offer, st.integers(1, 20), st.floats(0, 1)), max_size=8)


def learned(rows: int, plain_s: float, token_s: float, split_s: float = 0.0) -> Worth:
    """One that has seen many steps which took so long."""
    worth = Worth()
    for _ in range(50):
        worth.observe(rows, 0, 0, plain_s)
        worth.observe(rows, rows, 4 * rows, plain_s + 4 * rows * token_s)
        if rows > 1:
            worth.observe(rows, 1, 4, plain_s + 4 * token_s + split_s)
    worth.observe(rows, 0, 0, plain_s)
    return worth


@given(st.integers(1, 32), offers, st.integers(1, 200))
def test_a_draft_is_no_longer_than_what_is_offered_and_what_there_is_room_for(
    rows: int, offered: list[Offer], room: int
) -> None:
    length = learned(rows, 0.01, 0.0001).length(rows, offered[:rows], room)
    assert length == 0 or (length <= room and any(one.tokens >= length for one in offered[:rows]))


def test_nothing_is_drafted_before_a_step_was_measured() -> None:
    assert Worth().length(1, [Offer(16, 1.0)], 64) == 0


def test_free_tokens_that_are_right_are_drafted_as_many_as_can_be() -> None:
    assert learned(4, 0.01, 0.0).length(4, [Offer(16, 0.95)] * 4, 64) == LENGTHS[0]


def test_tokens_that_cost_as_much_as_a_step_are_not_drafted() -> None:
    worth = learned(1, 0.01, 0.01)
    assert [worth.length(1, [Offer(16, 0.9)], 64) for _ in range(AGAIN - 1)] == [0] * (AGAIN - 1)


def test_what_does_not_pay_is_tried_again_at_times() -> None:
    worth = learned(1, 0.01, 0.02)
    lengths = [worth.length(1, [Offer(16, 0.9)], 64) for _ in range(2 * AGAIN)]
    assert sum(length > 0 for length in lengths) == 2


def test_a_step_without_drafts_is_measured_again_at_times() -> None:
    worth = learned(1, 0.01, 0.0)
    lengths = []
    for _ in range(2 * AGAIN):
        lengths.append(worth.length(1, [Offer(16, 0.9)], 64))
        worth.observe(1, int(lengths[-1] > 0), lengths[-1], 0.01)
    assert lengths.count(0) == 1


def test_a_second_pass_is_counted_where_not_all_rows_have_a_draft() -> None:
    one = [Offer(4, 0.5)]
    assert learned(8, 0.01, 0.0).length(8, one, 64) > 0
    assert learned(8, 0.01, 0.0, split_s=0.01).length(8, one, 64) == 0


def test_it_follows_a_machine_that_changes() -> None:
    worth = learned(1, 0.01, 0.0)
    assert worth.length(1, [Offer(8, 0.8)], 64) == 8
    for _ in range(60):
        worth.observe(1, 1, 8, 0.2)
        worth.observe(1, 0, 0, 0.01)
    assert worth.length(1, [Offer(8, 0.8)], 64) == 0


@pytest.mark.parametrize("disturbed", [1, 40, 300])
def test_a_step_that_something_else_made_long_decides_nothing(disturbed: int) -> None:
    worth, drafted = Worth(), 0
    for step in range(400):
        length = worth.length(1, [Offer(16, 0.02)], 64)
        drafted += length > 0
        worth.observe(1, int(length > 0), length, 5.0 if step == disturbed else 0.01 + 0.002 * length)
    assert drafted <= 400 / AGAIN + 1


def test_a_step_with_a_draft_that_something_else_made_long_decides_nothing() -> None:
    worth = learned(1, 0.01, 0.0001)
    worth.observe(1, 1, 16, 5.0)
    assert worth.length(1, [Offer(16, 0.9)], 64) == LENGTHS[0]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_chance_comes_near_what_it_is(share: float) -> None:
    tally = Tally(50)
    for number in range(400):
        right = int((number * share) % 1 >= 1 - share) if share else 0
        tally.add(right, ended=not right)
    assert tally.chance() == pytest.approx(share, abs=0.15)

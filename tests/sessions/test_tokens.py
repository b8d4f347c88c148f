"""Streams of tokens, and names for their beginnings."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenuto.sessions.tokens import NOTHING, Tokens

few = st.lists(st.integers(0, 2), max_size=12)
steps = st.lists(st.integers(0, 20) | few, max_size=12)


@given(steps)
def test_a_beginning_has_the_same_name_however_the_stream_came_about(course: list[int | list[int]]) -> None:
    """It grows at once or token by token, is cut in between, and is named at any time."""
    tokens, expected = Tokens(), list[int]()
    for number, step in enumerate(course):
        if isinstance(step, int):
            tokens.cut(step)
            del expected[step:]
        elif number % 2:
            tokens.extend(step)
            expected += step
        else:
            for token in step:
                tokens.append(token)
            expected += step
        assert tokens == expected
        assert list(tokens) == expected
        assert tokens.prefix() == Tokens(expected).prefix()
        for length in range(len(expected) + 1):
            assert tokens.prefix(length) == Tokens(expected[:length]).prefix()
            assert tokens.begins_with(Tokens(expected[:length]).prefix())
            assert tokens.copy(length) == expected[:length]
    assert tokens.begins_with(NOTHING)


@given(few, few)
def test_equal_names_are_equal_tokens(one: list[int], other: list[int]) -> None:
    assert (Tokens(one).prefix() == Tokens(other).prefix()) == (one == other)
    assert Tokens(one).begins_with(Tokens(other).prefix()) == (one[: len(other)] == other)


@given(few, few)
@example([1, 2], [1, 2])
@example([1, 2, 3], [1, 2])
def test_what_two_streams_share_is_the_longest_that_is_equal(left: list[int], right: list[int]) -> None:
    length = Tokens(left).shared(Tokens(right))
    assert left[:length] == right[:length]
    assert left[: length + 1] != right[: length + 1] or length == len(left) == len(right)


@pytest.mark.parametrize("bad", [-1, 2**32, "a"])
def test_what_is_no_token_is_refused_with_nothing_added(bad: object) -> None:
    tokens = Tokens([1])
    with pytest.raises((OverflowError, TypeError)):
        tokens.extend([2, bad])  # type: ignore[list-item]  # that is the point
    assert tokens == [1]

"""Guesses from what a sequence repeats."""

from hypothesis import given
from hypothesis import strategies as st

from tenuto.runtime.engine.speculation.lookup import LEAST, SURE, Lookup
from tenuto.sessions.tokens import Tokens

few = st.lists(st.integers(0, 2), max_size=40)


def expected(tokens: list[int], length: int) -> int | None:
    """The place behind the last earlier stand of the last `length` tokens."""
    ending = tokens[len(tokens) - length :]
    stands = [at for at in range(len(tokens) - length) if tokens[at : at + length] == ending]
    return stands[-1] + length if stands else None


@given(few, st.integers(1, 6))
def test_the_last_earlier_stand_of_an_ending_is_found(tokens: list[int], length: int) -> None:
    found = Tokens(tokens).behind_last(length)
    assert found == (expected(tokens, length) if length < len(tokens) else None)


@given(st.lists(st.integers(0, 1 << 31), min_size=8, max_size=40))
def test_an_ending_is_found_between_whole_tokens_only(tokens: list[int]) -> None:
    assert Tokens(tokens).behind_last(1) == expected(tokens, 1)


@given(few, few, st.integers(1, 8))
def test_a_guess_is_what_came_after_an_earlier_stand_of_the_ending(
    before: list[int], after: list[int], most: int
) -> None:
    lookup, tokens = Lookup(), Tokens(before)
    for token in after:
        guess = lookup.guess(tokens, most)
        if guess:
            text, ending = list(tokens), list(tokens)[len(tokens) - LEAST :]
            stands = [at for at in range(len(text) - LEAST) if text[at : at + LEAST] == ending]
            assert any(text[at + LEAST : at + LEAST + most] == guess for at in stands)
        assert len(guess) <= most
        tokens.append(token)


def test_a_repetition_is_followed_and_becomes_sure() -> None:
    said = list(range(100, 140))
    tokens, lookup = Tokens([*said, 1, *said[:LEAST]]), Lookup()
    assert lookup.guess(tokens, 4) == said[LEAST : LEAST + 4]
    assert not lookup.is_sure
    tokens.extend(said[LEAST:SURE])
    assert lookup.guess(tokens, 4) == said[SURE : SURE + 4]
    assert lookup.is_sure


def test_what_goes_on_otherwise_is_looked_for_anew() -> None:
    tokens, lookup = Tokens([1, 2, 3, 4, 5, 9, 1, 2, 3, 7, 8, 1, 2, 3]), Lookup()
    assert lookup.guess(tokens, 2) == [7, 8]
    tokens.extend([4])
    assert lookup.guess(tokens, 1) == [5]
    tokens.extend([66])
    assert lookup.guess(tokens, 1) == []

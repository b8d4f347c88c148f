"""What stands for an image in a ledger: equal for equal images, and found again in whatever stands around it."""

from hypothesis import given
from hypothesis import strategies as st

from tenuto.sessions.image_tokens import image_span, is_image_token, spans_in
from tenuto.sessions.tokens import Tokens

NAMES = st.text(max_size=8)
LENGTHS = st.integers(1, 40)
TEXT = st.lists(st.integers(0, (1 << 31) - 1), max_size=6)


@given(NAMES, LENGTHS)
def test_a_span_is_of_image_tokens_that_fit_a_ledger(name: str, length: int) -> None:
    span = image_span(name, length)
    assert len(span) == length
    assert all(map(is_image_token, span))
    assert Tokens(span)[:] == list(span)


@given(NAMES, NAMES, LENGTHS)
def test_spans_are_equal_where_their_names_are(one: str, other: str, length: int) -> None:
    assert (image_span(one, length) == image_span(other, length)) is (one == other)
    # What a cache shares with another image ends before the image.
    shared = Tokens((7, *image_span(one, length))).shared(Tokens((7, *image_span(other, length))))
    assert shared == (1 + length if one == other else 1)


@given(st.lists(st.one_of(TEXT, st.tuples(NAMES, LENGTHS))), st.integers(0, 20))
def test_spans_are_found_where_they_stand(parts: list[list[int] | tuple[str, int]], since: int) -> None:
    tokens: list[int] = []
    placed: list[tuple[int, tuple[int, ...]]] = []
    for part in parts:
        if isinstance(part, tuple):
            placed.append((len(tokens), image_span(*part)))
            tokens += placed[-1][1]
        else:
            tokens += part
    assert list(spans_in(tokens)) == placed
    whole = [(begin, span) for begin, span in placed if begin >= since]
    found = list(spans_in(tokens, since))
    assert found[len(found) - len(whole) :] == whole

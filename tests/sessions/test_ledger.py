"""The laws of a ledger."""

from hypothesis import given
from hypothesis import strategies as st

from tenuto.sessions.ledger import Ledger

spans = st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=6)


def ledger_of(parts: list[list[int]]) -> Ledger:
    ledger = Ledger("f")
    for part in parts:
        ledger.append(part)
    return ledger


@given(spans)
def test_a_ledger_is_the_spans_of_its_items_in_a_row(parts: list[list[int]]) -> None:
    ledger = ledger_of(parts)
    assert ledger.items == len(parts)
    assert [ledger.span(item) for item in range(ledger.items)] == parts
    assert ledger.tokens == [token for part in parts for token in part]


@given(spans, st.integers(0, 8))
def test_a_cut_ledger_is_one_that_never_had_the_rest(parts: list[list[int]], keep: int) -> None:
    ledger = ledger_of(parts)
    ledger.cut(keep)
    assert ledger == ledger_of(parts[:keep])


@given(spans, st.integers(0, 8), st.lists(st.integers(0, 9)))
def test_a_copy_lives_on_its_own(parts: list[list[int]], keep: int, more: list[int]) -> None:
    ledger = ledger_of(parts)
    twin = ledger.copy(keep)
    assert twin == ledger_of(parts[:keep])
    twin.append(more)
    assert ledger == ledger_of(parts)

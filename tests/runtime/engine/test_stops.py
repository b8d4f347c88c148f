from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenuto.runtime.engine.stops import StopStrings

LETTERS = "ab<"  # few, so that strings overlap, repeat and begin each other
TEXTS = st.text(LETTERS, max_size=30)
STRINGS = st.lists(st.text(LETTERS, min_size=1, max_size=5), max_size=4)
CUTS = st.lists(st.integers(0, 30), max_size=12)


def pieces(text: str, cuts: list[int]) -> list[str]:
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[begin:end] for begin, end in pairwise(borders)]


def first_complete(text: str, strings: list[str]) -> tuple[int, str] | None:
    """The plain way: letter by letter, the first place at which a stop string is complete; the longest one there."""
    for end in range(len(text) + 1):
        found = [string for string in strings if text[:end].endswith(string)]
        if found:
            longest = max(found, key=len)
            return end - len(longest), longest
    return None


@given(TEXTS, STRINGS, CUTS)
@example("abba", ["bb", "abba"], [2])
@example("<ab<", ["<a<", "b"], [1, 2, 3])
def test_text_is_shown_up_to_the_first_stop_string_however_it_comes(
    text: str, strings: list[str], cuts: list[int]
) -> None:
    stops = StopStrings(strings)
    shown = "".join([*map(stops.push, pieces(text, cuts)), stops.flush()])
    found = first_complete(text, strings)
    assert (len(shown), stops.matched) == (found or (len(text), None))
    assert text.startswith(shown)


@given(TEXTS, STRINGS, TEXTS)
def test_nothing_is_shown_that_more_text_could_make_part_of_a_stop_string(
    text: str, strings: list[str], more: str
) -> None:
    stops = StopStrings(strings)
    shown = stops.push(text)
    found = first_complete(text + more, strings)
    assert found is None or len(shown) <= found[0]


@given(TEXTS, st.lists(st.text(LETTERS, min_size=1, max_size=5), min_size=1, max_size=4))
def test_no_more_is_held_back_than_could_begin_a_stop_string(text: str, strings: list[str]) -> None:
    stops = StopStrings(strings)
    shown = stops.push(text)
    if stops.matched is None:
        held = text[len(shown) :]
        assert held == "" or any(string.startswith(held) for string in strings)
        assert stops.flush() == held


def test_after_a_match_nothing_is_shown() -> None:
    stops = StopStrings(["stop"])
    assert [stops.push("go st"), stops.push("op on"), stops.push("more"), stops.flush()] == ["go ", "", "", ""]
    assert stops.matched == "stop"


@pytest.mark.parametrize("strings", [(), ("",)])
def test_without_stop_strings_all_is_shown_at_once(strings: tuple[str, ...]) -> None:
    stops = StopStrings(strings)
    assert (stops.push("text"), stops.matched) == ("text", None)

"""Whose texts are in a step, in every order of coming and going."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tenuto.runtime.engine.messages import Embed
from tenuto.runtime.engine.text_queue import TextQueue


def request(name: str, principal: str, *lengths: int) -> Embed:
    return Embed(name, principal, [np.zeros(length, np.int32) for length in lengths])


def taken(queue: TextQueue, tokens: int = 100, texts: int = 8) -> list[tuple[str, int]]:
    return [(one.request, one.place) for one in queue.take(tokens, texts)]


def test_texts_of_several_requests_share_a_step() -> None:
    queue = TextQueue()
    queue.add(request("a", "ada", 10, 10))
    queue.add(request("b", "ada", 10))
    assert sorted(taken(queue)) == [("a", 0), ("a", 1), ("b", 0)]
    assert (len(queue), taken(queue)) == (0, [])


def test_a_principal_with_thousands_of_texts_leaves_half_a_step_to_another() -> None:
    queue = TextQueue()
    queue.add(request("many", "ada", *[10] * 1000))
    taken(queue)
    queue.add(request("few", "bob", *[10] * 20))
    names = [name for name, _ in taken(queue)]
    assert names.count("few") == names.count("many") == 4


def test_a_single_text_does_not_wait_for_a_long_list_of_the_same_principal() -> None:
    queue = TextQueue()
    queue.add(request("many", "ada", *[10] * 1000))
    taken(queue)
    queue.add(request("one", "ada", 10))
    assert ("one", 0) in taken(queue)


def test_a_text_that_is_longer_than_a_step_goes_alone() -> None:
    queue = TextQueue()
    queue.add(request("a", "ada", 5, 500, 5))
    assert [taken(queue) for _ in range(3)] == [[("a", 0)], [("a", 1)], [("a", 2)]]


def test_a_withdrawn_request_is_in_no_further_step() -> None:
    queue = TextQueue()
    queue.add(request("a", "ada", *[60] * 3))
    queue.add(request("b", "bob", 60))
    taken(queue)
    queue.remove("a")
    queue.remove("a")
    queue.remove("unknown")
    assert (taken(queue), len(queue)) == ([("b", 0)], 0)


@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.lists(st.integers(1, 30), min_size=1, max_size=9)), max_size=9),
    st.integers(1, 40),
    st.integers(1, 5),
)
def test_every_text_is_taken_once_within_what_a_step_may_carry(
    requests: list[tuple[str, list[int]]], tokens: int, texts: int
) -> None:
    queue = TextQueue()
    for number, (principal, lengths) in enumerate(requests):
        queue.add(request(str(number), principal, *lengths))
    seen = []
    while len(queue):
        step = queue.take(tokens, texts)
        assert 1 <= len(step) <= texts
        assert len(step) == 1 or sum(len(one.tokens) for one in step) <= tokens
        seen += [(int(one.request), one.place) for one in step]
    assert sorted(seen) == [(n, place) for n, (_, lengths) in enumerate(requests) for place in range(len(lengths))]
    assert all(seen.index((n, p)) < seen.index((n, p + 1)) for n, p in seen if (n, p + 1) in seen)

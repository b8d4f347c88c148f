"""The tree of prefixes against a plain list of all streams, and what it holds in the course of time."""

from array import array
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.runtime.engine.prefixes import Prefixes, PrefixTree

Streams = dict[int, list[int]]
FEW = st.lists(st.integers(0, 2), max_size=12)
"""Tokens of which many are the same."""


def ids(tokens: Sequence[int]) -> "array[int]":
    return array("I", tokens)


def common(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def naive(streams: Streams, asked: list[int], *, whole: bool = False) -> set[tuple[int, int]]:
    found = {(common(stream, asked), key) for key, stream in streams.items()}
    return {(same, key) for same, key in found if same and (not whole or same == len(streams[key]))}


def distinct(streams: Streams) -> int:
    """How many nodes a tree without edges of several tokens would have."""
    return len({tuple(stream[:end]) for stream in streams.values() for end in range(1, len(stream) + 1)})


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5), FEW),
        st.tuples(st.just("grow"), st.integers(0, 5), FEW),
        st.tuples(st.just("cut"), st.integers(0, 5), FEW),
        st.tuples(st.just("remove"), st.integers(0, 5), FEW),
    ),
    max_size=30,
)


@given(CHANGES, FEW)
@settings(max_examples=400)
def test_it_finds_what_a_list_of_all_streams_finds_whatever_became_of_them(
    changes: list[tuple[str, int, list[int]]], asked: list[int]
) -> None:
    tree, streams = PrefixTree[int](), Streams()
    for change, key, tokens in changes:
        match change:
            case "put":
                streams[key] = tokens
            case "grow":
                streams[key] = streams.get(key, []) + tokens
            case "cut":
                streams[key] = streams.get(key, [])[: len(tokens)]
            case _:
                streams.pop(key, None)
        if key in streams:
            tree.put(key, ids(streams[key]))
        else:
            tree.remove(key)
        streams = {name: stream for name, stream in streams.items() if stream}
        assert len(tree) == len(streams)
        assert tree.tokens == distinct(streams), "a token is held once"
        for whole in (False, True):
            found = list(tree.matches(ids(asked), whole=whole))
            assert set(found) == naive(streams, asked, whole=whole)
            assert len(found) == len(set(found))
            assert [same for same, _ in found] == sorted((same for same, _ in found), reverse=True)
    for key in list(streams):
        tree.remove(key)
    assert (len(tree), tree.tokens) == (0, 0)
    assert not tree._root.children, "nothing is left of what was removed"


def test_of_equal_matches_the_one_with_least_behind_it_comes_first() -> None:
    tree = PrefixTree[str]()
    tree.put("longer", ids([1, 2, 3, 4, 5]))
    tree.put("branch", ids([1, 2, 3, 4, 6]))
    tree.put("short", ids([1, 2, 3]))
    assert next(key for _, key in tree.matches(ids([1, 2, 3, 9]))) == "short"


def test_a_stream_is_not_changed_by_what_its_caller_does_with_the_array() -> None:
    tree, mine = PrefixTree[str](), ids([1, 2, 3])
    tree.put("a", mine)
    mine[0] = 9
    tree.put("b", ids([1, 2, 3, 4]))
    assert list(tree.matches(ids([1, 2, 3, 4]))) == [(4, "b"), (3, "a")]


def test_five_hundred_streams_with_one_beginning_hold_it_once() -> None:
    tree = PrefixTree[int]()
    system = list(range(1000))
    for number in range(500):
        tree.put(number, ids([*system, 5000 + number, *range(20)]))
    assert tree.tokens == len(system) + 500 * 21
    same, key = next(tree.matches(ids([*system, 5007, 0, 1, 99])))
    assert (same, key) == (1003, 7)
    assert next(tree.matches(ids([*system, 77])))[0] == len(system)
    for number in range(500):
        tree.remove(number)
    assert tree.tokens == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), FEW), max_size=20), FEW)
def test_groups_do_not_see_each_other(puts: list[tuple[int, str, list[int]]], asked: list[int]) -> None:
    prefixes, groups = Prefixes[int](), dict[str, Streams](a={}, b={})
    for key, group, tokens in puts:
        for streams in groups.values():
            streams.pop(key, None)
        prefixes.put(group, key, ids(tokens))
        if tokens:
            groups[group][key] = tokens
        for name, streams in groups.items():
            assert set(prefixes.matches(name, ids(asked))) == naive(streams, asked)
    for key in range(4):
        prefixes.remove(key)
    assert (len(prefixes), prefixes.tokens, prefixes._trees) == (0, 0, {})

"""Beginnings that sequences have in common: whose cache serves whom, from where, and what is left once all are gone."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.runtime.engine.messages import THE_SERVER, Residency
from tenuto.runtime.engine.residency import WORTH_SHARING
from tenuto.runtime.engine.sequence import Sequence
from tests.runtime.engine.test_residency import BYTES, House, shared, words

SYSTEM = words("s", 40)
PLENTY = 1 << 20


@pytest.mark.parametrize("can_truncate", [True, False])
def test_a_copy_in_host_memory_serves_another_sequence_of_its_principals_and_stays(can_truncate: bool) -> None:
    """Where caches cannot be cut, only one that is all beginning does."""
    house = House(host=PLENTY, slots=1, can_truncate=can_truncate)
    house.use("a", SYSTEM)
    house.use("b", words("b"))
    assert house.where("a") is Residency.HOST
    house.use("c", [*SYSTEM, 1, 2])
    assert (house.cached_before, house.placed.lent) == (len(SYSTEM), 0)
    assert house.where("a") is Residency.HOST
    house.use("d", [*SYSTEM, 1, 3])
    assert house.cached_before == (len(SYSTEM) + 1 if can_truncate else len(SYSTEM))


def test_a_copy_that_serves_does_not_give_way_to_whom_it_makes_room_for() -> None:
    house = House(host=BYTES * 50, slots=1)
    house.use("a", SYSTEM)
    house.use("b", words("b", 45))
    house.use("c", [*SYSTEM, 1])
    assert house.cached_before == len(SYSTEM)
    assert [house.where(name) for name in "ab"] == [Residency.HOST, Residency.NONE]


def test_another_principal_gets_nothing_from_host_memory() -> None:
    house = House(host=PLENTY, slots=1)
    house.use("a", SYSTEM)
    house.use("b", words("b"), "bob")
    house.use("c", [*SYSTEM, 1], "bob")
    assert (house.cached_before, house.placed.lent) == (0, 0)


def test_where_all_is_lent_it_serves_everybody_and_nobody_is_told() -> None:
    house = House(host=PLENTY, slots=2, lends_all=True)
    house.use("mine", [*SYSTEM[:20], 7], "bob")
    house.use("a", [*SYSTEM, 1])
    house.use("b", [*SYSTEM, 2], "bob")
    assert (house.cached_before, house.placed.lent) == (len(SYSTEM), len(SYSTEM) - 20)


@pytest.mark.parametrize("slots", [1, 2])
def test_what_the_server_has_named_is_lent_whole_and_told(slots: int) -> None:
    house = House(host=PLENTY, slots=slots)
    house.use("warm", SYSTEM, THE_SERVER, named=len(SYSTEM))
    for name, tokens, cached in (("a", [*SYSTEM, 1], len(SYSTEM)), ("b", [*SYSTEM[:-1], 1, 2], 0)):
        house.use(name, tokens, name)
        assert (house.cached_before, house.placed.lent) == (cached, 0)


def test_of_two_that_the_server_has_named_the_longer_one_serves() -> None:
    house = House(host=PLENTY, slots=1)
    for length in (20, 40, 30):
        house.use(f"warm{length}", SYSTEM[:length], THE_SERVER, named=length)
    for length, cached in ((41, 40), (39, 30), (21, 20), (20, 0)):
        house.use(f"a{length}", [*SYSTEM[:length], 1], f"principal {length}")
        assert house.cached_before == cached if length > 20 else house.cached_before == 20


def test_a_sequence_that_was_cut_lends_what_it_still_holds() -> None:
    house = House(host=PLENTY, slots=3)
    house.use("a", [*SYSTEM, *words("a")])
    house.use("a", [*SYSTEM[:20], 5, 6])
    house.use("b", [*SYSTEM, *words("a"), 1])
    assert house.cached_before == 20


def test_one_that_was_dropped_lends_nothing() -> None:
    house = House(host=PLENTY, slots=1)
    house.use("a", SYSTEM)
    house.use("b", words("b"))
    house.residency.drop(house.sequences.pop("a"))
    house.use("c", [*SYSTEM, 1])
    assert house.cached_before == 0


def test_of_those_that_serve_equally_well_the_smallest_is_copied() -> None:
    house = House(host=PLENTY, slots=4)
    house.use("long", [*SYSTEM, *words("l", 90)])
    house.use("short", [*SYSTEM, 1])
    sources: list[int] = []
    fork = house.backend.fork

    def watched(source: int, target: int, tokens: int) -> None:
        sources.append(source)
        fork(source, target, tokens)

    house.backend.fork = watched  # type: ignore[method-assign]  # the real one goes on behind it
    house.use("new", [*SYSTEM, 2])
    assert sources == [house.sequences["short"].slot]


def test_five_hundred_sessions_with_one_system_prompt_compute_it_once_and_leave_nothing() -> None:
    house = House(host=PLENTY, slots=4)
    for number in range(500):
        house.use(f"s{number}", [*SYSTEM, number % 250, number // 250, 7])
        assert house.cached_before >= (len(SYSTEM) if number else 0)
    assert house.residency.listed_tokens <= len(SYSTEM) + 500 * 3
    assert house.residency.shared >= 499 * len(SYSTEM)
    for sequence in house.sequences.values():
        house.residency.drop(sequence)
    assert house.residency.listed_tokens == 0


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    host=st.integers(0, 600),
    slots=st.integers(1, 3),
    can_truncate=st.booleans(),
    lends_all=st.booleans(),
)
def test_whatever_is_done_what_is_lent_was_there_and_nothing_is_listed_that_is_gone(
    seed: int, host: int, slots: int, can_truncate: bool, lends_all: bool
) -> None:
    """`House.check` holds each slot's tokens to its sequence's, so that a wrong cache is found."""
    house = House(host, slots, can_truncate, lends_all=lends_all)
    dice = random.Random(seed)
    said: list[tuple[str, list[int], int]] = []
    for _ in range(50):
        name = dice.choice("abcdefgh")
        principal = {"a": THE_SERVER, "b": THE_SERVER, "c": "bob", "d": "bob"}.get(name, "alice")
        known = house.sequences.get(name)
        if known is not None and dice.random() < 0.2:
            house.residency.drop(house.sequences.pop(name))
            house.check()
            continue
        if known is not None and known.slot is not None and dice.random() < 0.3:
            house.residency.touch(known)
        block = dice.choice([words("s", 20), words("s", 30), words("t", 24)])
        tokens = [*block, *dice.choices((1, 2), k=dice.randint(0, 4))]
        named = len(tokens) if name == "b" else 0
        house.use(name, tokens, principal, named)
        own = max((shared(tokens, one) for who, one, _ in said if who == principal), default=0)
        told = max((n for who, one, n in said if who == THE_SERVER and n and one[:n] == tokens[:n]), default=0)
        assert house.cached_before - house.placed.lent <= max(own, told)
        if not lends_all and principal != THE_SERVER:
            servers = max((shared(tokens, one) for who, one, n in said if who == THE_SERVER and not n), default=0)
            assert house.cached_before <= max(own, told, servers)
        said.append((principal, tokens, named))
    assert house.residency.listed_tokens <= 3 * sum(len(one.tokens) for one in house.sequences.values())
    for sequence in house.sequences.values():
        house.residency.drop(sequence)
    assert house.residency.listed_tokens == 0


def test_no_cache_ends_in_the_middle_of_an_image_that_only_one_of_two_has_read_whole() -> None:
    """What is common is cut to the beginning of the piece that is not wholly common."""

    class Pictured(Sequence):
        def uncut(self, tokens: int) -> int:
            return 20 if 20 < tokens < 35 else tokens

    house = House(host=PLENTY, slots=2)
    house.use("a", SYSTEM[:30])
    house.sequences["b"] = Pictured("b", "alice")
    house.use("b", [*SYSTEM, 1])
    assert house.cached_before == 20
    assert house.cached_before >= WORTH_SHARING

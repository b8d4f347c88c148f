"""Where caches go: to host memory and back, shared, taken over, cut, dropped. Driven directly, without a thread."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.pipelines.backend import BackendInfo, Row
from tenuto.pipelines.scripted import Script, ScriptedBackend
from tenuto.runtime.engine.disk_caches import DiskCaches
from tenuto.runtime.engine.messages import THE_SERVER, Residency
from tenuto.runtime.engine.residency import WORTH_SHARING, CacheLimits, CacheResidency
from tenuto.runtime.engine.sequence import Sequence
from tenuto.sessions.tokens import Tokens

BYTES = 4  # of a token in the scripted cache


class Scripted(ScriptedBackend):
    """Says what a token takes, without regard to what a snapshot has beside its tokens."""

    def __init__(self, script: Script, told: int) -> None:
        super().__init__(script)
        self._told = replace(super().info, bytes_per_token=told)

    @property
    def info(self) -> BackendInfo:
        return self._told


@dataclass
class House:
    """A backend of two slots, and sequences that are fed as the engine feeds them."""

    host: int
    slots: int = 2
    can_truncate: bool = True
    told: int = BYTES
    """What the backend says that a token takes."""
    lends_all: bool = False
    sequences: dict[str, Sequence] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.backend = Scripted(Script(slots=self.slots, cells=256, can_truncate=self.can_truncate), self.told)
        self.residency = CacheResidency(
            self.backend, CacheLimits(self.host, self.lends_all), DiskCaches(None, 0, lambda _: None)
        )

    def use(self, name: str, tokens: list[int], principal: str = "alice", named: int = 0) -> Sequence:
        """Place a sequence with these tokens and feed what it lacks. Gives it; `cached` was what it had before."""
        sequence = self.sequences.setdefault(name, Sequence(name, principal))
        sequence.named = named
        self.place(sequence, tokens)
        assert sequence.slot is not None
        self.cached_before = sequence.cached
        self.backend.collect(self.backend.launch([Row(sequence.slot, sequence.cached, tokens[sequence.cached :])]))
        sequence.cached = len(tokens)
        self.check()
        return sequence

    def place(self, sequence: Sequence, tokens: list[int]) -> None:
        sequence.tokens = Tokens(tokens)
        if sequence.slot is not None:
            self.residency.keep(sequence, shared(self.held(sequence.slot), tokens))
        victim = None
        if sequence.slot is None and self.residency.free_slots == 0:
            victim = self.residency.holders()[0]
        self.placed = self.residency.place(sequence, victim)
        assert sequence.cached < len(tokens)
        self.check()

    def held(self, slot: int) -> list[int]:
        return list(self.backend.snapshot(slot).data.view("int32"))

    def where(self, name: str) -> Residency:
        return self.residency.where(self.sequences[name])

    def check(self) -> None:
        """What must hold at all times."""
        holders = self.residency.holders()
        assert len({holder.slot for holder in holders}) == len(holders) == self.slots - self.residency.free_slots
        for holder in holders:
            assert holder.slot is not None
            assert self.held(holder.slot) == holder.tokens[: holder.cached]
        for sequence in self.sequences.values():
            assert sequence.slot is not None or sequence.cached == 0
        in_use = self.residency.cache_bytes()
        assert in_use[Residency.DEVICE] == self.told * sum(holder.cached for holder in holders)
        assert 0 <= in_use[Residency.HOST] <= self.residency.host_peak_bytes <= self.host


def shared(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))


def words(letter: str, count: int = 20) -> list[int]:
    return [ord(letter)] * count


A, B, C, D = (words(letter) for letter in "abcd")
ONE = BYTES * len(A)


def test_the_one_used_longest_ago_gives_way() -> None:
    house = House(host=10 * ONE)
    house.use("a", A)
    house.use("b", B)
    house.use("a", [*A, 1])
    house.use("c", C)
    assert [house.where(name) for name in "abc"] == [Residency.DEVICE, Residency.HOST, Residency.DEVICE]
    house.residency.touch(house.sequences["a"])
    house.use("d", D)
    assert [house.where(name) for name in "acd"] == [Residency.DEVICE, Residency.HOST, Residency.DEVICE]


def test_a_cache_that_was_moved_out_comes_back_whole() -> None:
    house = House(host=10 * ONE, slots=1)
    house.use("a", A)
    house.use("b", B)
    assert house.residency.cache_bytes()[Residency.HOST] == ONE
    house.use("a", [*A, 1, 2])
    assert house.cached_before == len(A)
    assert house.residency.cache_bytes() == {Residency.DEVICE: ONE + 2 * BYTES, Residency.HOST: ONE}
    house.use("b", [*B[:5], 9])
    assert house.cached_before == 5


def test_in_host_memory_whoever_holds_most_gives_way_and_never_another() -> None:
    house = House(host=4 * ONE, slots=1)
    house.use("bob's", words("z"), principal="bob")
    for letter in "abcdefgh":
        house.use(letter, words(letter))
    assert house.where("bob's") is Residency.HOST
    assert [letter for letter in "abcdefgh" if house.where(letter) is Residency.HOST] == ["e", "f", "g"]


@pytest.mark.parametrize(("copies", "left"), [(0, ""), (1, "c"), (2, "bc"), (3, "abc")])
def test_in_host_memory_the_oldest_gives_way(copies: int, left: str) -> None:
    house = House(host=copies * ONE + BYTES, slots=1)
    for name, tokens in zip("abcd", (A, B, C, D), strict=True):
        house.use(name, tokens)
    assert "".join(name for name in "abc" if house.where(name) is Residency.HOST) == left


def test_what_is_larger_than_host_memory_drives_nothing_out() -> None:
    house = House(host=ONE, slots=1)
    house.use("a", A)
    house.use("long", words("l", 40))
    assert house.where("a") is Residency.HOST
    house.use("c", C)
    assert (house.where("a"), house.where("long")) == (Residency.HOST, Residency.NONE)


def test_a_copy_that_turns_out_larger_than_expected_keeps_within_the_budget_too() -> None:
    house = House(host=ONE + BYTES, slots=1, told=1)
    for name, tokens in zip("abcd", (A, B, words("c", 40), D), strict=True):
        house.use(name, tokens)
        assert sum(house.where(each) is Residency.HOST for each in house.sequences) <= 1
    assert house.where("c") is Residency.NONE


@pytest.mark.parametrize(("copies", "kept"), [(1, Residency.NONE), (2, Residency.HOST)])
def test_a_swap_keeps_within_the_budget_with_both_caches_in_host_memory(copies: int, kept: Residency) -> None:
    """While one comes back, its copy still takes room, and is not driven out by the one that goes."""
    house = House(host=copies * ONE, slots=1)
    house.use("a", A)
    house.use("b", B)
    house.use("a", [*A, 1])
    assert house.cached_before == len(A)
    assert house.where("b") is kept


def test_a_swap_drives_out_others_before_the_one_that_comes_back() -> None:
    house = House(host=2 * ONE, slots=1)
    house.use("a", A)
    house.use("b", B)
    house.use("c", C)
    house.use("a", [*A, 1])
    assert house.cached_before == len(A)
    assert (house.where("b"), house.where("c")) == (Residency.NONE, Residency.HOST)


def test_a_prefix_of_another_sequence_is_shared() -> None:
    house = House(host=0, slots=3)
    house.use("a", [*A, 1, 2, 3])
    house.use("less", [*A[:18], 7])
    house.use("b", [*A, 1, 9])
    assert house.cached_before == len(A) + 1  # of the one that has most in common
    assert house.where("a") is Residency.DEVICE


def test_a_prefix_that_is_still_being_read_is_shared_as_far_as_it_is() -> None:
    house = House(host=0)
    house.use("a", A)
    house.sequences["a"].tokens.extend(A)
    house.use("b", [*A, *A])
    assert house.cached_before == len(A)


def test_a_short_prefix_is_not_worth_sharing() -> None:
    house = House(host=0)
    house.use("a", words("a", WORTH_SHARING - 1))
    house.use("b", [*words("a", WORTH_SHARING - 1), 2])
    assert house.cached_before == 0


def test_the_own_copy_is_preferred_to_as_much_of_another() -> None:
    house = House(host=10 * ONE)
    house.use("a", A)
    house.use("b", B)
    house.use("c", C)
    house.use("twin", A)
    assert house.where("a") is Residency.HOST
    house.use("a", [*A, 1])
    assert house.cached_before == len(A)
    assert house.where("b") is Residency.HOST


def test_the_one_that_gives_way_leaves_its_prefix_where_it_lies() -> None:
    house = House(host=10 * ONE, slots=1)
    house.use("a", [*A, 1, 2])
    house.use("b", [*A, 9])
    assert house.cached_before == len(A)
    assert house.where("a") is Residency.HOST
    house.use("a", [*A, 1, 2, 3])
    assert house.cached_before == len(A) + 2


def test_the_same_tokens_again_leave_one_to_feed() -> None:
    house = House(host=0)
    house.use("a", A)
    house.use("a", A)
    assert house.cached_before == len(A) - 1


@pytest.mark.parametrize(
    ("prepare", "tokens"),
    [
        (lambda house: house.use("s", A), A[:10]),
        (lambda house: house.use("s", A), A),
        (lambda house: house.use("donor", A), [*A[:18], 9]),
        (lambda house: [house.use("s", A), house.use("b", B), house.use("c", C)], [*A[:18], 9]),
    ],
    ids=["shorter", "same", "shared", "moved out"],
)
def test_where_a_cache_cannot_be_cut_no_wrong_token_is_kept(
    prepare: Callable[[House], object], tokens: list[int]
) -> None:
    house = House(host=10 * ONE, can_truncate=False)
    prepare(house)
    house.use("s", tokens)
    assert house.cached_before == 0


def test_where_a_cache_cannot_be_cut_a_whole_one_still_serves() -> None:
    house = House(host=10 * ONE, can_truncate=False)
    house.use("a", A)
    house.use("b", [*A, 1])
    assert house.cached_before == len(A)  # forked whole
    house.use("c", C)
    assert house.where("a") is Residency.HOST
    house.use("a", [*A, 2])
    assert house.cached_before == len(A)


def test_what_is_dropped_holds_nothing() -> None:
    house = House(host=10 * ONE, slots=1)
    house.use("a", A)
    house.use("b", B)
    for name in "ab":
        house.residency.drop(house.sequences[name])
        house.residency.drop(house.sequences[name])
    assert house.residency.cache_bytes() == {Residency.DEVICE: 0, Residency.HOST: 0}
    assert (house.residency.free_slots, house.held(0)) == (1, [])


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    host=st.integers(0, 400),
    slots=st.integers(1, 3),
    can_truncate=st.booleans(),
)
def test_whatever_is_done_slots_hold_their_sequences_tokens_and_host_memory_its_budget(
    seed: int, host: int, slots: int, can_truncate: bool
) -> None:
    house = House(host, slots, can_truncate)
    dice = random.Random(seed)
    for _ in range(40):
        name = dice.choice("abcdef")
        known = house.sequences.get(name)
        match dice.choice(["grow", "grow", "diverge", "imitate", "drop"]):
            case "grow":
                house.use(name, [*(known.tokens if known else []), *dice.choices((1, 2), k=dice.randint(1, 8))])
            case "diverge" if known:
                house.use(name, [*known.tokens[: dice.randint(0, len(known.tokens))], 3])
            case "imitate" if house.sequences:
                other = dice.choice(list(house.sequences.values()))
                house.use(name, [*other.tokens[: dice.randint(0, len(other.tokens))], 4])
            case "drop" if known:
                house.residency.drop(house.sequences.pop(name))
                house.check()
    for sequence in house.sequences.values():
        house.residency.drop(sequence)
    assert house.residency.cache_bytes() == {Residency.DEVICE: 0, Residency.HOST: 0}


# Between principals.

SYSTEM = words("s", 30)


def test_another_principals_cache_is_never_given() -> None:
    """Else whoever is told how much was cached could find out, token by token, what others have said."""
    house = House(host=0, slots=3)
    house.use("a", [*SYSTEM, *A])
    house.use("b", [*SYSTEM, *B], principal="bob")
    assert (house.cached_before, house.placed.lent) == (0, 0)
    house.use("more", [*SYSTEM, *C])
    assert (house.cached_before, house.placed.lent) == (len(SYSTEM), 0)


def test_another_principals_cache_is_not_given_by_taking_over_its_slot() -> None:
    house = House(host=0, slots=1)
    house.use("a", [*SYSTEM, *A])
    house.use("b", [*SYSTEM, *B], principal="bob")
    assert house.cached_before == 0


@pytest.mark.parametrize("slots", [1, 2])
def test_a_prefix_that_both_name_is_lent_and_no_token_more(slots: int) -> None:
    house = House(host=0, slots=slots)
    house.use("a", [*SYSTEM, *A], named=len(SYSTEM))
    house.use("b", [*SYSTEM, *A, 1], principal="bob", named=len(SYSTEM))
    assert house.cached_before == house.placed.lent == len(SYSTEM)


@pytest.mark.parametrize(
    ("hers", "his"), [(30, 29), (29, 30), (30, 0), (0, 30), (29, 29)], ids=lambda named: f"{named} named"
)
def test_only_the_whole_of_the_very_same_named_prefix_is_lent(hers: int, his: int) -> None:
    """A prefix of what another has named tells nothing; here all but its last token could be guessed."""
    house = House(host=0)
    house.use("a", [*SYSTEM, *A], named=hers)
    house.use("b", [*SYSTEM[:-2], 1, *SYSTEM[-1:], *B] if hers == his else [*SYSTEM, *B], principal="bob", named=his)
    assert house.cached_before == 0


def test_what_is_lent_is_told_apart_from_what_the_principal_had() -> None:
    house = House(host=0, slots=3)
    house.use("his", [*SYSTEM[:20], 1], principal="bob")
    house.use("a", [*SYSTEM, *A], named=len(SYSTEM))
    house.use("b", [*SYSTEM, *B], principal="bob", named=len(SYSTEM))
    assert house.cached_before == len(SYSTEM)
    assert house.placed.lent == len(SYSTEM) - 20


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 30), host=st.integers(0, 400), slots=st.integers(1, 3), can_truncate=st.booleans())
def test_whatever_is_done_what_is_told_comes_of_ones_own_and_what_is_lent_is_named(
    seed: int, host: int, slots: int, can_truncate: bool
) -> None:
    house = House(host, slots, can_truncate)
    dice = random.Random(seed)
    blocks = [words("s", 20), words("s", 24), [*words("s", 19), 1]]
    seen: list[tuple[str, list[int], int]] = []
    for _ in range(40):
        name = dice.choice("abcdef")
        principal = {"a": "alice", "b": "alice", "c": "bob"}.get(name, "carol")
        block = dice.choice(blocks)
        named = dice.choice([0, len(block)])
        tokens = [*block, *dice.choices((1, 2), k=dice.randint(1, 4))]
        house.use(name, tokens, principal, named)
        own = max((shared(tokens, one) for who, one, _ in seen if who == principal), default=0)
        others = [one for who, one, size in seen if who != principal and size == named > 0]
        lent = named if any(one[:named] == tokens[:named] for one in others) else 0
        assert house.cached_before - house.placed.lent <= own
        assert house.cached_before <= max(own, lent)
        assert house.placed.lent in (0, named - (house.cached_before - house.placed.lent))
        seen.append((principal, tokens, named))


@pytest.mark.parametrize("same", [WORTH_SHARING - 1, WORTH_SHARING, 30])
def test_what_the_server_has_had_read_serves_everybody_as_far_as_it_is_the_same(same: int) -> None:
    """And nobody is told: it counts as computed."""
    house = House(host=1 << 20, slots=3)
    house.use("warm-up", [*range(30)], THE_SERVER)
    for number, principal in enumerate(("alice", "bob")):
        house.use(principal, [*range(same), 90 + number, 91, 92], principal)
        assert house.cached_before == (same if same >= WORTH_SHARING else 0)
        assert house.placed.lent == house.cached_before


def test_the_longer_one_serves_of_what_the_server_has_and_what_others_have_named() -> None:
    house = House(host=1 << 20, slots=4)
    house.use("warm-up", [*range(20)], THE_SERVER)
    house.use("a", [*range(40), 90], "alice", named=40)
    house.use("b", [*range(40), 91], "bob", named=40)
    assert house.cached_before == 40
    house.use("c", [*range(20), 91], "carol", named=18)
    assert house.cached_before == 20


def test_what_the_server_has_had_read_serves_from_host_memory_and_stays_there_while_it_does() -> None:
    house = House(host=BYTES * 100)
    house.use("warm-up", [*range(30)], THE_SERVER)
    house.use("a", [90, 91], "alice")
    house.use("b", [92, 93], "bob")
    assert house.where("warm-up") is Residency.HOST
    for number in range(20):
        house.use(f"c{number}", [*range(20), *[50 + number] * 20], "carol")
        assert house.cached_before == 20
        assert house.where("warm-up") is Residency.HOST

"""Who gives way when a table is full."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import Overloaded
from tenuto.sessions.shares import Shares

SIZE = 12


@dataclass
class Table:
    """A table of whole places, and which of its entries are at work."""

    size: int = SIZE
    busy: set[int] = field(default_factory=set)
    next: int = 0

    def __post_init__(self) -> None:
        self.shares: Shares[int] = Shares("the table", self.size, lambda key: key not in self.busy)

    def admit(self, principal: str, *, busy: bool = False, now: float = 0.0, weight: int = 1) -> list[int]:
        self.next += 1
        gone = self.shares.admit(self.next, principal, now, 5.0, weight)
        if busy:
            self.busy.add(self.next)
        return gone

    def fill(self, principal: str, count: int, *, busy: bool = False) -> None:
        for _ in range(count):
            assert self.admit(principal, busy=busy) == []


def test_one_principal_may_use_all_that_is_free_and_then_its_own_oldest_gives_way() -> None:
    table = Table()
    table.fill("alice", SIZE)
    table.shares.touch(1)
    assert table.admit("alice") == [2]
    assert len(table.shares) == SIZE


def test_whoever_holds_more_than_a_share_gives_way_to_a_newcomer() -> None:
    table = Table()
    table.fill("alice", SIZE)
    assert [table.admit("bob") for _ in range(SIZE // 2)] == [[n] for n in range(1, SIZE // 2 + 1)]
    assert table.admit("bob") == [SIZE + 1], "alice has no more than her share now"
    assert (table.shares.held("alice"), table.shares.held("bob")) == (SIZE // 2, SIZE // 2)


def test_work_under_way_stays_and_the_newcomer_alone_is_refused() -> None:
    table = Table()
    table.fill("alice", SIZE, busy=True)
    with pytest.raises(Overloaded) as refused:
        table.admit("bob")
    assert refused.value.retry_after_s == 5.0
    assert table.shares.held("alice") == SIZE


def test_a_place_that_falls_free_is_kept_for_who_was_refused_its_share() -> None:
    table = Table()
    table.fill("alice", SIZE, busy=True)
    with pytest.raises(Overloaded):
        table.admit("bob")
    table.shares.remove(1)
    with pytest.raises(Overloaded):
        table.admit("alice", now=1.0)
    assert table.admit("bob", now=5.0) == []
    table.shares.remove(2)
    assert table.admit("alice", now=6.0) == [], "nobody else waits any more"


def test_a_place_is_not_kept_for_ever() -> None:
    table = Table()
    table.fill("alice", SIZE, busy=True)
    with pytest.raises(Overloaded):
        table.admit("bob")
    table.shares.remove(1)
    assert table.admit("alice", now=60.0) == []


def test_an_entry_that_grows_makes_its_own_principal_give_way_first() -> None:
    table = Table()
    table.fill("alice", 6)
    table.fill("bob", 6)
    assert table.shares.settle(6, "alice", 4) == [1, 2, 3]
    assert table.shares.used == SIZE


principals = st.sampled_from(["alice", "bob", "carol", "dave"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), principals, st.booleans(), st.integers(1, 4)),
        st.tuples(st.just("settle"), st.integers(0, 40), st.booleans(), st.integers(1, 4)),
        st.tuples(st.just("remove"), st.integers(0, 40)),
        st.tuples(st.just("rest"), st.integers(0, 40)),
    ),
    max_size=80,
)


@given(steps)
def test_no_busy_entry_and_nobody_within_a_share_ever_gives_way(history: list[tuple[object, ...]]) -> None:
    table = Table()
    owner: dict[int, str] = {}
    weights: dict[int, int] = {}

    def held(principal: str) -> int:
        return sum(weights[key] for key, who in owner.items() if who == principal)

    def gave_way(claimant: str, gone: list[int], without: int = 0) -> None:
        active = {claimant, *owner.values()}
        for who in {owner[key] for key in gone} - {claimant}:
            assert held(who) > SIZE / max(len(active), 1) or held(who) > SIZE / 4
            assert held(who) > held(claimant) - without
        assert not table.busy & set(gone)
        for key in gone:
            del owner[key], weights[key]

    for now, (kind, *values) in enumerate(history):
        known = sorted(owner)
        if kind == "admit":
            principal, busy, weight = str(values[0]), bool(values[1]), int(str(values[2]))
            before = table.shares.used
            try:
                gone = table.admit(principal, busy=busy, now=float(now), weight=weight)
            except Overloaded:
                assert table.shares.used == before
                idle = [key for key in known if owner[key] == principal and key not in table.busy]
                assert sum(weights[key] for key in idle) < before + weight, "its own would have made room"
                continue
            gave_way(principal, gone)
            owner[table.next], weights[table.next] = principal, weight
            assert table.shares.used <= max(SIZE, before)
        elif known:
            key = known[int(str(values[0])) % len(known)]
            if kind == "remove":
                table.shares.remove(key)
                table.busy.discard(key)
                del owner[key], weights[key]
            elif kind == "rest":
                table.busy.discard(key)
            else:
                gave_way(owner[key], table.shares.settle(key, owner[key], int(str(values[2]))), weights[key])
                weights[key] = int(str(values[2]))
        assert table.shares.used == sum(weights.values())
        assert all(table.shares.held(who) == held(who) for who in set(owner.values()))


@given(st.lists(principals, min_size=1, max_size=60))
def test_where_all_are_idle_nobody_is_refused_and_the_shares_are_even(claims: list[str]) -> None:
    table = Table()
    for principal in claims:
        table.admit(principal)
    active = set(claims)
    for principal in active:
        asked = claims.count(principal)
        assert table.shares.held(principal) >= min(asked, SIZE // len(active))

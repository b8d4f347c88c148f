"""Which connections give way when all are taken."""

from dataclasses import dataclass

from tenuto.runtime.http.connection_table import Table

MOST = 10  # nine of them for strangers


@dataclass(eq=False)
class Held:
    holder: str | None = None
    is_busy: bool = False
    since: float = 0.0
    gave_way: bool = False

    def give_way(self) -> None:
        self.gave_way = True


def enter(table: Table, *connections: Held) -> list[bool]:
    return [table.enter(one) for one in connections]


def test_a_request_that_has_not_been_asked_for_its_key_is_not_broken_off_while_a_key_holder_rests() -> None:
    table = Table(MOST)
    resting = [Held("a", since=float(number)) for number in range(MOST - 1)]
    arrived = Held(is_busy=True, since=99.0)
    assert all(enter(table, *resting, arrived, Held()))
    assert not arrived.gave_way
    assert [one.gave_way for one in resting] == [True] + [False] * (MOST - 2)


def test_it_is_not_broken_off_either_where_nobody_rests_and_the_newcomer_is_refused() -> None:
    table = Table(MOST)
    connections = [*(Held("a", is_busy=True) for _ in range(MOST - 1)), Held(is_busy=True)]
    assert all(enter(table, *connections))
    assert enter(table, Held()) == [False]
    assert not any(one.gave_way for one in connections)


def test_strangers_that_hold_all_they_may_give_way_even_while_they_are_served() -> None:
    table = Table(MOST)
    strangers = [Held(is_busy=True, since=float(number)) for number in range(MOST - 1)]
    assert all(enter(table, *strangers, Held()))
    assert [one.gave_way for one in strangers] == [True] + [False] * (MOST - 2)

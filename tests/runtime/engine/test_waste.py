"""Who gives way, and to where: the pure rule. By its own measure it is never worse than the order of last use."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.runtime.engine.estimates import Estimate, Rate
from tenuto.runtime.engine.messages import Residency
from tenuto.runtime.engine.waste import (
    DOWNWARD,
    MOST_WAIT_S,
    Cache,
    Speeds,
    going,
    in_order,
    left_s,
    place_of,
    waste,
)

SLOT = 1 << 30
sizes = st.integers(0, SLOT)
speeds = st.builds(
    Speeds,
    st.floats(1e6, 1e11),
    st.floats(1e6, 1e11),
    st.floats(1e6, 1e10),
    st.floats(1.0, 1e6),
    st.floats(0, 1),
    st.floats(0, 1),
)
waits = st.floats(0, MOST_WAIT_S)


@st.composite
def caches(draw: st.DrawFn, at: Residency | None = None, name: str = "a") -> Cache:
    nbytes = draw(sizes)
    tokens = draw(st.integers(0, 1 << 17)) if nbytes else 0
    return Cache(
        name,
        at or draw(st.sampled_from([Residency.DEVICE, Residency.HOST])),
        SLOT,
        nbytes,
        tokens,
        draw(waits),
        draw(st.none() | st.floats(0, 1)),
        draw(st.booleans()),
        draw(st.integers(0, tokens)),
    )


on_device = st.integers(1, 12).flatmap(
    lambda count: st.tuples(*(caches(Residency.DEVICE, f"s{number}") for number in range(count)))
)


def wasted(caches: tuple[Cache, ...], leaves: str, place: Residency, speeds: Speeds, beside: int) -> float:
    """What all of them waste where one leaves for a place and the others stay."""
    return sum(waste(one, place if one.id == leaves else one.at, speeds, beside) for one in caches)


@given(on_device, speeds, sizes)
def test_it_never_wastes_more_than_if_the_least_recently_used_went(
    caches: tuple[Cache, ...], speeds: Speeds, beside: int
) -> None:
    first = in_order(caches, speeds, beside)[0]
    mine = wasted(caches, first.id, first.place, speeds, beside)
    oldest = caches[0]
    places = [Residency.NONE]
    places += [Residency.HOST] if oldest.host is not None else []
    places += [Residency.DISK] if oldest.disk else []
    for place in places:
        theirs = wasted(caches, oldest.id, place, speeds, beside)
        assert mine <= theirs * (1 + 1e-9) + 1e-3


@given(caches(), waits, speeds, sizes)
def test_the_longer_it_waits_the_further_down_it_goes_and_the_sooner(
    cache: Cache, longer: float, speeds: Speeds, beside: int
) -> None:
    later = replace(cache, wait_s=max(cache.wait_s, longer))
    assert DOWNWARD.index(place_of(later, speeds, beside)) >= DOWNWARD.index(place_of(cache, speeds, beside))
    before, after = going(cache, speeds, beside), going(later, speeds, beside)
    assert after.gain >= before.gain - 1e-9 * abs(before.gain)
    assert DOWNWARD.index(after.place) >= DOWNWARD.index(before.place)


@given(on_device, speeds, sizes)
def test_it_orders_all_and_always_alike(caches: tuple[Cache, ...], speeds: Speeds, beside: int) -> None:
    ordered = in_order(caches, speeds, beside)
    assert sorted(one.id for one in ordered) == sorted(one.id for one in caches)
    assert ordered == in_order(caches, speeds, beside)
    for one in ordered:
        cache = next(each for each in caches if each.id == one.id)
        assert one.place in (Residency.HOST, Residency.DISK, Residency.NONE)
        assert one.place is not Residency.HOST or cache.host is not None
        assert one.place is not Residency.DISK or cache.disk


@given(caches(Residency.DEVICE), st.integers(2, 6), speeds, sizes)
def test_of_those_that_are_alike_the_least_recently_used_goes_first(
    cache: Cache, count: int, speeds: Speeds, beside: int
) -> None:
    alike = [replace(cache, id=f"s{number}") for number in range(count)]
    assert [one.id for one in in_order(alike, speeds, beside)] == [one.id for one in alike]


def cache(**told: object) -> Cache:
    told = {"nbytes": 1 << 20, "tokens": 1000, "wait_s": 1.0, "host": 0.0} | told
    return Cache("a", Residency.DEVICE, SLOT, **told)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "place"),
    [
        (cache(wait_s=0.0), Residency.DEVICE),
        (cache(), Residency.HOST),
        (cache(host=None, disk=True), Residency.DISK),
        (cache(host=None), Residency.NONE),
        (cache(tokens=1), Residency.NONE),
        (cache(host=1.0, wait_s=3600.0, disk=True), Residency.DISK),
    ],
    ids=["comes at once", "comes soon", "no host memory", "neither", "computed at once", "host memory is wanted"],
)
def test_a_cache_goes_where_it_wastes_least(one: Cache, place: Residency) -> None:
    assert place_of(one, Speeds(step_s=0.0), 0) is place


@pytest.mark.parametrize(("written", "place"), [(1000, Residency.DISK), (800, Residency.HOST), (0, Residency.HOST)])
def test_one_that_is_written_whole_is_not_copied_while_many_stand_still(written: int, place: Residency) -> None:
    assert place_of(cache(disk=True, written=written), Speeds(), beside=1 << 30) is place


@given(waits, waits, waits)
def test_what_is_left_of_a_wait_is_never_less_than_what_is_expected(
    expected: float, spread: float, gone: float
) -> None:
    left = left_s(expected, spread, gone)
    assert max(expected - gone, 0) <= left <= MOST_WAIT_S


def test_who_is_overdue_is_expected_ever_later() -> None:
    assert [left_s(10, 1, gone) for gone in (0, 5, 9.5, 10, 15, 100)] == [10, 5, 1, 1, 5, 90]


@pytest.mark.parametrize(
    "wrong",
    [
        {"nbytes": -1},
        {"nbytes": SLOT + 1},
        {"wait_s": -1.0},
        {"wait_s": float("nan")},
        {"host": 2.0},
        {"written": 1001},
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"cannot be|no cache|than there is"):
        cache(**wrong)


def test_speeds_at_which_nothing_ends_are_refused() -> None:
    with pytest.raises(ValueError, match="come to an end"):
        Speeds(out=0.0)


# Estimates.


def test_an_estimate_follows_what_is_measured_and_says_how_sure_it_is() -> None:
    estimate = Estimate(10.0)
    assert (estimate.expected_s, estimate.spread_s) == (10.0, 10.0)
    estimate.add(2.0)
    assert (estimate.expected_s, estimate.spread_s) == (2.0, 2.0)
    for _ in range(50):
        estimate.add(2.0)
    assert estimate.expected_s == pytest.approx(2.0)
    assert estimate.spread_s < 0.05
    for _ in range(50):
        estimate.add(6.0)
    assert estimate.expected_s == pytest.approx(6.0, rel=0.05)


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_an_estimate_stays_within_what_was_measured(seconds: list[float]) -> None:
    estimate = Estimate(1.0)
    for one in seconds:
        estimate.add(one)
    assert min(seconds) - 1e-6 <= estimate.expected_s <= max(seconds) + 1e-6
    assert 0 <= estimate.spread_s <= max(seconds) + 1e-6


def test_what_is_small_says_little_of_how_fast_something_goes() -> None:
    rate = Rate(1e9)
    rate.add(100, 0.001)
    assert rate.per_s > 0.9e9
    for _ in range(100):
        rate.add(1e8, 1.0)
    assert rate.per_s == pytest.approx(1e8, rel=0.01)
    rate.add(0, 1.0)
    rate.add(5, -1.0)
    assert rate.per_s == pytest.approx(1e8, rel=0.01)

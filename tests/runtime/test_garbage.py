"""A garbage collection takes no longer than the last one that was long, however much is in memory."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from tenuto.runtime.garbage import Collector


class Node:
    """What refers to itself, so that no last reference frees it."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def collector() -> Iterator[Collector]:
    gc.unfreeze()
    collector = Collector(long_s=0.0)
    yield collector
    collector.close()
    gc.unfreeze()


def test_what_a_long_collection_found_alive_is_not_looked_at_again(collector: Collector) -> None:
    kept = [Node() for _ in range(1000)]
    collector.settle()
    more = [Node() for _ in range(1000)]
    gc.collect()
    looked_at = {id(one) for one in gc.get_objects()}
    assert not looked_at.intersection(map(id, (*kept, *more)))


def test_a_short_collection_sets_nothing_aside() -> None:
    gc.unfreeze()
    collector = Collector(long_s=60.0)
    kept = [Node() for _ in range(10)]
    try:
        gc.collect()
    finally:
        collector.close()
    assert gc.get_freeze_count() == 0
    assert kept


def test_a_cycle_that_died_while_it_was_set_aside_is_freed_at_rest(collector: Collector) -> None:
    node: Node | None = Node()
    died = weakref.ref(node)
    gc.collect()
    node = None
    gc.collect()
    assert died() is not None
    collector.rest()
    assert died() is None


def test_requests_that_are_under_way_are_not_looked_at_time_and_again() -> None:
    before = gc.get_threshold()
    collector = Collector()
    assert gc.get_threshold()[0] > before[0]
    collector.close()
    assert gc.get_threshold() == before

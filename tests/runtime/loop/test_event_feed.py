"""What follows a run reads its events in order, and those together that are there together."""

import asyncio

import pytest

from tenuto.runtime.loop.event_feed import AT_ONCE, EventFeed
from tenuto.runtime.loop.events import RunEvent, TextAdded

pytestmark = pytest.mark.asyncio


def pieces(count: int, start: int = 0) -> list[RunEvent]:
    return [TextAdded(1, str(number)) for number in range(start, start + count)]


async def test_what_is_there_is_told_together_and_what_comes_later_by_itself() -> None:
    feed, ended = EventFeed(), False
    batches = feed.batches(0, lambda: len(feed) if ended else None)
    for event in pieces(3):
        feed.append(event)
    assert await anext(batches) == pieces(3)
    waiting = asyncio.ensure_future(anext(batches))
    await asyncio.sleep(0)
    assert not waiting.done()
    feed.append(pieces(1, 3)[0])
    feed.wake()
    assert await asyncio.wait_for(waiting, 5) == pieces(1, 3)
    ended = True
    assert [events async for events in batches] == []


async def test_whoever_has_missed_many_gets_them_in_parts() -> None:
    feed = EventFeed()
    told = pieces(2 * AT_ONCE + 1)
    for event in told:
        feed.append(event)
    batches = [events async for events in feed.batches(0, lambda: len(feed))]
    assert [len(events) for events in batches] == [AT_ONCE, AT_ONCE, 1]
    assert [event for events in batches for event in events] == told


async def test_a_batch_ends_where_the_leg_ends_though_the_run_goes_on() -> None:
    feed = EventFeed()
    for event in pieces(5):
        feed.append(event)
    assert [events async for events in feed.batches(1, lambda: 3)] == [pieces(2, 1)]
    assert [number async for number, _ in feed.follow(1, lambda: 3)] == [2, 3]


async def test_what_is_held_is_told_to_nobody_who_reads_in_batches() -> None:
    feed = EventFeed()
    feed.hold()
    for event in pieces(2):
        feed.append(event)
    batches = feed.batches(0, lambda: None)
    waiting = asyncio.ensure_future(anext(batches))
    feed.wake()
    await asyncio.sleep(0)
    assert not waiting.done()
    feed.tell(1)
    assert await asyncio.wait_for(waiting, 5) == pieces(1)


async def test_all_who_wait_are_woken_and_who_has_left_is_not_missed() -> None:
    feed = EventFeed()
    waiting = [asyncio.ensure_future(feed.changed()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    feed.wake()
    await asyncio.wait(waiting, timeout=5)
    assert [one.cancelled() for one in waiting] == [False, True, False]

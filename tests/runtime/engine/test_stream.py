import asyncio

import anyio
import pytest

from tenuto.runtime.engine.messages import Failed, RoundEvent, RoundUsage, Sampled, StopCause, Stopped
from tenuto.runtime.engine.stream import Outlet, RoundStream

TOKENS = [Sampled("s", (number,)) for number in range(5)]
STOPPED = Stopped("s", StopCause.END, RoundUsage())
FAILED = Failed("s", "why", RoundUsage())


async def read(stream: RoundStream) -> list[RoundEvent]:
    return [event async for event in stream]


@pytest.mark.parametrize("end", [STOPPED, FAILED])
async def test_events_come_in_order_and_end_with_the_last(end: RoundEvent) -> None:
    stream = RoundStream(lambda _: None)
    reader = asyncio.create_task(read(stream))
    for event in (*TOKENS, end):
        stream.put(event)
        await asyncio.sleep(0)
    with anyio.fail_after(5):
        assert await reader == [*TOKENS, end]
        assert await read(stream) == []  # and do not come again


async def test_a_reader_that_was_cancelled_loses_nothing() -> None:
    stream = RoundStream(lambda _: None)
    seen: list[RoundEvent] = []

    async def follow() -> None:
        async for event in stream:
            seen.append(event)  # noqa: PERF401 -- what was seen before the cancel counts

    stream.put(TOKENS[0])
    reader = asyncio.create_task(follow())
    await asyncio.sleep(0)
    stream.put(TOKENS[1])  # it has been woken, and is cancelled before it runs
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    stream.put(STOPPED)
    with anyio.fail_after(5):
        await follow()
    assert seen == [*TOKENS[:2], STOPPED]


def test_events_for_a_loop_that_is_closed_are_dropped() -> None:
    async def make() -> Outlet:
        return Outlet(lambda events: None, lambda: None)

    outlet = asyncio.run(make())
    outlet.send([STOPPED])
    outlet.end()

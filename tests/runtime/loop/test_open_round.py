import asyncio

import anyio
import pytest

from tenuto.pipelines.backend import Sampling
from tenuto.runtime.engine.messages import (
    Failed,
    Round,
    RoundEvent,
    RoundUsage,
    StopCause,
    Stopped,
    Submit,
    TokensSampled,
)
from tenuto.runtime.loop.open_round import OpenRound
from tenuto.sessions.tokens import NOTHING
from tests.patience import HANGS_S

TOKENS = [TokensSampled("s", (number,)) for number in range(5)]
STOPPED = Stopped("s", StopCause.END, RoundUsage())
FAILED = Failed("s", "why", RoundUsage())


def an_open_round() -> OpenRound:
    return OpenRound(Submit("s", "alice", NOTHING, [1], Round(8, Sampling(), frozenset())), None, lambda command: None)


async def read(opened: OpenRound) -> list[RoundEvent]:
    return [event async for event in opened]


@pytest.mark.parametrize("end", [STOPPED, FAILED])
async def test_events_come_in_order_and_end_with_the_last(end: RoundEvent) -> None:
    opened = an_open_round()
    reader = asyncio.create_task(read(opened))
    for event in (*TOKENS, end):
        opened.put(event)
        await asyncio.sleep(0)
    with anyio.fail_after(HANGS_S):
        assert await reader == [*TOKENS, end]
        assert await read(opened) == []  # and do not come again


async def test_a_reader_that_was_cancelled_loses_nothing() -> None:
    opened = an_open_round()
    seen: list[RoundEvent] = []

    async def follow() -> None:
        async for event in opened:
            seen.append(event)  # noqa: PERF401 -- what was seen before the cancel counts

    opened.put(TOKENS[0])
    reader = asyncio.create_task(follow())
    await asyncio.sleep(0)
    opened.put(TOKENS[1])  # it has been woken, and is cancelled before it runs
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    opened.put(STOPPED)
    with anyio.fail_after(HANGS_S):
        await follow()
    assert seen == [*TOKENS[:2], STOPPED]

"""A round whose reader does not read is blocked: it piles nothing up, and keeps nobody else waiting."""

import asyncio

import anyio

from tenuto.runtime.engine.messages import WINDOW, State
from tenuto.runtime.loop.open_round import OpenRound
from tests.patience import HANGS_S
from tests.runtime.engine.rig import Make, Rig, round_of

LONG = "word " * 600
RULES = [{"user": "long", "text": LONG}]


async def unread(rig: Rig) -> OpenRound:
    """A long round in a slot, that has got as far as it gets while nobody reads."""
    stream = rig.engine.submit("slow", rig.prompt("long"), round_of(max_tokens=10_000), principal="alice")
    rig.rounds["slow"] = stream
    with anyio.fail_after(HANGS_S):
        while not rig.count(State.BLOCKED):  # noqa: ASYNC110  (a thread's doing)
            await asyncio.sleep(0.01)
    return stream


async def test_an_engine_waits_for_a_reader_that_does_not_read(make: Make) -> None:
    rig = make(RULES, slots=1)
    stream = await unread(rig)
    assert rig.engine.status.sampled == WINDOW
    reading = rig.read(stream, [])
    await reading.stopped()
    assert reading.tokens == rig.answer(LONG)


async def test_a_round_that_is_held_leaves_its_slot_to_others_and_goes_on_where_it_was(make: Make) -> None:
    rig = make(RULES, slots=1)
    stream = await unread(rig)
    other = rig.begin("other", rig.prompt("Hello!"), principal="bob")
    await other.stopped()
    assert other.tokens == rig.answer("Hello!")
    reading = rig.read(stream, [])
    await reading.stopped()
    assert reading.tokens == rig.answer(LONG)


async def test_a_round_that_is_held_can_be_cancelled(make: Make) -> None:
    rig = make(RULES, slots=1)
    stream = await unread(rig)
    rig.cancel("slow")
    reading = rig.read(stream, [])
    end = await reading.stopped()
    assert len(reading.tokens) == end.usage.sampled

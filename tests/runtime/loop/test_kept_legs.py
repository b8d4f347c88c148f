"""Legs that can be asked for again: what they tell is the same each time, and what comes after them goes on there."""

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest

from tenuto.errors import Conflict, LegNotFound, SessionBusy, StoreFailed
from tenuto.runtime.loop.events import RunDone, RunEvent, RunPaused, TextAdded
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.past_leg import PastLeg
from tenuto.runtime.loop.requests import KeepAs
from tenuto.sessions.changes import Change
from tenuto.sessions.items import AssistantItem, SystemItem, ToolResultItem, UserItem
from tenuto.sessions.records import RunStatus
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import ALICE, PATIENCE_S, answer, asks, call, client_tools, says, until

KEPT = KeepAs({"of": "front end"})
DETACHED = KeepAs({}, is_detached=True)
TICKS = " ".join(["tick"] * 40)


async def told(leg: Follower | PastLeg) -> list[RunEvent]:
    with anyio.fail_after(PATIENCE_S):
        return [event async for _, event in leg.events()]


def text(events: list[RunEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextAdded))


async def test_a_leg_tells_the_same_events_after_a_restart(open_process: Open) -> None:
    process = await open_process(asks("count", call("count__add", by=1), text="first"), says("hi", "a long answer"))
    for said in ("count", "hi"):
        run = await process.start(said, None, keep_as=KEPT)
        before, first = await told(run), await answer(run)
        later = await open_process(left=process.url)
        leg = await later.runner.leg(ALICE, run.leg_id)
        assert await told(leg) == before == leg.told()
        again = leg.snapshot()
        assert (again.text, again.status, again.usage) == (first.text, first.status, first.usage)
        assert leg.kept is not None
        assert leg.kept.request == {"of": "front end"}
        await later.stop()


async def test_a_leg_that_is_not_to_be_kept_is_not_found(open_process: Open) -> None:
    process = await open_process(says("hi", "ho"))
    for run in (await process.start("hi"), await process.start("hi", None, stored=False, keep_as=KEPT)):
        await answer(run)
        with pytest.raises(LegNotFound):
            await process.runner.leg(ALICE, run.leg_id)


async def test_each_leg_of_a_run_is_kept_as_it_was(open_process: Open) -> None:
    process = await open_process(asks("the weather", call("weather", city="Ulm")), {"tool": "sun", "text": "hat"})
    first = await process.start("the weather", None, tools=client_tools(), keep_as=KEPT)
    (wanted,) = (await answer(first)).calls
    result = ToolResultItem(wanted.id, "", "sun")
    second = await process.start([result], None, after=first.leg_id, tools=client_tools(), keep_as=KEPT)
    assert (await answer(second)).text == "hat"
    assert second.id == first.id
    assert second.leg_id != first.leg_id
    ends = [(await told(await process.runner.leg(ALICE, one.leg_id)))[-1] for one in (first, second)]
    assert isinstance(ends[0], RunPaused)
    assert isinstance(ends[1], RunDone)
    brought = [await process.runner.brought(ALICE, one.leg_id) for one in (first, second)]
    assert [type(item) for items in brought for item in items] == [UserItem, ToolResultItem]


async def test_a_detached_leg_that_waits_goes_on_after_a_crash(open_process: Open, tmp_path: Path) -> None:
    rules = asks("the weather", call("weather", city="Ulm")), {"tool": "sun", "text": "hat"}
    process = await open_process(*rules)
    run = await process.start("the weather", None, tools=client_tools(), keep_as=DETACHED)
    (wanted,) = (await answer(run)).calls
    later = await open_process(*rules, left=process.left_behind(tmp_path))
    before = await told(await later.runner.leg(ALICE, run.leg_id))
    assert isinstance(before[-1], RunPaused)
    result = ToolResultItem(wanted.id, "", "sun")
    second = await later.start([result], None, after=run.leg_id, tools=client_tools(), keep_as=DETACHED)
    assert (await answer(second)).text == "hat"


async def test_an_end_that_the_disk_did_not_take_is_told_when_it_is_kept(
    open_process: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = says("hi", TICKS, delay_ms=5)
    process = await open_process(rule)
    run = await process.start("hi", None, keep_as=DETACHED)
    await until(run, TextAdded)

    def full(*_: object) -> Any:
        raise StoreFailed("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(process.store, "begin", full)
        stands = await answer(run)
        assert stands.status is RunStatus.RUNNING, "a crash would undo the end"
        seen = await told(await process.runner.leg(ALICE, run.leg_id))
        assert not any(isinstance(event, RunDone) for event in seen)
        left = process.left_behind(tmp_path)
    await process.runner.expire_pauses()
    events = await told(await process.runner.leg(ALICE, run.leg_id))
    assert events[: len(seen)] == seen
    assert isinstance(events[-1], RunDone)
    later = await open_process(left=process.url)
    leg = await later.runner.leg(ALICE, run.leg_id)
    assert text(await told(leg)) == text(events) == TICKS
    assert leg.snapshot().status is RunStatus.FAILED
    crashed = await (await open_process(rule, left=left)).runner.leg(ALICE, run.leg_id)
    events = await told(crashed)
    assert (text(events), crashed.snapshot().status) == (TICKS, RunStatus.COMPLETED)
    assert events[: len(seen)] == seen


async def test_two_who_follow_a_detached_leg_are_told_the_same(open_process: Open) -> None:
    process = await open_process(says("hi", TICKS, delay_ms=5))
    run = await process.start("hi", None, keep_as=DETACHED)
    found: list[list[RunEvent]] = []

    async def follow() -> None:
        found.append(await told(await process.runner.leg(ALICE, run.leg_id)))

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        await until(run, TextAdded)
        group.start_soon(follow)
    assert found[0] == found[1]
    assert text(found[0]) == TICKS


async def test_a_cancel_beside_the_end_gives_the_one_end(open_process: Open) -> None:
    process = await open_process(says("hi", "ho"))
    for _ in range(10):
        run = await process.start("hi", None, keep_as=DETACHED)
        legs: list[Follower | PastLeg] = []

        async def cancel(id: str = run.leg_id, legs: list[Follower | PastLeg] = legs) -> None:
            legs.append(await process.runner.cancel_leg(ALICE, id))

        async with anyio.create_task_group() as group:
            group.start_soon(cancel)
            group.start_soon(cancel)
        kept = await process.store.leg(run.leg_id)
        assert kept is not None
        assert {leg.snapshot().status for leg in legs} == {kept.status}
        assert kept.status in (RunStatus.COMPLETED, RunStatus.CANCELLED)


async def test_a_leg_is_forgotten_and_its_session_stays(open_process: Open) -> None:
    process = await open_process(says("hi", "tick " * 400, delay_ms=20))
    run = await process.start("hi", keep_as=DETACHED)
    await process.runner.forget_leg(ALICE, run.leg_id)
    runner = process.runner
    asks_again: list[Any] = [runner.leg, runner.forget_leg, runner.cancel_leg, runner.brought]
    for ask in asks_again:
        with pytest.raises(LegNotFound):
            await ask(ALICE, run.leg_id)
    session = await process.session()
    assert (session.open_run, session.items[0]) == (None, UserItem("hi"))
    assert await process.store.told(run.leg_id) == []
    await process.runner.delete_session(ALICE, "s")


async def test_nothing_comes_after_a_leg_that_is_under_way(open_process: Open) -> None:
    process = await open_process(says("hi", "tick " * 400, delay_ms=20))
    run = await process.start("hi", None, keep_as=DETACHED)
    with pytest.raises(SessionBusy):
        await process.start("more", None, after=run.leg_id)
    await process.cancel(run)
    assert (await process.ask("more", None, after=run.leg_id)).session_id == run.session_id


async def test_nothing_comes_after_an_end_that_the_session_does_not_have_yet(
    open_process: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await open_process(says("hi", "ho"))
    begin = process.store.begin

    def late(*changes: Change) -> "asyncio.Future[None]":
        """The store tells of its commits a while after they are done."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[None] = loop.create_future()
        begin(*changes).add_done_callback(lambda _: loop.call_later(0.3, told.set_result, None))
        return told

    with monkeypatch.context() as slow:
        slow.setattr(process.store, "begin", late)
        run = await process.start("hi", None, keep_as=KEPT)
        with anyio.fail_after(PATIENCE_S):
            kept = await process.store.leg(run.leg_id)
            while kept is None or kept.until is None:
                kept = await process.store.leg(run.leg_id)
        with pytest.raises(SessionBusy):
            await process.start("more", None, after=run.leg_id)
    await answer(run)
    after = await process.ask("more", None, after=run.leg_id)
    assert await process.items(after.session_id) == [
        UserItem("hi"),
        AssistantItem("ho"),
        UserItem("more"),
        AssistantItem("more"),
    ]


async def test_what_comes_after_other_instructions_leaves_the_session_as_it_is(open_process: Open) -> None:
    process = await open_process()
    brief = SystemItem("Be brief.")
    first = await process.start([brief, UserItem("one")], None, is_instructed=True, keep_as=KEPT)
    await answer(first)
    same = await process.start([brief, UserItem("two")], None, is_instructed=True, after=first.leg_id, keep_as=KEPT)
    assert (await answer(same)).session_id == first.session_id
    other = await process.start("three", None, after=same.leg_id, keep_as=KEPT)
    assert (await answer(other)).session_id != first.session_id
    said = [UserItem("one"), AssistantItem("one"), UserItem("two"), AssistantItem("two")]
    assert await process.items(first.session_id) == [brief, *said]
    assert await process.items(other.session_id) == [*said, UserItem("three"), AssistantItem("three")]
    assert [*await process.runner.brought(ALICE, other.leg_id)] == [UserItem("three")]


async def test_a_fork_of_a_fork_has_what_was_said_up_to_there(open_process: Open) -> None:
    process = await open_process()
    last = await process.start("0", None, keep_as=KEPT)
    await answer(last)
    legs = [last.leg_id]
    for depth in range(1, 4):
        for leaf in ("a", "b"):
            last = await process.start(f"{depth}{leaf}", None, after=legs[-1], keep_as=KEPT)
            await answer(last)
        legs.append(last.leg_id)
    users = [item.text for item in await process.items(last.session_id) if isinstance(item, UserItem)]
    assert users == ["0", "1b", "2b", "3b"]


async def test_an_end_that_was_cut_from_its_session_is_not_gone_on_from(open_process: Open) -> None:
    process = await open_process()
    run = await process.start("one", keep_as=KEPT)
    events = await told(run)
    await answer(run)
    await process.ask([UserItem("other"), AssistantItem("x"), UserItem("more")])
    with pytest.raises(Conflict):
        await process.start("two", None, after=run.leg_id)
    with pytest.raises(Conflict):
        await process.runner.brought(ALICE, run.leg_id)
    assert await told(await process.runner.leg(ALICE, run.leg_id)) == events

"""The paragraph `Cancel and disconnect`: how a run is stopped, what is kept of it, and who may follow it afterwards."""

import asyncio
import gc
import sqlite3
import weakref
from contextlib import closing, suppress

import anyio
import pytest

from tenuto.errors import NotFound, ShuttingDown
from tenuto.runtime.engine.messages import State
from tenuto.runtime.loop.events import RoundEnded, RunDone, TextAdded, ToolReturned
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.schema.runs import run_answer
from tenuto.sessions.items import AssistantItem, ToolResultItem, UserItem
from tenuto.sessions.principal import Principal
from tenuto.sessions.records import RunStatus
from tenuto.tools.approvals import Rules
from tests.patience import HANGS_S
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import ALICE, Clock, answer, asks, call, client_tools, events, says, turn, until
from tests.runtime.loop.test_match import SLOW, waits_for
from tests.runtime.loop.test_one_open_run import TWO
from tests.runtime.loop.tools import Tools

pytestmark = pytest.mark.every_engine

LONG = says("long", "x" * 3000, delay_ms=1)
SLOWLY = says("long", "x" * 3000, delay_ms=250)
"""Steps so slow that no thread of a busy machine is late by one."""
BOTH = asks("both", call("count__add", by=1), call("slow__wait", name="it"), call("weather", city="Oslo"))
STEPS = 3
"""A cancel is seen before a step, and its stop is told after it; one more may be under way when it is asked for."""


async def test_a_cancelled_run_stops_within_a_step(open_process: Open) -> None:
    process = await open_process(SLOWLY)
    run = await process.start("long")
    await until(run, TextAdded)
    engine = process.models.default.engine
    before = engine.status.steps
    await process.cancel(run)
    assert engine.status.steps - before <= STEPS
    after = engine.status.steps
    assert (await process.ask("hi", "other")).text == "hi"
    sampled = len("hi") + 1
    assert engine.status.steps - after <= sampled + 8, "nothing of it goes on beside the next run"


async def test_the_partial_text_is_kept_as_incomplete(open_process: Open) -> None:
    process = await open_process(LONG)
    run = await process.start("long")
    await until(run, TextAdded)
    await process.cancel(run)
    done = await answer(run)
    assert (done.status, done.stop_reason) == (RunStatus.CANCELLED, "cancelled")
    assert await process.items() == [UserItem("long"), AssistantItem(done.text, incomplete=True)]
    assert 0 < len(done.text) < 3000


async def test_the_sequence_goes_on_from_where_it_was_stopped(open_process: Open) -> None:
    process = await open_process(LONG)
    run = await process.start("long")
    await until(run, TextAdded)
    await process.cancel(run)
    again = await process.ask("hi")
    resumed = again.usage.rounds[0]
    assert resumed.miss_reason is None
    assert resumed.computed == resumed.new == len("|") + len("|hi|") + len("|") + 1
    assert f"{run.snapshot().text}<|end|><|user|>hi" in await process.tokens()


async def test_a_run_that_is_cancelled_before_it_has_said_anything_leaves_its_question(open_process: Open) -> None:
    process = await open_process(LONG)
    run = await process.start("long")
    await process.cancel(run)
    items = await process.items()
    assert items[0] == UserItem("long")
    assert len(items) <= 2
    assert run.record.status is RunStatus.CANCELLED
    assert (await process.ask("hi")).text == "hi"


async def test_calls_under_way_are_cancelled_at_their_servers(open_process: Open, tools: Tools) -> None:
    process = await open_process(SLOW)
    run = await process.start("slow")
    await waits_for(tools)
    await process.cancel(run)
    assert tools.slow.cancelled == 1
    assert (await process.items())[-1].text == "cancelled; it may have had an effect"


async def test_finished_results_are_kept_and_the_others_say_why_they_are_none(open_process: Open, tools: Tools) -> None:
    process = await open_process(BOTH)
    run = await process.start("both", tools=client_tools(servers={"count": None, "slow": None}))
    await until(run, ToolReturned)
    await waits_for(tools)
    await process.cancel(run)
    texts = [one.text for one in await process.items() if isinstance(one, ToolResultItem)]
    assert texts == [
        "1",
        "cancelled; it may have had an effect",
        "not executed: the run was cancelled",
    ]
    assert [(one.name, one.status) for one in run.snapshot().server_calls] == [("count__add", "completed")]
    assert (await process.ask("hi")).text == "hi"


async def test_a_run_that_waits_is_cancelled_too(open_process: Open) -> None:
    process = await open_process(TWO)
    paused = await process.ask("weather?", tools=client_tools())
    run = await process.runner.run(ALICE, paused.run_id)
    await process.cancel(run)
    assert (run.record.status, run.record.stop_reason) == (RunStatus.CANCELLED, "cancelled")
    assert (await events(run))[-1] == RunDone(RunStatus.CANCELLED, "cancelled")
    texts = [one.text for one in await process.items() if isinstance(one, ToolResultItem)]
    assert texts == ["not executed: the run was cancelled"] * 2
    assert (await process.ask("hi")).text == "hi"


async def test_cancelling_what_has_ended_changes_nothing(open_process: Open) -> None:
    process = await open_process()
    done = await process.ask("hi")
    run = await process.runner.run(ALICE, done.run_id)
    before = run.record
    await process.cancel(run)
    await process.cancel(run)
    assert run.record == before
    assert (await process.runner.run(ALICE, done.run_id)).record.status is RunStatus.COMPLETED


async def test_two_who_cancel_at_once_both_hear_of_the_end(open_process: Open, tools: Tools) -> None:
    process = await open_process(SLOW)
    run = await process.start("slow")
    await waits_for(tools)
    with anyio.fail_after(HANGS_S):
        async with anyio.create_task_group() as group:
            group.start_soon(process.cancel, run)
            group.start_soon(process.cancel, run)
    assert run.record.status is RunStatus.CANCELLED


async def test_a_cancel_that_meets_a_pause_ends_the_run(open_process: Open, tools: Tools) -> None:
    mixed = asks("both", call("slow__wait", name="it"), call("weather", city="Oslo"))
    process = await open_process(mixed)
    run = await process.start("both", tools=client_tools(servers={"slow": None}))
    await waits_for(tools)
    tools.slow.go.set()
    await until(run, ToolReturned)
    await process.cancel(run)
    assert run.record.status is RunStatus.CANCELLED
    assert (await process.session()).open_run is None
    assert await process.store.open_runs() == []


async def test_a_cancel_that_comes_while_the_end_is_being_kept_is_too_late(open_process: Open) -> None:
    process = await open_process(says("hi", "ho" * 50, delay_ms=1))
    run = await process.start("hi")
    await until(run, TextAdded)
    with closing(sqlite3.connect(process.url.removeprefix("sqlite:///"))) as other:
        other.execute("BEGIN IMMEDIATE")  # so that no commit goes through
        await until(run, RoundEnded)
        async with anyio.create_task_group() as group:
            group.start_soon(process.cancel, run)
            await anyio.lowlevel.checkpoint()
            other.rollback()
    assert run.record.status is RunStatus.COMPLETED
    assert await process.items() == [UserItem("hi"), AssistantItem("ho" * 50)]
    assert (await process.session()).open_run is None


async def test_a_client_that_goes_away_takes_its_run_with_it(open_process: Open) -> None:
    process = await open_process(LONG)
    run = await process.start("long")
    await until(run, TextAdded)
    with anyio.fail_after(HANGS_S):
        await run.disconnected()
    assert run.record.status is RunStatus.CANCELLED
    assert process.models.default.engine.status.sequences[State.DECODING] == 0


@pytest.mark.parametrize("configured", [{}, {"count": Rules()}], ids=["client_tool", "approval"])
async def test_a_run_that_waits_does_not_need_its_client(open_process: Open, configured: dict[str, Rules]) -> None:
    process = await open_process(TWO, asks("count", call("count__add", by=1)), configured=configured)
    if configured:
        paused = await process.ask("count", wants_events=True)
    else:
        paused = await process.ask("weather?", tools=client_tools())
    run = await process.runner.run(ALICE, paused.run_id)
    with anyio.fail_after(HANGS_S):
        await Follower(run).disconnected()
    assert run.record.status is RunStatus.PAUSED


async def test_whoever_only_watches_holds_nothing(open_process: Open, tools: Tools) -> None:
    process = await open_process(SLOW)
    run = await process.start("slow")
    await waits_for(tools)
    watched = await process.runner.run(ALICE, run.id)
    with anyio.fail_after(HANGS_S):
        async for _, _ in watched.events():
            break
        await run.disconnected()
    assert run.record.status is RunStatus.CANCELLED


async def test_a_paused_run_can_be_followed_in_another_process(open_process: Open) -> None:
    process = await open_process(TWO)
    paused = await process.ask("weather?", tools=client_tools())
    later = await open_process(left=process.url)
    run = await later.runner.run(ALICE, paused.run_id)
    assert (await events(run))[-1] == paused.pause
    assert run.status is RunStatus.PAUSED


async def test_a_run_that_has_ended_can_be_followed_in_another_process(open_process: Open) -> None:
    process = await open_process(asks("count", call("count__add", by=1), text="Well."))
    done = await process.ask("count")
    later = await open_process(left=process.url)
    run = await later.runner.run(ALICE, done.run_id)
    assert (await events(run))[-1] == RunDone(RunStatus.COMPLETED, "end")
    assert await answer(run) == done
    described = run_answer(run)
    assert (described.status, described.text) == (RunStatus.COMPLETED, "Well.1")
    assert described.usage.completion_tokens == done.usage.completion


async def test_a_run_that_ended_long_ago_leaves_the_memory(open_process: Open, clock: Clock) -> None:
    process = await open_process()
    run_id = (await process.ask("one")).run_id
    in_memory = weakref.ref(await process.runner.run(ALICE, run_id))
    await process.runner.expire_sessions()
    assert in_memory() is not None
    clock.now += 3600
    await process.runner.expire_sessions()
    gc.collect()
    assert in_memory() is None
    assert (await answer(await process.runner.run(ALICE, run_id))).text == "one"


async def test_a_session_that_is_deleted_while_a_run_begins_takes_the_run_with_it(
    open_process: Open, caplog: pytest.LogCaptureFixture
) -> None:
    process = await open_process(LONG)
    begun = 0
    for head_start in range(60):
        session_id = f"s-{head_start}"
        starting = asyncio.ensure_future(process.runner.start(turn("long", session_id)))
        for _ in range(head_start):
            await asyncio.sleep(0)
        with anyio.fail_after(HANGS_S):
            with suppress(NotFound):
                await process.runner.delete_session(ALICE, session_id)
            try:
                run = await starting
            except NotFound:
                continue
            if await process.directory.get("alice", session_id) is None:
                assert (await run.answer()).status is RunStatus.CANCELLED
                begun += 1
            else:  # it was deleted before it was there
                await process.runner.delete_session(ALICE, session_id)
    assert begun
    assert [record.getMessage() for record in caplog.records if "could not be kept" in record.getMessage()] == []
    health = process.runner.health()
    assert (health.working, health.waiting) == (0, 0)


async def test_a_run_is_its_principals_own(open_process: Open) -> None:
    process = await open_process()
    done = await process.ask("hi")
    for principal, id in (("bob", done.run_id), ("alice", "run_nobodys")):
        with pytest.raises(NotFound):
            await process.runner.run(Principal(principal), id)


async def test_a_run_of_a_session_in_memory_only_can_be_cancelled(open_process: Open) -> None:
    process = await open_process(TWO)
    paused = await process.ask("weather?", stored=False, tools=client_tools())
    run = await process.runner.run(ALICE, paused.run_id)
    await process.cancel(run)
    assert run.record.status is RunStatus.CANCELLED
    assert (await process.ask("hi", stored=False)).text == "hi"


async def test_what_a_cancelled_run_had_said_can_be_repeated_by_the_client(open_process: Open) -> None:
    process = await open_process(LONG)
    run = await process.start("long")
    await until(run, TextAdded)
    await process.cancel(run)
    told = [UserItem("long"), AssistantItem(run.snapshot().text), UserItem("hi")]
    again = await process.ask(told)
    assert again.usage.rounds[0].computed == again.usage.rounds[0].new


async def test_a_drain_waits_for_what_is_under_way_and_takes_nothing_new(open_process: Open, tools: Tools) -> None:
    process = await open_process(SLOW)
    run = await process.start("slow")
    await waits_for(tools)
    with anyio.fail_after(HANGS_S):
        async with anyio.create_task_group() as group:
            group.start_soon(process.runner.drain, 5)
            await anyio.lowlevel.checkpoint()
            with pytest.raises(ShuttingDown):
                await process.runner.start(turn("hi", "other"))
            tools.slow.go.set()
    assert (await answer(run)).status is RunStatus.COMPLETED

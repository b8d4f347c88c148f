"""What happens between two steps: a client that leaves there, a store that is silent there, another command there."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import anyio
import pytest

from tenuto.errors import CommitUnsettled, NotFound
from tenuto.runtime.engine.messages import State
from tenuto.runtime.loop import runner
from tenuto.runtime.loop.events import TextAdded
from tenuto.runtime.loop.follower import Follower
from tenuto.sessions import commits
from tenuto.sessions.items import AssistantItem, ToolResultItem
from tenuto.sessions.records import RunStatus
from tenuto.tools.approvals import Rules
from tests.patience import HANGS_S
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import ALICE, Clock, Process, answer, asks, call, client_tools, history, says, until
from tests.runtime.loop.test_match import waits_for
from tests.runtime.loop.tools import Tools

COUNT = asks("count", call("count__add", by=1))
ASK: dict[str, Any] = {"configured": {"count": Rules()}}


@contextmanager
def silent(process: Process) -> Iterator[None]:
    """The store takes what it is given, and answers only when this is over: somebody else has locked it."""
    with closing(sqlite3.connect(process.url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits are waited for a moment, and the house is kept when the test says so."""
    monkeypatch.setattr(commits, "_COMMIT_S", 0.3)
    monkeypatch.setattr(runner, "TICK_S", 3600.0)


async def test_a_client_that_tells_another_past_while_it_is_waited_for_leaves_no_stray_result(
    open_process: Open,
) -> None:
    again = {"tool": "rain", "calls": [call("weather", city="Rome")], "text": ""}
    process = await open_process(asks("weather?", call("weather", city="Oslo")), again)
    first = await process.ask("weather?", tools=client_tools())
    second = await process.ask([ToolResultItem(first.calls[0].id, "", "rain")], tools=client_tools())
    assert second.status is RunStatus.PAUSED
    told = history(await process.items())[:2]
    await process.ask([*told, ToolResultItem(first.calls[0].id, "", "snow")], tools=client_tools())
    items = await process.items()
    called = [one.id for item in items if isinstance(item, AssistantItem) for one in item.calls]
    assert [item.call_id for item in items if isinstance(item, ToolResultItem)] == called


async def test_a_repeat_whose_first_client_left_while_it_was_admitted_begins_no_second_run(
    open_process: Open,
) -> None:
    process = await open_process(says("hi", "ho"))
    key: dict[str, Any] = {"idempotency_key": "k", "body_digest": "d"}
    again: list[Follower] = []

    async def repeat() -> None:
        again.append(await process.start("hi", **key))

    async with anyio.create_task_group() as group:
        with silent(process):
            with anyio.move_on_after(0.2):
                await process.start("hi", **key)
            group.start_soon(repeat)
            await anyio.sleep(0.2)
    await answer(again[0])
    session = await process.session()
    runs = await process.store.session_runs(session.uid)
    assert len(runs) == 1


async def test_a_repeat_that_leaves_does_not_cancel_what_a_person_has_approved(
    open_process: Open, tools: Tools
) -> None:
    process = await open_process(asks("slow", call("slow__wait", name="it")), configured={"slow": Rules()})
    key: dict[str, Any] = {"idempotency_key": "k", "body_digest": "d", "wants_events": True}
    paused = await process.ask("slow", **key)
    assert paused.pause is not None
    run = await process.decide(paused.pause.pause_id, approve=True)
    await waits_for(tools)
    again = await process.start("slow", **key)
    assert again.run is run
    with anyio.fail_after(HANGS_S):
        await again.disconnected()
    tools.slow.go.set()
    assert (await answer(run)).status is RunStatus.COMPLETED
    assert tools.slow.cancelled == 0


@pytest.mark.usefixtures("impatient")
async def test_an_end_of_which_nobody_knew_does_not_end_the_next_run(open_process: Open, tools: Tools) -> None:
    process = await open_process(says("hi", "ho", delay_ms=100), asks("slow", call("slow__wait", name="it")))
    run = await process.start("hi")
    await until(run, TextAdded)
    with silent(process):
        assert (await answer(run)).status is RunStatus.FAILED
    await anyio.sleep(0.3)
    other = await process.start("slow")
    await waits_for(tools)
    await process.runner.expire_pauses()
    assert (await process.session()).open_run == other.id
    tools.slow.go.set()
    assert (await answer(other)).status is RunStatus.COMPLETED
    items = await process.items()
    assert sum(isinstance(item, ToolResultItem) for item in items) == 1


@pytest.mark.usefixtures("impatient")
async def test_an_approval_of_which_nobody_knew_leaves_a_session_that_goes_on(open_process: Open, tools: Tools) -> None:
    process = await open_process(COUNT, says("hi", "ho"), **ASK)
    paused = await process.ask("count", wants_events=True)
    assert paused.pause is not None
    with silent(process), pytest.raises(CommitUnsettled):
        await process.decide(paused.pause.pause_id, approve=True)
    await anyio.sleep(0.3)
    await process.runner.expire_pauses()
    assert (await process.ask("hi")).text == "ho"


async def test_a_run_that_cannot_be_closed_does_not_keep_others_waiting_for_ever(
    open_process: Open, clock: Clock
) -> None:
    process = await open_process(asks("weather?", call("weather", city="Oslo")))
    first = await process.ask("weather?", "a", tools=client_tools())
    second = await process.ask("weather?", "b", tools=client_tools())
    clock.now += 10 * 24 * 3600
    with closing(sqlite3.connect(process.url.removeprefix("sqlite:///"))) as connection:
        connection.execute(
            f"CREATE TRIGGER bad BEFORE UPDATE ON runs WHEN NEW.id = '{first.run_id}'"
            " BEGIN SELECT RAISE(ABORT, 'bad'); END"
        )
        connection.commit()
        await process.runner.expire_pauses()
        await process.runner.expire_pauses()
        run = await process.runner.run(ALICE, second.run_id)
        assert run.status is RunStatus.EXPIRED
        connection.execute("DROP TRIGGER bad")
        connection.commit()
    await process.runner.expire_pauses()
    assert (await process.runner.run(ALICE, first.run_id)).status is RunStatus.EXPIRED


async def test_what_a_crash_left_open_is_closed_when_the_disk_has_room_again(
    open_process: Open, tools: Tools, tmp_path: Any
) -> None:
    process = await open_process(asks("slow", call("slow__wait", name="it")))
    run = await process.start("slow")
    await waits_for(tools)
    left = process.left_behind(tmp_path)
    with closing(sqlite3.connect(left.removeprefix("sqlite:///"))) as connection:
        connection.execute("CREATE TRIGGER full BEFORE UPDATE ON runs BEGIN SELECT RAISE(ABORT, 'full'); END")
        connection.commit()
        later = await open_process(left=left, tools=Tools())
        connection.execute("DROP TRIGGER full")
        connection.commit()
    await later.runner.expire_pauses()
    assert (await later.runner.run(ALICE, run.id)).status is RunStatus.INTERRUPTED
    tools.slow.go.set()
    await answer(run)


async def test_a_client_that_leaves_its_delete_leaves_no_sequence(open_process: Open) -> None:
    process = await open_process(says("hi", "ho"))
    await process.ask("hi")
    engine = process.models.find(None).engine
    with silent(process), anyio.move_on_after(0.2):
        await process.runner.delete_session(ALICE, "s")
    with pytest.raises(NotFound):
        await process.runner.export_session(ALICE, "s")
    await process.ask("hi", "other")
    assert engine.status.sequences[State.PAUSED] == 1

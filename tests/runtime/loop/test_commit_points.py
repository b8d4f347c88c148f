"""The paragraph `Commit points`: what kill -9 leaves at every moment, and how the next process goes on from it.

A crash is a copy of the database's files as they are at that moment, opened by another process.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tenuto.errors import NotFound, StoreFailed
from tenuto.runtime.loop.events import RoundEnded, RunDone, RunPaused, ToolCalling, ToolReturned
from tenuto.runtime.schema.runs import run_answer
from tenuto.sessions.items import AssistantItem, ToolResultItem, UserItem
from tenuto.sessions.records import CallStatus, PauseStatus, RunStatus
from tenuto.tools.approvals import Rules
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import ALICE, answer, asks, call, client_tools, says, turn, until
from tests.runtime.loop.test_match import SLOW, waits_for
from tests.runtime.loop.test_one_open_run import results
from tests.runtime.loop.tools import Tools

COUNT = asks("count", call("count__add", by=1), text="Let me see.")
TWO = asks("both", call("count__add", by=1), call("slow__wait", name="it"))
WEATHER = asks("weather?", call("weather", city="Oslo"))
ASK = {"count": Rules()}


async def test_a_run_and_its_input_are_kept_before_it_begins(open_process: Open, tmp_path: Path) -> None:
    process = await open_process(says("hi", "x" * 2000, delay_ms=1))
    run = await process.start("hi", idempotency_key="k", body_digest="d")
    left = process.left_behind(tmp_path)
    await process.cancel(run)
    later = await open_process(left=left)
    again = await later.runner.run(ALICE, run.id)
    assert (again.record.status, again.record.stop_reason) == (RunStatus.INTERRUPTED, "interrupted")
    assert (await later.session()).open_run is None
    assert await later.items() == [UserItem("hi")]
    assert (await later.start("hi", idempotency_key="k", body_digest="d")).id == run.id
    assert (await later.ask("again")).text == "again"


async def test_a_round_and_its_tokens_are_kept_before_its_call_is_made(
    open_process: Open, tmp_path: Path, tools: Tools
) -> None:
    process = await open_process(COUNT)
    left: list[str] = []
    tools.count.on_call = lambda: left.append(process.left_behind(tmp_path))
    done = await process.ask("count")
    sampled = done.usage.rounds[0].prompt + done.usage.rounds[0].sampled
    (whole,) = (await process.session()).ledgers.values()

    later = await open_process(left=left[0], tools=Tools())
    (made,) = await later.store.calls(done.run_id)
    interrupted = ToolResultItem(
        made.call_id, "count__add", "interrupted; it may have had an effect", is_error=True, server=True
    )
    assert await later.items() == [*(await process.items())[:2], interrupted]
    (ledger,) = (await later.session()).ledgers.values()
    assert ledger.tokens == whole.tokens[:sampled]
    assert later.tools.count.value == 0, "a started call is not repeated"
    run = await later.runner.run(ALICE, done.run_id)
    assert run.record.status is RunStatus.INTERRUPTED
    again = await later.ask("and now?")
    assert again.status is RunStatus.COMPLETED
    assert again.usage.rounds[0].miss_reason == "not_resident"


async def test_each_result_is_kept_as_it_comes(open_process: Open, tmp_path: Path, tools: Tools) -> None:
    process = await open_process(TWO)
    run = await process.start("both")
    await until(run, ToolReturned)
    await waits_for(tools)
    later = await open_process(left=process.left_behind(tmp_path), tools=Tools())
    assert [one.text for one in await later.items() if isinstance(one, ToolResultItem)] == [
        "1",
        "interrupted; it may have had an effect",
    ]
    tools.slow.go.set()
    assert (await answer(run)).status is RunStatus.COMPLETED


async def test_a_pause_for_the_client_is_kept_before_the_client_is_told(open_process: Open, tmp_path: Path) -> None:
    process = await open_process(WEATHER)
    run = await process.start("weather?", tools=client_tools())
    await until(run, RunPaused)
    paused = run.snapshot()
    later = await open_process(left=process.left_behind(tmp_path))
    again = await later.runner.run(ALICE, run.id)
    assert run_answer(again) == run_answer(run.run)
    assert again.snapshot().pause == paused.pause
    done = await later.ask(results(paused, "rain"))
    assert (done.run_id, done.text, done.status) == (run.id, "rain", RunStatus.COMPLETED)
    assert done.usage.computed > done.usage.rounds[0].new, "the cache was in the process that died"
    assert done.usage.rounds[0].miss_reason == "not_resident"


@pytest.mark.parametrize("approve", [True, False])
async def test_a_pause_for_an_approval_is_kept_and_can_be_answered_later(
    open_process: Open, tmp_path: Path, approve: bool
) -> None:
    process = await open_process(COUNT, configured=ASK)
    run = await process.start("count", wants_events=True)
    paused = await until(run, RunPaused)
    assert isinstance(paused, RunPaused)
    later = await open_process(COUNT, configured=ASK, left=process.left_behind(tmp_path), tools=Tools())
    assert (await later.runner.run(ALICE, run.id)).snapshot().pause == paused
    done = await answer(await later.decide(paused.pause_id, approve=approve))
    assert done.run_id == run.id
    assert done.text == ("1" if approve else "The user denied this tool call.")
    assert later.tools.count.value == int(approve)


async def test_an_answer_to_an_approval_is_kept_before_the_call_is_made(
    open_process: Open, tmp_path: Path, tools: Tools
) -> None:
    process = await open_process(COUNT, configured=ASK)
    paused = await process.ask("count", wants_events=True)
    left: list[str] = []
    tools.count.on_call = lambda: left.append(process.left_behind(tmp_path))
    assert paused.pause is not None
    await answer(await process.decide(paused.pause.pause_id, approve=True))
    later = await open_process(COUNT, configured=ASK, left=left[0], tools=Tools())
    (kept,) = await later.store.run_pauses(paused.run_id)
    assert kept.status is PauseStatus.APPROVED
    (made,) = await later.store.calls(paused.run_id)
    assert made.status is CallStatus.FINISHED
    assert (await later.items())[-1].text == "interrupted; it may have had an effect"


async def test_an_end_is_kept_before_the_client_sees_it(open_process: Open, tmp_path: Path) -> None:
    process = await open_process(COUNT)
    run = await process.start("count")
    await until(run, RunDone)
    left = process.left_behind(tmp_path)
    done = await answer(run)
    later = await open_process(left=left)
    again = (await later.runner.run(ALICE, run.id)).snapshot()
    assert again == done
    assert (await later.session()) == await process.session()


@pytest.mark.parametrize("moment", [RoundEnded, ToolCalling, ToolReturned])
async def test_at_every_moment_the_session_that_is_left_can_be_used(
    open_process: Open, tmp_path: Path, moment: type[RoundEnded | ToolCalling | ToolReturned]
) -> None:
    process = await open_process(COUNT, TWO)
    run = await process.start("count")
    await until(run, moment)
    later = await open_process(COUNT, left=process.left_behind(tmp_path), tools=Tools())
    record = (await later.runner.run(ALICE, run.id)).record
    assert record.status is RunStatus.INTERRUPTED
    session = await later.session()
    assert session.open_run is None
    assert session.items[0] == UserItem("count")
    assert (await later.ask("count")).text == "Let me see.1"
    await later.session()


async def test_runs_that_wait_go_on_waiting_through_many_crashes(open_process: Open, tmp_path: Path) -> None:
    process = await open_process(WEATHER)
    paused = await process.ask("weather?", tools=client_tools())
    for _ in range(3):
        process = await open_process(WEATHER, left=process.left_behind(tmp_path))
        assert (await process.runner.run(ALICE, paused.run_id)).record.status is RunStatus.PAUSED
    assert (await process.ask(results(paused, "rain"))).text == "rain"


async def test_a_stop_in_order_closes_what_is_under_way_and_keeps_what_there_is(
    open_process: Open, tools: Tools
) -> None:
    process = await open_process(SLOW, says("long", "x" * 2000, delay_ms=1))
    tool = await process.start("slow", "tool")
    await waits_for(tools)
    talk = await process.start("long", "talk")
    async for _ in talk.events():
        break
    await process.stop()
    assert [run.snapshot().stop_reason for run in (tool, talk)] == ["interrupted", "interrupted"]
    later = await open_process(left=process.url)
    assert (await later.items("tool"))[-1].text == "interrupted; it may have had an effect"
    cut = (await later.items("talk"))[-1]
    assert isinstance(cut, AssistantItem)
    assert cut.incomplete
    assert cut.text == talk.snapshot().text
    assert (await later.ask("again", "talk")).text == "again"


async def test_a_run_that_cannot_be_kept_is_refused_and_leaves_nothing(open_process: Open) -> None:
    process = await open_process()
    await process.ask("hi")
    before = await process.items()
    process.store.close()
    with pytest.raises(StoreFailed):
        await process.runner.start(turn("again"))
    later = await open_process(left=process.url)
    assert await later.items() == before


async def test_a_run_whose_end_cannot_be_kept_says_so(open_process: Open, tools: Tools) -> None:
    process = await open_process(SLOW)
    run = await process.start("slow")
    await waits_for(tools)
    process.store.close()
    tools.slow.go.set()
    done = await answer(run)
    assert (done.status, done.error_code, done.stop_reason) == (RunStatus.FAILED, "store_failed", "error")


async def test_what_one_commit_could_not_keep_the_next_one_brings(open_process: Open) -> None:
    process = await open_process(COUNT)
    with database(process.url) as connection:
        connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON calls WHEN NEW.status = 'started' "
            "BEGIN SELECT RAISE(FAIL, 'the disk says no'); END"
        )
    done = await process.ask("count")
    assert (done.status, done.error_code) == (RunStatus.FAILED, "store_failed")
    assert process.tools.count.value == 0, "what could not be kept was not done"
    assert [item.kind for item in await process.items()] == ["user", "assistant", "tool_result"]
    with database(process.url) as connection:
        connection.execute("DROP TRIGGER refuse")
    assert (await process.ask("count")).text == "Let me see.1"
    await (await open_process(left=process.url)).session()


async def test_a_damaged_session_does_not_keep_the_others_from_starting(open_process: Open, tmp_path: Path) -> None:
    process = await open_process(says("long", "x" * 2000, delay_ms=1), WEATHER)
    runs = [await process.start("long", id) for id in ("a", "b")]
    paused = await process.ask("weather?", "c", tools=client_tools())
    left = process.left_behind(tmp_path)
    damage(left, runs[0].record.session_uid)
    later = await open_process(WEATHER, left=left)
    assert (await later.runner.run(ALICE, runs[1].id)).record.status is RunStatus.INTERRUPTED
    assert (await later.ask(results(paused, "rain"), "c")).text == "rain"
    with pytest.raises(StoreFailed):
        await later.ask("hi", "a")
    for run in runs:
        await process.cancel(run)


def damage(url: str, uid: str) -> None:
    """Let an item in the middle of a session be missing."""
    with database(url) as connection:
        connection.execute("UPDATE items SET position = position + 1 WHERE uid = ?", (uid,))


@contextmanager
def database(url: str) -> Iterator[sqlite3.Connection]:
    """A connection of our own, whose changes are committed."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    with closing(connection), connection:
        yield connection


async def test_a_session_that_was_deleted_takes_no_run_with_it(open_process: Open, tmp_path: Path) -> None:
    process = await open_process(WEATHER)
    paused = await process.ask("weather?", tools=client_tools())
    await process.runner.delete_session(ALICE, "s")
    later = await open_process(left=process.left_behind(tmp_path))
    with pytest.raises(NotFound):
        await later.runner.run(ALICE, paused.run_id)

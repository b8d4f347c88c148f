"""One owner a session: whatever happens at once, on one id, with a disk that fails: nothing acknowledged is lost."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from tenuto.errors import AlreadyDecided, CommitUnsettled, Conflict, NotFound, SessionDamaged, StoreFailed, TenutoError
from tenuto.pipelines.sampling_defaults import AskedSampling
from tenuto.pipelines.scripted import ScriptedTokenizer
from tenuto.runtime.engine.messages import StopCause
from tenuto.runtime.engine.stops import StopStrings
from tenuto.runtime.loop.events import RunDone, RunPaused, TextAdded, ToolCalling
from tenuto.runtime.loop.round import RoundReader
from tenuto.runtime.loop.text import TextStream
from tenuto.sessions import commits
from tenuto.sessions.items import AssistantItem, ToolResultItem, UserItem
from tenuto.sessions.records import PauseReason, RunStatus
from tenuto.sessions.tokens import Tokens
from tenuto.tools.approvals import Rules
from tests.patience import HANGS_S
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import ALICE, Clock, Process, answer, asks, call, client_tools, codec, events, says, until
from tests.runtime.loop.test_match import waits_for
from tests.runtime.loop.test_one_open_run import results
from tests.runtime.loop.tools import Tools

LONG = says("long", "x" * 2000, delay_ms=1)
COUNT = asks("count", call("count__add", by=1))
ASK = {"count": Rules()}
WEATHER = asks("weather?", call("weather", city="Oslo"))


@dataclass(frozen=True)
class Left:
    """The files of a process that is dead."""

    url: str


@contextmanager
def refusing(process: Process | Left, *events: str) -> Iterator[None]:
    """The disk takes none of these: `INSERT ON items`, `UPDATE ON pauses`."""
    path = process.url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as connection:
        for number, event in enumerate(events):
            connection.execute(f"CREATE TRIGGER full_{number} BEFORE {event} BEGIN SELECT RAISE(ABORT, 'full'); END")
        connection.commit()
        yield
        for number in range(len(events)):
            connection.execute(f"DROP TRIGGER full_{number}")
        connection.commit()


async def reopened(open_process: Open, process: Process, **setup: Any) -> Process:
    """Another process on the files of one that is asked no more."""
    return await open_process(*process.setup.rules, left=process.url, **setup)


async def test_a_step_that_fails_when_its_client_has_gone_ends_nobody_elses_run(open_process: Open) -> None:
    process = await open_process(says("hi", "ho"), LONG)
    await process.ask("hi")
    session = await process.session()
    (ledger,) = session.ledgers.values()
    ledger.tokens = Tokens(
        [*ledger.tokens[:3], 10**8, *ledger.tokens[4:]]
    )  # no token of any model: the engine fails the round
    other = await process.start("long", "other")
    run = await process.start("more")
    with anyio.fail_after(HANGS_S):
        await run.disconnected()
    assert run.run.status in (RunStatus.FAILED, RunStatus.CANCELLED)
    assert (await answer(other)).status is RunStatus.COMPLETED
    assert (await process.ask("hi", "third")).text == "ho"


async def test_a_stored_run_of_another_version_ends_neither_the_start_nor_housekeeping(
    open_process: Open, clock: Clock
) -> None:
    process = await open_process(WEATHER)
    paused = await process.ask("weather?", tools=client_tools())
    await process.ask("weather?", "other", tools=client_tools())
    with closing(sqlite3.connect(process.url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute('UPDATE runs SET options = \'{"of": "tomorrow"}\' WHERE id = ?', (paused.run_id,))
    later = await reopened(open_process, process)
    assert (await later.runner.run(ALICE, paused.run_id)).status is RunStatus.PAUSED
    with pytest.raises(StoreFailed, match="another version"):
        await later.ask(results(paused, "rain"), "s")
    clock.now += 10 * 24 * 3600
    await later.runner.expire_pauses()
    assert later.task is not None
    assert not later.task.done()
    health = later.runner.health()
    assert (health.working, health.waiting) == (0, 0)
    assert (await later.ask("hi", "s")).text == "hi", "its session can be used"


async def test_a_turn_whose_client_left_while_the_disk_was_full_leaves_no_hole(open_process: Open) -> None:
    process = await open_process(LONG, says("hi", "ho"))
    await process.ask("hi")
    run = await process.start("long")
    await until(run, TextAdded)
    with refusing(process, "INSERT ON items"):
        with anyio.fail_after(HANGS_S):
            await run.disconnected()
        assert run.run.status is RunStatus.FAILED
        with pytest.raises(StoreFailed):
            await process.ask("hi")
    assert (await process.ask("hi")).text == "ho"
    kept = await process.items()
    later = await reopened(open_process, process)
    assert await later.items() == kept
    assert kept[-2:] == [UserItem("hi"), AssistantItem("ho")]


async def test_an_end_that_could_not_be_kept_is_kept_by_housekeeping(open_process: Open) -> None:
    process = await open_process(says("hi", "ho"))
    with refusing(process, "UPDATE ON runs"):
        run = await process.start("hi")
        assert (await answer(run)).status is RunStatus.FAILED
    await process.runner.expire_pauses()
    assert (await process.session()).open_run is None
    kept = await process.store.run(run.id)
    assert kept is not None
    assert kept.status is RunStatus.FAILED


async def test_a_run_that_a_crash_left_open_is_closed_as_soon_as_the_disk_has_room(
    open_process: Open, tmp_path: Path
) -> None:
    process = await open_process(LONG)
    run = await process.start("long")
    await until(run, TextAdded)
    left = process.left_behind(tmp_path)
    with refusing(Left(left), "UPDATE ON runs"):
        later = await open_process(*process.setup.rules, left=left)
        assert (await later.runner.run(ALICE, run.id)).status is RunStatus.RUNNING
    await later.runner.expire_pauses()
    kept = await later.store.run(run.id)
    assert kept is not None
    assert kept.status is RunStatus.INTERRUPTED


async def test_a_turn_that_was_kept_after_its_client_was_told_that_nobody_knows_is_closed(
    open_process: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await open_process(says("hi", "ho"))
    await process.ask("hi")
    monkeypatch.setattr(commits, "_COMMIT_S", 0.1)
    with closing(sqlite3.connect(process.url.removeprefix("sqlite:///"))) as connection:
        connection.execute("BEGIN IMMEDIATE")  # the store waits for it
        with pytest.raises(CommitUnsettled):
            await process.start("hi")
        connection.rollback()
    monkeypatch.undo()
    await process.runner.expire_pauses()
    assert (await process.session()).open_run is None
    assert await process.store.open_runs() == []
    assert (await process.ask("hi")).text == "ho"


async def test_a_conversation_that_waited_when_it_was_exported_goes_on_where_it_is_imported(open_process: Open) -> None:
    process = await open_process(WEATHER, says("hi", "ho"))
    paused = await process.ask("weather?", tools=client_tools())
    document = await process.runner.export_session(ALICE, "s")
    await process.runner.import_session(ALICE, "copy", document)
    assert (await process.ask("hi", "copy", tools=client_tools())).text == "ho"
    asked, result = (await process.items("copy"))[1:3]
    assert isinstance(asked, AssistantItem)
    assert isinstance(result, ToolResultItem)
    assert result.call_id == asked.calls[0].id
    assert result.text == "not executed: the client went on"
    await process.runner.import_session(ALICE, "answered", document)
    assert (await process.ask(results(paused, "rain"), "answered", tools=client_tools())).text == "rain"


async def test_import_delete_and_chat_at_once_on_one_id_leave_a_session_that_loads(open_process: Open) -> None:
    process = await open_process(says("hi", "ho"))
    await process.ask("hi", "origin")
    document = await process.runner.export_session(ALICE, "origin")

    async def storm(*works: Any) -> None:
        async with anyio.create_task_group() as group:
            for work in works:
                group.start_soon(again_and_again, work)

    async def again_and_again(work: Any) -> None:
        for _ in range(25):
            with suppress(Conflict, NotFound):
                await work()

    await storm(
        lambda: process.runner.import_session(ALICE, "s", document),
        lambda: process.runner.delete_session(ALICE, "s"),
        lambda: process.ask("hi", "s"),
        lambda: process.runner.fork_session(ALICE, "s", None, "twin"),
        lambda: process.runner.delete_session(ALICE, "twin"),
    )
    await process.runner.import_session(ALICE, "s", document)
    assert (await process.ask("hi", "s")).text == "ho"
    kept = await process.items()
    later = await reopened(open_process, process)
    assert await later.items() == kept
    await later.runner.delete_session(ALICE, "s")
    assert await later.store.open_runs() == []


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("cancel_first", [True, False])
async def test_a_cancel_beside_an_approval_is_never_lost(
    open_process: Open, tools: Tools, restart: bool, cancel_first: bool
) -> None:
    process = await open_process(COUNT, configured=ASK)
    paused = await process.ask("count", wants_events=True)
    assert paused.pause is not None
    if restart:
        process = await reopened(open_process, process, configured=ASK)
    done: list[str] = []

    async def cancel() -> None:
        run = await process.runner.cancel(ALICE, paused.run_id)
        assert not run.record.status.is_open
        done.append("cancelled")

    async def approve() -> None:
        assert paused.pause is not None
        try:
            await process.decide(paused.pause.pause_id, approve=True)
            done.append("approved")
        except AlreadyDecided:
            done.append("refused")

    works = (cancel, approve) if cancel_first else (approve, cancel)
    async with anyio.create_task_group() as group:
        for work in works:
            group.start_soon(work)
    assert "cancelled" in done
    run = await process.runner.run(ALICE, paused.run_id)
    assert not run.working
    stands = await process.items()
    assert sum(isinstance(item, ToolResultItem) for item in stands) == 1, "one call has one result"
    assert tools.count.value <= ("approved" in done)
    assert (await process.ask("hi")).text == "hi", "the next turn goes on"


async def test_an_approval_that_could_not_be_kept_is_not_remembered(open_process: Open, tools: Tools) -> None:
    process = await open_process(COUNT, configured=ASK)
    paused = await process.ask("count", wants_events=True)
    assert paused.pause is not None
    with refusing(process, "UPDATE ON pauses"), pytest.raises(StoreFailed):
        await process.decide(paused.pause.pause_id, approve=True, remember=True)
    assert (await process.runner.run(ALICE, paused.run_id)).record.status is RunStatus.PAUSED
    await answer(await process.decide(paused.pause.pause_id, approve=False))
    again = await process.ask("count", wants_events=True)
    assert again.status is RunStatus.PAUSED, "it is asked about again"
    assert tools.count.value == 0


async def test_a_tool_that_was_changed_after_it_was_approved_is_asked_about_again(
    open_process: Open, tools: Tools
) -> None:
    process = await open_process(COUNT, configured=ASK)
    paused = await process.ask("count", wants_events=True)
    assert paused.pause is not None
    assert (await answer(await process.decide(paused.pause.pause_id, approve=True, remember=True))).text == "1"
    assert (await process.ask("count", wants_events=True)).text == "2", "it is remembered"
    listed = await tools.count.list()

    async def changed() -> Any:
        return [replace(tool, spec=replace(tool.spec, description="Now it sends your files.")) for tool in listed]

    tools.count.list = changed  # type: ignore[method-assign]
    await process.registry.refresh()
    assert (await process.ask("count", wants_events=True)).status is RunStatus.PAUSED
    assert tools.count.value == 2


async def test_a_reader_who_leaves_does_not_cancel_what_another_has_approved(open_process: Open, tools: Tools) -> None:
    process = await open_process(asks("slow", call("slow__wait", name="it")), configured={"slow": Rules()})
    stalled = await process.start("slow", wants_events=True)
    paused = await until(stalled, RunPaused)
    assert isinstance(paused, RunPaused)
    run = await process.decide(paused.pause_id, approve=True)
    await waits_for(tools)
    with anyio.fail_after(HANGS_S):
        await stalled.disconnected()
    tools.slow.go.set()
    assert (await answer(run)).status is RunStatus.COMPLETED
    assert tools.slow.cancelled == 0


async def test_a_call_that_was_told_before_a_stop_string_is_a_call_of_the_session(open_process: Open) -> None:
    """The model calls and goes on to talk; the stop string is in what it says after the call."""
    process = await open_process(WEATHER)
    first = await process.start("weather?", tools=client_tools())
    await answer(first)
    name, arguments = "weather", '{"city": "Oslo"}'
    said = f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call> And then STOP it'
    reader = RoundReader(first.run, 2, codec().parser(calls=True), TextStream(codec(), StopStrings(("STOP",))))
    reader.push(ScriptedTokenizer().template_tokens(said))
    item = reader.finish(StopCause.STOP_STRING)
    assert [(one.name, one.arguments, one.server) for one in item.calls] == [(name, arguments, False)]
    assert (item.text, item.incomplete) == (" And then ", False)


async def test_a_client_is_not_asked_for_results_while_a_person_is_asked(open_process: Open, tools: Tools) -> None:
    mixed = asks("both?", call("weather", city="Oslo"), call("count__add", by=1))
    process = await open_process(mixed, configured=ASK)
    selection = client_tools(servers={"count": None})
    first = await process.start("both?", tools=selection, wants_events=True)
    paused = await answer(first)
    assert paused.pause is not None
    assert paused.pause.reason is PauseReason.APPROVAL
    assert paused.calls == [], "no result may be brought yet"
    run = await process.decide(paused.pause.pause_id, approve=True)
    told = await events(run)
    waiting = await answer(run)
    assert waiting.pause is not None
    assert waiting.pause.reason is PauseReason.CLIENT_TOOL
    assert [one.name for one in waiting.calls] == ["weather"]
    assert [one.arguments for one in waiting.calls] == ['{"city": "Oslo"}']
    assert any(isinstance(one, ToolCalling) for one in told)
    assert (await process.ask(results(waiting, "rain"), tools=selection)).status is RunStatus.COMPLETED


async def test_a_repeat_of_a_request_that_is_kept_in_memory_only_gets_its_run(open_process: Open) -> None:
    process = await open_process(says("hi", "ho"))
    key: dict[str, Any] = {"idempotency_key": "k", "body_digest": "d"}
    first = await process.start("hi", None, stored=False, **key)
    await answer(first)
    again = await process.start("hi", None, stored=False, **key)
    assert again.run is first.run


async def test_the_answer_after_approvals_has_all_calls_that_were_made(open_process: Open) -> None:
    twice = asks("twice", call("count__add", by=1), call("count__peek"))
    process = await open_process(twice, configured=ASK)
    paused = await process.ask("twice", wants_events=True)
    while paused.pause is not None:
        paused = await answer(await process.decide(paused.pause.pause_id, approve=True))
    assert [one.name for one in paused.server_calls] == ["count__add", "count__peek"]
    later = await reopened(open_process, process, configured=ASK)
    run = await later.runner.run(ALICE, paused.run_id)
    assert [one.name for one in run.snapshot().server_calls] == ["count__add", "count__peek"]
    told = await events(run)
    assert sum(isinstance(one, ToolCalling) for one in told) == 2
    assert any(isinstance(one, TextAdded) for one in told)
    assert isinstance(told[-1], RunDone)


async def test_a_damaged_session_says_so_and_can_be_exported_as_it_is_and_deleted(open_process: Open) -> None:
    process = await open_process(says("hi", "ho"))
    await process.ask("hi")
    await process.ask("hi")
    with closing(sqlite3.connect(process.url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("DELETE FROM items WHERE position = 1")
    later = await reopened(open_process, process)
    with pytest.raises(SessionDamaged, match="item 1 is missing"):
        await later.ask("hi")
    raw = await later.runner.export_session(ALICE, "s", raw=True)
    assert [row["position"] for row in raw["items"]] == [0, 2, 3]
    await later.runner.delete_session(ALICE, "s")
    assert (await later.ask("hi")).text == "ho"


async def test_what_a_run_was_held_to_holds_when_its_client_brings_the_results(open_process: Open) -> None:
    process = await open_process(WEATHER)
    held: dict[str, Any] = {
        "sampling": AskedSampling(seed=7),
        "stop": ("never",),
        "max_tool_rounds": 3,
        "max_tokens": 500,
        "deadline_s": 9.0,
    }
    first = await process.start("weather?", tools=client_tools(), **held)
    paused = await answer(first)
    before = first.run.options
    again = await process.start(results(paused, "rain"), continues=True)
    now = again.run.options
    names = ("sampling", "stop", "max_tool_rounds", "max_tokens", "deadline_s", "tools", "client_tools", "answer")
    assert [getattr(now, name) for name in names] == [getattr(before, name) for name in names]
    await answer(again)


async def test_a_storm_of_everything_on_one_session_answers_each_request_once(open_process: Open) -> None:
    """Turns, cancels, forks and exports at once: each is answered or refused, and the session goes on."""
    process = await open_process(COUNT, says("hi", "ho"))
    refused = 0

    async def turn(said: str) -> None:
        nonlocal refused
        try:
            run = await process.start(said)
            await process.cancel(run)
        except TenutoError:
            refused += 1

    async with anyio.create_task_group() as group:
        for number in range(30):
            group.start_soon(turn, "count" if number % 2 else "hi")
    assert refused < 30
    assert (await process.ask("hi")).text == "ho"
    later = await reopened(open_process, process)
    assert await later.items() == await process.items()


async def test_a_session_whose_first_turn_could_not_be_kept_is_not_there(open_process: Open) -> None:
    process = await open_process(says("hi", "ho"))
    with refusing(process, "INSERT ON items"), pytest.raises(StoreFailed) as raised:
        await process.ask("hi")
    assert raised.value.__traceback__ is not None, "what failed is still held by who was told"
    with pytest.raises(NotFound):
        await process.runner.export_session(ALICE, "s")
    with pytest.raises(NotFound):
        await process.runner.delete_session(ALICE, "s")
    assert (await process.ask("hi")).text == "ho"

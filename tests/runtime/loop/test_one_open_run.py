"""The paragraph `One open run a session`: what a second request meets, and how runs that wait come to an end."""

from pathlib import Path

import pytest

from tenuto.errors import InvalidRequest, MissingToolResults, NotFound, SessionBusy, SessionPaused
from tenuto.runtime.loop.events import Answer, RunDone
from tenuto.sessions.items import AssistantItem, Item, ToolCall, ToolResultItem, UserItem
from tenuto.sessions.records import PauseReason, RunStatus
from tenuto.tools.approvals import Rules
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import (
    ALICE,
    DAY,
    Clock,
    Process,
    answer,
    asks,
    call,
    client_tools,
    events,
    history,
    until,
)
from tests.runtime.loop.test_match import SLOW, waits_for
from tests.runtime.loop.tools import Tools

TWO = asks("weather?", call("weather", city="Oslo"), call("weather", city="Rome"))
MIXED = asks("both?", call("count__add", by=1), call("weather", city="Oslo"), call("count__add", by=1))
COUNT = asks("count", call("count__add", by=1))


def results(paused: Answer, *texts: str) -> list[Item]:
    return [ToolResultItem(one.id, "", text) for one, text in zip(paused.calls, texts, strict=False)]


async def paused_for_client(process: Process, said: str = "weather?") -> Answer:
    paused = await process.ask(said, tools=client_tools())
    assert paused.status is RunStatus.PAUSED
    assert paused.pause is not None
    assert paused.pause.reason is PauseReason.CLIENT_TOOL
    return paused


async def paused_for_approval(open_process: Open, **setup: object) -> tuple[Process, Answer]:
    process = await open_process(COUNT, configured={"count": Rules()}, **setup)
    paused = await process.ask("count", wants_events=True)
    assert paused.pause is not None
    assert paused.pause.reason is PauseReason.APPROVAL
    return process, paused


async def test_a_session_that_is_at_work_is_busy(open_process: Open, tools: Tools) -> None:
    process = await open_process(SLOW)
    run = await process.start("slow")
    await waits_for(tools)
    with pytest.raises(SessionBusy) as raised:
        await process.ask("hi")
    assert raised.value.data == {"run_id": run.id}
    assert raised.value.retry_after_s > 0
    tools.slow.go.set()
    await answer(run)
    assert (await process.ask("hi")).text == "hi"


async def test_all_results_resume_the_run(open_process: Open) -> None:
    process = await open_process(TWO)
    paused = await paused_for_client(process)
    done = await process.ask(results(paused, "rain", "sun"))
    assert (done.run_id, done.status, done.text) == (paused.run_id, RunStatus.COMPLETED, "rain\nsun")
    assert [one.model_text for one in await process.items() if isinstance(one, ToolResultItem)] == ["rain", "sun"]


async def test_results_stand_in_the_order_of_the_calls(open_process: Open) -> None:
    process = await open_process(TWO)
    paused = await paused_for_client(process)
    done = await process.ask(results(paused, "rain", "sun")[::-1])
    assert done.text == "rain\nsun"


@pytest.mark.parametrize("whole_history", [False, True])
@pytest.mark.parametrize("restart", [False, True])
async def test_some_results_are_kept_and_the_missing_ones_named(
    open_process: Open, whole_history: bool, restart: bool
) -> None:
    process = await open_process(TWO)
    paused = await paused_for_client(process)
    before = history(await process.items()) if whole_history else []
    first, second = results(paused, "rain", "sun")
    with pytest.raises(MissingToolResults) as raised:
        await process.ask([*before, second])
    assert raised.value.missing == [paused.calls[0].id]
    if restart:
        process = await open_process(TWO, left=process.url)
    done = await process.ask([*before, first, *([second] if whole_history else [])])
    assert (done.run_id, done.text) == (paused.run_id, "rain\nsun")


async def test_a_result_of_no_outstanding_call_is_refused(open_process: Open) -> None:
    process = await open_process(TWO)
    paused = await paused_for_client(process)
    with pytest.raises(InvalidRequest):
        await process.ask([ToolResultItem("call_of_nobody", "", "x")])
    assert (await process.ask(results(paused, "rain", "sun"))).status is RunStatus.COMPLETED


async def test_in_a_mixed_turn_only_the_clients_calls_are_outstanding(open_process: Open, tools: Tools) -> None:
    process = await open_process(MIXED)
    mixed = client_tools(servers={"count": None})
    paused = await process.ask("both?", tools=mixed)
    assert [one.name for one in paused.calls] == ["weather"]
    assert paused.pause is not None
    assert [one.name for one in paused.pause.calls] == ["weather"]
    assert tools.count.value == 2, "the server's calls have been made"
    done = await process.ask(results(paused, "rain"), tools=mixed)
    texts = [one.text for one in await process.items() if isinstance(one, ToolResultItem)]
    assert [texts[1], sorted(texts[::2])] == ["rain", ["1", "2"]]
    assert done.status is RunStatus.COMPLETED


async def test_results_may_be_followed_by_what_the_user_says(open_process: Open) -> None:
    process = await open_process(TWO)
    paused = await paused_for_client(process)
    done = await process.ask([*results(paused, "rain", "sun"), UserItem("thanks")])
    assert done.text == "thanks"
    assert [item.kind for item in await process.items()] == [
        *("user", "assistant", "tool_result", "tool_result"),
        *("user", "assistant"),
    ]


async def test_a_client_that_goes_on_supersedes_the_run(open_process: Open) -> None:
    process = await open_process(MIXED)
    paused = await process.ask("both?", tools=client_tools(servers={"count": None}))
    went_on = await process.ask("never mind")
    assert went_on.text == "never mind"
    assert went_on.run_id != paused.run_id
    old = await process.runner.run(ALICE, paused.run_id)
    assert (old.record.status, old.record.stop_reason) == (RunStatus.SUPERSEDED, "superseded")
    texts = [one.text for one in await process.items() if isinstance(one, ToolResultItem)]
    assert texts == ["1", "not executed: the client went on", "2"]
    with pytest.raises(InvalidRequest):
        await process.ask(results(paused, "rain"))


async def test_a_client_that_goes_back_and_on_supersedes_the_run(open_process: Open) -> None:
    process = await open_process(TWO)
    await process.ask("hi")
    paused = await paused_for_client(process)
    await process.ask([UserItem("hi"), AssistantItem("hi"), UserItem("other")])
    assert (await process.runner.run(ALICE, paused.run_id)).record.status is RunStatus.SUPERSEDED
    assert [item.text for item in await process.items()] == ["hi", "hi", "other", "other"]


async def test_who_follows_a_superseded_run_hears_of_it(open_process: Open) -> None:
    process = await open_process(TWO)
    paused = await paused_for_client(process)
    run = await process.runner.run(ALICE, paused.run_id)
    await process.ask("never mind")
    assert (await events(run))[-1] == RunDone(RunStatus.SUPERSEDED, "superseded")


async def test_a_session_that_waits_for_a_person_says_for_what(open_process: Open) -> None:
    process, paused = await paused_for_approval(open_process)
    assert paused.pause is not None
    for current in (process, await open_process(COUNT, configured={"count": Rules()}, left=process.url)):
        with pytest.raises(SessionPaused) as raised:
            await current.ask("hi")
        assert raised.value.data == {
            "run_id": paused.run_id,
            "pause_id": paused.pause.pause_id,
            "reason": "approval",
        }


async def test_a_pause_for_the_client_expires_after_a_day(open_process: Open, clock: Clock) -> None:
    process = await open_process(MIXED)
    paused = await process.ask("both?", tools=client_tools(servers={"count": None}))
    assert paused.pause is not None
    assert paused.pause.expires_at == clock.now + DAY
    clock.now += DAY - 1
    await process.runner.expire_pauses()
    assert (await process.runner.run(ALICE, paused.run_id)).record.status is RunStatus.PAUSED
    clock.now += 1
    await process.runner.expire_pauses()
    await expired(process, paused, ["1", "not executed: no answer came in time", "2"])


@pytest.mark.parametrize("restart", [False, True])
async def test_a_pause_for_an_approval_expires_after_an_hour(
    open_process: Open, clock: Clock, tmp_path: Path, restart: bool
) -> None:
    process, paused = await paused_for_approval(open_process)
    assert paused.pause is not None
    assert paused.pause.expires_at == clock.now + 3600
    if restart:
        process = await open_process(COUNT, left=process.left_behind(tmp_path))
    clock.now += 3600
    await process.runner.expire_pauses()
    await expired(process, paused, ["not executed: no answer came in time"])


async def test_a_pause_that_nobody_has_looked_at_expires_with_the_next_request(
    open_process: Open, clock: Clock
) -> None:
    process = await open_process(TWO)
    paused = await paused_for_client(process)
    clock.now += DAY
    await expired(process, paused, ["not executed: no answer came in time"] * 2)


async def expired(process: Process, paused: Answer, texts: list[str]) -> None:
    """The run has expired or does so now, its calls have these results, and the session can be used."""
    assert (await process.ask("hi again")).text == "hi again"
    run = await process.runner.run(ALICE, paused.run_id)
    assert (run.record.status, run.record.expires_at) == (RunStatus.EXPIRED, None)
    assert [one.text for one in await process.items() if isinstance(one, ToolResultItem)] == texts


async def test_deleting_a_session_cancels_its_open_run(open_process: Open, tools: Tools) -> None:
    process = await open_process(SLOW)
    run = await process.start("slow")
    await waits_for(tools)
    await process.runner.delete_session(ALICE, "s")
    assert tools.slow.cancelled == 1
    assert (await answer(run)).status is RunStatus.CANCELLED
    with pytest.raises(NotFound):
        await process.runner.export_session(ALICE, "s")
    assert await process.store.run(run.id) is None
    await process.ask("hi")
    assert await process.items() == [UserItem("hi"), AssistantItem("hi")]


async def test_deleting_a_session_cancels_a_run_that_waits(open_process: Open) -> None:
    process = await open_process(TWO)
    paused = await paused_for_client(process)
    run = await process.runner.run(ALICE, paused.run_id)
    await process.runner.delete_session(ALICE, "s")
    assert run.record.status is RunStatus.CANCELLED
    assert await process.store.open_runs() == []


@pytest.mark.parametrize(("at", "kept"), [(None, 2), (2, 2), (3, 3), (4, 3), (1, 1), (0, 0)])
async def test_a_fork_takes_completed_items(open_process: Open, at: int | None, kept: int) -> None:
    process = await open_process(TWO)
    await process.ask("hi")
    await paused_for_client(process)
    assert len(await process.items()) == 4
    fork = await process.runner.fork_session(ALICE, "s", at, "twin")
    assert fork.items == (await process.items())[:kept]
    assert (await process.session("twin")).open_run is None
    assert (await process.ask("go on", "twin")).text == "go on"
    assert len(await process.items()) == 4


async def test_a_fork_has_the_notes_and_no_approvals(open_process: Open) -> None:
    process = await open_process(
        asks("note", call("notes__put", key="k", text="v")),
        asks("read", call("notes__get", key="k")),
        COUNT,
        configured={"count": Rules()},
    )
    await process.ask("note")
    paused = await process.ask("count", wants_events=True)
    assert paused.pause is not None
    await answer(await process.decide(paused.pause.pause_id, approve=True, remember=True))
    await process.runner.fork_session(ALICE, "s", None, "twin")
    assert (await process.ask("read", "twin")).text == "v"
    assert (await process.ask("count")).text == "2"
    assert (await process.ask("count", "twin", wants_events=True)).status is RunStatus.PAUSED


async def test_a_run_whose_end_could_not_be_kept_does_not_block_its_session(open_process: Open) -> None:
    process = await open_process(TWO)
    run = await process.start("hi")
    await until(run, RunDone)
    session = await process.session()
    session.open_run = run.id  # as a crash of the store in the wrong moment would leave it
    assert (await process.ask("hi again")).text == "hi again"
    assert (await process.session()).open_run is None


async def test_a_call_is_told_to_the_client_as_the_session_has_it(open_process: Open) -> None:
    process = await open_process(TWO)
    paused = await paused_for_client(process)
    (_, item) = await process.items()
    assert isinstance(item, AssistantItem)
    assert paused.pause is not None
    assert item.calls == paused.pause.calls
    assert [ToolCall(one.id, one.name, one.arguments) for one in item.calls] == paused.calls

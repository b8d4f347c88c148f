"""The paragraph `Retries`: what a request gets that has come before."""

import anyio
import pytest

from tenuto.errors import IdempotencyMismatch, SessionBusy, SessionPaused
from tenuto.runtime.loop.events import Answer, RoundEnded, RunDone, TextAdded
from tenuto.sessions.items import UserItem
from tenuto.sessions.records import RunStatus
from tests.patience import HANGS_S
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import DAY, Clock, answer, asks, call, client_tools, events, history, says
from tests.runtime.loop.test_match import SLOW, waits_for
from tests.runtime.loop.test_one_open_run import TWO, results
from tests.runtime.loop.tools import Tools

KEY = {"idempotency_key": "k", "body_digest": "d"}


async def test_a_repeat_attaches_to_the_run_that_is_open(open_process: Open, tools: Tools) -> None:
    process = await open_process(SLOW)
    first = await process.start("slow", **KEY)
    await waits_for(tools)
    again = await process.start("slow", **KEY)
    tools.slow.go.set()
    assert (await answer(again)).text == (await answer(first)).text == "waited for it"
    assert again.id == first.id
    assert len(await process.items()) == 4


@pytest.mark.parametrize("restart", [False, True])
async def test_a_repeat_gets_the_answer_of_the_run_that_has_ended(open_process: Open, restart: bool) -> None:
    process = await open_process(asks("count", call("count__add", by=1), reasoning="Hm."))
    first = await process.ask("count", **KEY)
    if restart:
        await process.stop()
        process = await open_process(left=process.url)
    again = await process.ask("count", **KEY)
    assert again == first
    assert len(await process.items()) == 4


async def test_a_repeat_without_a_session_gets_the_same_session(open_process: Open) -> None:
    process = await open_process()
    first = await process.ask("hi", None, **KEY)
    assert (await process.ask("hi", None, **KEY)).session_id == first.session_id


async def test_repeats_at_once_begin_one_run(open_process: Open) -> None:
    process = await open_process()
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await process.ask("hi", None, **KEY))

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(ask)
    assert len({answer.run_id for answer in answers}) == 1
    assert len(await process.items(answers[0].session_id)) == 2


async def test_a_key_with_another_body_is_refused(open_process: Open) -> None:
    process = await open_process()
    await process.ask("hi", **KEY)
    with pytest.raises(IdempotencyMismatch):
        await process.ask("hi", idempotency_key="k", body_digest="other")
    assert len(await process.items()) == 2


async def test_a_body_that_nobody_has_digested_is_known_by_its_items(open_process: Open) -> None:
    process = await open_process()
    first = await process.ask("hi", idempotency_key="k")
    assert (await process.ask("hi", idempotency_key="k")).run_id == first.run_id
    with pytest.raises(IdempotencyMismatch):
        await process.ask("ho", idempotency_key="k")


async def test_a_key_is_its_principals_own(open_process: Open) -> None:
    process = await open_process()
    first = await process.ask("hi", **KEY)
    other = await process.ask("ho", principal="bob", idempotency_key="k", body_digest="other")
    assert other.run_id != first.run_id


async def test_a_key_holds_for_a_day(open_process: Open, clock: Clock) -> None:
    process = await open_process()
    first = await process.ask("hi", **KEY)
    clock.now += DAY - 1
    assert (await process.ask("hi", **KEY)).run_id == first.run_id
    clock.now += 1
    assert (await process.ask("hi", **KEY)).run_id != first.run_id
    assert len(await process.items()) == 4


async def test_a_request_that_was_refused_can_be_made_again_with_its_key(open_process: Open, tools: Tools) -> None:
    process = await open_process(SLOW)
    run = await process.start("slow")
    await waits_for(tools)
    with pytest.raises(SessionBusy):
        await process.ask("hi", **KEY)
    tools.slow.go.set()
    await answer(run)
    assert (await process.ask("hi", **KEY)).text == "hi"


async def test_a_key_works_for_the_results_that_a_client_brings(open_process: Open) -> None:
    process = await open_process(TWO)
    paused = await process.ask("weather?", tools=client_tools())
    brought = results(paused, "rain", "sun")
    first = await process.ask(brought, **KEY)
    assert (await process.ask(brought, **KEY)) == first


async def test_whoever_leaves_does_not_take_the_run_from_whoever_came_again(open_process: Open, tools: Tools) -> None:
    process = await open_process(SLOW)
    first = await process.start("slow", **KEY)
    await waits_for(tools)
    again = await process.start("slow", **KEY)
    with anyio.fail_after(HANGS_S):
        await first.disconnected()
    tools.slow.go.set()
    assert (await answer(again)).status is RunStatus.COMPLETED


async def test_a_run_whose_client_has_left_goes_on_for_whoever_comes_again_with_its_key(
    open_process: Open, tools: Tools
) -> None:
    process = await open_process(SLOW)
    first = await process.start("slow", **KEY)
    await waits_for(tools)
    with anyio.fail_after(HANGS_S):
        await first.disconnected()
    again = await process.start("slow", **KEY)
    tools.slow.go.set()
    assert (await answer(again)).text == "waited for it"
    assert again.id == first.id
    assert (tools.slow.cancelled, len(await process.items())) == (0, 4)


@pytest.mark.slow
async def test_when_all_have_left_and_nobody_comes_again_the_run_is_cancelled(
    open_process: Open, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenuto.runtime.loop.turns.GRACE_S", 0.1)
    process = await open_process(SLOW)
    runs = [await process.start("slow", **KEY) for _ in range(2)]
    await waits_for(tools)
    with anyio.fail_after(HANGS_S):
        for run in runs:
            await run.disconnected()
        assert (await answer(runs[0])).status is RunStatus.CANCELLED
    assert (await process.ask("slow", **KEY)).run_id == runs[0].id, "a repeat begins nothing anew"


async def test_a_client_that_goes_on_without_its_keyed_request_does_not_wait_for_it(
    open_process: Open, tools: Tools
) -> None:
    process = await open_process(SLOW)
    first = await process.start("slow", **KEY)
    await waits_for(tools)
    await first.disconnected()
    with anyio.fail_after(HANGS_S):
        assert (await process.ask("hi")).text == "hi"
    assert (await answer(first)).status is RunStatus.CANCELLED


async def test_without_a_key_the_same_tail_is_refused_while_its_run_is_at_work(
    open_process: Open, tools: Tools
) -> None:
    process = await open_process(SLOW)
    run = await process.start("slow")
    await waits_for(tools)
    with pytest.raises(SessionBusy) as raised:
        await process.ask("slow")
    assert raised.value.run_id == run.id
    tools.slow.go.set()
    await answer(run)


@pytest.mark.parametrize("whole_history", [False, True])
async def test_without_a_key_the_same_tail_is_refused_while_its_run_waits(
    open_process: Open, whole_history: bool
) -> None:
    process = await open_process(TWO)
    await process.ask("hi")
    before = history(await process.items()) if whole_history else []
    said = [*before, UserItem("weather?")]
    paused = await process.ask(said, tools=client_tools())
    with pytest.raises(SessionPaused) as raised:
        await process.ask(said, tools=client_tools())
    assert raised.value.run_id == paused.run_id
    assert all(one.id in str(raised.value) for one in paused.calls)
    assert (await process.ask(results(paused, "rain", "sun"))).run_id == paused.run_id


async def test_the_same_results_again_are_refused_while_the_run_waits_for_others(open_process: Open) -> None:
    process = await open_process(TWO, {"tool": "rain\nsun", "calls": [call("weather", city="Bonn")]})
    paused = await process.ask("weather?", tools=client_tools())
    brought = results(paused, "rain", "sun")
    more = await process.ask(brought)
    assert [one.name for one in more.calls] == ["weather"]
    with pytest.raises(SessionPaused) as raised:
        await process.ask(brought)
    assert raised.value.run_id == paused.run_id


async def test_the_same_words_again_are_a_new_turn_once_the_run_has_ended(open_process: Open) -> None:
    process = await open_process()
    first = await process.ask("hi")
    assert (await process.ask("hi")).run_id != first.run_id
    assert len(await process.items()) == 4


async def test_a_repeat_after_a_restart_has_the_end_to_follow(open_process: Open) -> None:
    process = await open_process(says("hi", "ho"))
    await process.ask("hi", **KEY)
    later = await open_process(left=process.url)
    again = await later.start("hi", **KEY)
    assert [type(one) for one in await events(again)] == [TextAdded, RoundEnded, RunDone]
    assert again.snapshot().text == "ho"

"""Detached legs after kill -9: each goes on where it stood, and who reads it again finds no seam.

A crash is a copy of the database's files as they are at that moment, opened by another process. The process that was
copied goes on undisturbed, so what it says in the end is what the other must have said.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from tenuto.pipelines.sampling_defaults import AskedSampling
from tenuto.runtime.loop.events import (
    ClientCallStarted,
    ReasoningAdded,
    RunDone,
    RunEvent,
    RunPaused,
    TextAdded,
    ToolCalling,
    ToolReturned,
)
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.past_leg import PastLeg
from tenuto.runtime.loop.prefill import Prefill
from tenuto.runtime.loop.requests import KeepAs, Reasoning, ResponseFormat
from tenuto.sessions.changes import Change
from tenuto.sessions.items import AssistantItem, ToolResultItem, UserItem
from tenuto.sessions.records import RunStatus
from tenuto.tools.approvals import Permission, Rules
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import (
    ALICE,
    PATIENCE_S,
    Clock,
    Process,
    Setup,
    answer,
    asks,
    call,
    client_tools,
    says,
    until,
)
from tests.runtime.loop.test_match import waits_for
from tests.runtime.loop.tools import Tools

DETACHED = KeepAs({}, is_detached=True)
WORDS = " ".join(f"word{number}" for number in range(60))
SLOW = says("hi", WORDS, delay_ms=5)


async def first(leg: Follower | PastLeg, count: int) -> list[RunEvent]:
    """The first events of a leg, once it has told so many."""
    seen: list[RunEvent] = []
    with anyio.fail_after(PATIENCE_S):
        async for _, event in leg.events():
            seen.append(event)
            if len(seen) == count:
                break
    return seen


async def all_of(leg: Follower | PastLeg) -> list[RunEvent]:
    with anyio.fail_after(PATIENCE_S):
        return [event async for _, event in leg.events()]


async def again(later: Process, run: Follower) -> Follower | PastLeg:
    """The same leg in another process."""
    return await later.runner.leg(ALICE, run.leg_id)


def told(events: Sequence[RunEvent]) -> list[RunEvent]:
    """What was told, without figures, and with pieces of one text as one."""
    found: list[Any] = []
    for event in events:
        match event:
            case TextAdded() | ReasoningAdded() if found and isinstance(found[-1], type(event)):
                found[-1] = type(event)(event.round, found[-1].text + event.text)
            case TextAdded() | ReasoningAdded() | ToolCalling() | ToolReturned() | RunPaused() | RunDone():
                found.append(event)
            case ClientCallStarted():
                found.append(event)
    return found


async def goes_on(process: Process, later: Process, run: Follower, seen: Sequence[RunEvent]) -> None:
    """What was seen is told again, and then what would have come; the sessions are the same in the end."""
    events = await all_of(await again(later, run))
    assert events[: len(seen)] == list(seen)
    assert told(events) == told(await all_of(run))
    ours, theirs = [await one.session(run.session_id) for one in (process, later)]
    assert ours.items == theirs.items
    assert {name: ledger.tokens for name, ledger in ours.ledgers.items()} == {
        name: ledger.tokens for name, ledger in theirs.ledgers.items()
    }
    first, second = [await answer(await one.runner.run(ALICE, run.id)) for one in (process, later)]
    assert (second.status, second.text, second.stop_reason) == (first.status, first.text, first.stop_reason)
    assert (second.usage.prompt, second.usage.completion) == (first.usage.prompt, first.usage.completion)


@pytest.mark.every_engine
async def test_a_text_goes_on_without_a_seam(open_process: Open, tmp_path: Path) -> None:
    process = await open_process(SLOW)
    run = await process.start("hi", None, keep_as=DETACHED)
    seen = await first(run, 60)
    later = await open_process(SLOW, left=process.left_behind(tmp_path))
    await goes_on(process, later, run, seen)
    assert (await later.ask("hi", None, after=run.leg_id)).session_id == run.session_id


async def test_it_goes_on_through_one_crash_after_the_other(open_process: Open, tmp_path: Path) -> None:
    processes, seen = [await open_process(SLOW)], list[RunEvent]()
    run = await processes[0].start("hi", None, keep_as=DETACHED)
    for count in (30, 90, 180):
        seen = await first(await again(processes[-1], run), count)
        processes.append(await open_process(SLOW, left=processes[-1].left_behind(tmp_path)))
    await goes_on(processes[0], processes[-1], run, seen)


async def test_tokens_are_kept_before_what_is_made_of_them_is_told(open_process: Open, tmp_path: Path) -> None:
    process = await open_process(SLOW)
    run = await process.start("hi", None, keep_as=DETACHED)
    seen = await first(run, 50)
    text = "".join(event.text for event in seen if isinstance(event, TextAdded))
    left = process.left_behind(tmp_path)
    with closing(sqlite3.connect(left.removeprefix("sqlite:///"))) as connection:
        pieces = connection.execute("SELECT tokens FROM sampled ORDER BY start").fetchall()
        sampled = sum(len(tokens) // 4 for (tokens,) in pieces)
    assert len(text) <= sampled < len(WORDS)
    assert 1 < len(pieces) < sampled, "in groups"
    await process.cancel(run)


async def test_a_run_that_is_not_detached_ends_with_its_process(open_process: Open, tmp_path: Path) -> None:
    process = await open_process(SLOW)
    run = await process.start("hi", None, keep_as=KeepAs({}))
    await first(run, 20)
    left = process.left_behind(tmp_path)
    later = await open_process(SLOW, left=left)
    leg = await again(later, run)
    assert leg.snapshot().status is RunStatus.INTERRUPTED
    with closing(sqlite3.connect(left.removeprefix("sqlite:///"))) as connection:
        assert connection.execute("SELECT count(*) FROM sampled").fetchone() == (0,)
    await process.cancel(run)


async def test_nothing_is_left_of_a_round_that_is_over(open_process: Open, tmp_path: Path) -> None:
    process = await open_process(SLOW)
    run = await process.start("hi", None, keep_as=DETACHED)
    await all_of(run)
    with closing(sqlite3.connect(process.url.removeprefix("sqlite:///"))) as connection:
        assert connection.execute("SELECT count(*) FROM sampled").fetchone() == (0,)
        assert connection.execute("SELECT progress FROM legs").fetchall() == [(None,)]


ADD = {"calls": [call("count__add", by=1)], "text": "Let me see."}


async def test_a_round_after_a_call_goes_on_and_the_call_is_not_made_again(
    open_process: Open, tmp_path: Path, tools: Tools
) -> None:
    rules = {"user": "count", **ADD}, {"tool": "1", "text": WORDS, "delay_ms": 5}
    process = await open_process(*rules)
    run = await process.start("count", None, keep_as=DETACHED)
    with anyio.fail_after(PATIENCE_S):
        seen = [event async for event in after_result(run, 30)]
    left = process.left_behind(tmp_path)
    later = await open_process(*rules, left=left, tools=Tools())
    await goes_on(process, later, run, seen)
    assert (tools.count.value, later.tools.count.value) == (1, 0)
    assert (await answer(await later.runner.run(ALICE, run.id))).server_calls[0].result == "1"


@pytest.mark.slow
async def test_after_every_single_commit_it_goes_on_as_if_nothing_had_happened(
    open_process: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = asks("peek", call("count__peek"), text="Let me see."), {"tool": "0", "text": WORDS[:100], "delay_ms": 4}
    process = await open_process(*rules)
    left: list[str] = []
    begin = process.store.begin

    def copied(*changes: Change) -> "asyncio.Future[None]":
        outcome = begin(*changes)
        outcome.add_done_callback(lambda _: left.append(process.left_behind(tmp_path)))
        return outcome

    monkeypatch.setattr(process.store, "begin", copied)
    run = await process.start("peek", None, keep_as=DETACHED)
    whole = plain(await all_of(run))
    assert [kind for kind, *_ in whole] == ["TextAdded", "ToolCalling", "ToolReturned", "TextAdded", "RunDone"]
    assert len(left) > 6
    for url in left:
        later = await open_process(*rules, left=url, tools=Tools())
        events = await all_of(await again(later, run))
        assert plain(events) == whole
        ours, theirs = [[item.text for item in await one.items(run.session_id)] for one in (process, later)]
        assert ours == theirs
        await later.stop()


def plain(events: Sequence[RunEvent]) -> list[tuple[str, ...]]:
    """What was told, without the ids of calls."""
    found: list[tuple[str, ...]] = []
    for event in told(events):
        match event:
            case ToolCalling() | ToolReturned():
                found.append((type(event).__name__, event.call.name, event.call.arguments))
            case TextAdded():
                found.append(("TextAdded", str(event.round), event.text))
            case _:
                found.append((type(event).__name__,))
    return found


async def after_result(run: Follower, count: int) -> Any:
    """The events up to so many after the first result."""
    left: int | None = None
    async for _, event in run.events():
        yield event
        left = count if isinstance(event, ToolReturned) and left is None else left
        if isinstance(event, TextAdded) and left is not None:
            left -= 1
        if left == 0:
            return


async def test_a_call_that_was_being_made_may_have_had_an_effect_which_the_model_reads(
    open_process: Open, tmp_path: Path, tools: Tools
) -> None:
    rules = (
        asks("both", call("count__add", by=1), call("slow__wait", name="it")),
        {"tool_contains": "may have had", "text": "I see."},
    )
    process = await open_process(*rules)
    run = await process.start("both", None, keep_as=DETACHED)
    await waits_for(tools)
    await until(run, ToolReturned)
    seen = [event for event in run.told() if not isinstance(event, TextAdded)]
    later = await open_process(*rules, left=process.left_behind(tmp_path), tools=Tools())
    events = await all_of(await again(later, run))
    assert [event for event in events if not isinstance(event, TextAdded)][: len(seen)] == seen
    returned = [event for event in events if isinstance(event, ToolReturned)]
    assert [(event.call.name, event.result, event.status) for event in returned] == [
        ("count__add", "1", "completed"),
        ("slow__wait", "the server stopped while this call was made; it may have had an effect", "failed"),
    ]
    assert sum(isinstance(event, ToolCalling) for event in events) == 2, "each is told once"
    assert later.tools.count.value == 0
    answered = await answer(await later.runner.run(ALICE, run.id))
    assert (answered.text, answered.status) == ("I see.", RunStatus.COMPLETED)
    tools.slow.go.set()


async def test_a_call_without_an_effect_is_made_again(open_process: Open, tmp_path: Path, tools: Tools) -> None:
    rules = asks("peek", call("count__peek")), {"tool": "0", "text": "Nothing yet."}
    process = await open_process(*rules)
    left: list[str] = []
    tools.count.on_call = lambda: left.append(process.left_behind(tmp_path))
    run = await process.start("peek", None, keep_as=DETACHED)
    await all_of(run)
    later = await open_process(*rules, left=left[0], tools=Tools())
    assert told(await all_of(await again(later, run))) == told(await all_of(run))
    assert len(later.tools.count.contexts) == 1


@pytest.mark.parametrize("approve", [True, False])
async def test_a_decision_that_was_taken_is_carried_out(
    open_process: Open, tmp_path: Path, tools: Tools, approve: bool
) -> None:
    rules, configured = asks("peek", call("count__peek")), {"count": Rules.all(Permission.ASK)}
    process = await open_process(rules, configured=configured)
    run = await process.start("peek", None, wants_events=True, keep_as=DETACHED)
    pause = (await answer(run)).pause
    assert pause is not None
    left: list[str] = []
    tools.count.on_call = lambda: left.append(process.left_behind(tmp_path))
    await process.decide(pause.pause_id, approve, keep_as=DETACHED)
    if not approve:
        left.append(process.left_behind(tmp_path))
    done = await answer(await process.runner.run(ALICE, run.id))
    later = await open_process(rules, left=left[0], tools=Tools(), configured=configured)
    again = await answer(await later.runner.run(ALICE, run.id))
    assert (again.text, again.status) == (done.text, RunStatus.COMPLETED)
    assert again.text == ("0" if approve else "The user denied this tool call.")
    assert len(later.tools.count.contexts) == approve


async def test_results_of_a_client_and_what_came_with_them_are_gone_on_with(open_process: Open, tmp_path: Path) -> None:
    rules = asks("the weather", call("weather", city="Ulm")), says("and now?", WORDS, delay_ms=5)
    process = await open_process(*rules)
    run = await process.start("the weather", None, tools=client_tools(), keep_as=DETACHED)
    (wanted,) = (await answer(run)).calls
    brought = [ToolResultItem(wanted.id, "", "sun"), UserItem("and now?")]
    second = await process.start(brought, None, after=run.leg_id, tools=client_tools(), keep_as=DETACHED)
    at_once = process.left_behind(tmp_path)
    seen = await first(second, 20)
    for left, known in ((at_once, []), (process.left_behind(tmp_path), seen)):
        later = await open_process(*rules, left=left)
        await goes_on(process, later, second, known)


@pytest.mark.parametrize("count", [1, 5, 12])
async def test_a_clients_call_that_was_half_told_keeps_its_id(open_process: Open, tmp_path: Path, count: int) -> None:
    rule = asks("the weather", call("weather", city="Ulm an der Donau und anderswo"), text="Let me.", delay_ms=20)
    process = await open_process(rule)
    run = await process.start("the weather", None, tools=client_tools(), keep_as=DETACHED)
    seen = await first(run, 7 + count)
    later = await open_process(rule, left=process.left_behind(tmp_path))
    ours, theirs = await all_of(await again(later, run)), await all_of(run)
    assert ours[: len(seen)] == seen
    paused = ours[-1]
    assert isinstance(paused, RunPaused)
    assert [one.arguments for one in paused.calls] == [one.arguments for one in (await answer(run)).calls]
    began = {event.call_id for event in ours if isinstance(event, ClientCallStarted)}
    assert began == {one.id for one in paused.calls}
    if any(isinstance(event, ClientCallStarted) for event in seen):
        assert told(ours)[:-1] == told(theirs)[:-1]


HELD: dict[str, dict[str, Any]] = {
    "a stop string": {"stop": ("word50",)},
    "a limit": {"max_tokens": 200},
    "logprobs": {"sampling": AskedSampling(logprobs=2)},
    "a bound of reasoning": {"reasoning": Reasoning(budget=40)},
    "a beginning": {"prefill": Prefill(WORDS[:30]), "stop": ("word50",)},
    "a schema": {
        "response": ResponseFormat("json_schema", {"type": "object", "properties": {"a": {"type": "string"}}}),
        "max_tokens": 300,
    },
}


@pytest.mark.parametrize("held", HELD)
async def test_what_holds_a_round_holds_it_after_a_crash(open_process: Open, tmp_path: Path, held: str) -> None:
    text = '{"a": "' + WORDS + '"}' if held == "a schema" else WORDS
    thought = {"reasoning": WORDS} if held == "a bound of reasoning" else {}
    rule = says("hi", text, delay_ms=5, **thought)
    process = await open_process(rule)
    run = await process.start("hi", None, keep_as=DETACHED, **HELD[held])
    seen = await first(run, 60)
    later = await open_process(rule, left=process.left_behind(tmp_path))
    await goes_on(process, later, run, seen)
    ours, theirs = (await again(later, run)).snapshot(), await answer(run)
    assert ours.logprobs == theirs.logprobs
    assert ours.stop_string == theirs.stop_string
    assert (await later.items(run.session_id))[-1] == (await process.items(run.session_id))[-1]


async def test_a_model_that_is_another_now_ends_it_with_the_reason(open_process: Open, tmp_path: Path) -> None:
    process = await open_process(SLOW)
    run = await process.start("hi", None, keep_as=DETACHED)
    seen = await first(run, 30)
    left = process.left_behind(tmp_path)
    with closing(sqlite3.connect(left.removeprefix("sqlite:///"))) as connection, connection:
        (progress,) = connection.execute("SELECT progress FROM legs").fetchone()
        assert '"weights":"script ' in progress
        connection.execute('UPDATE legs SET progress = replace(progress, \'"weights":"script \', \'"weights":"x \')')
    later = await open_process(SLOW, left=left)
    leg = await again(later, run)
    assert (await all_of(leg))[: len(seen)] == seen
    ended = leg.snapshot()
    reason = "the model scripted is not the one that had begun to answer"
    assert (ended.status, ended.error) == (RunStatus.INTERRUPTED, reason)
    assert ended.diagnostics == [{"kind": "interrupted", "reason": reason}]
    assert (await later.ask("hi", None, after=run.leg_id)).session_id == run.session_id
    await process.cancel(run)


async def test_a_stop_in_order_leaves_it_to_the_next_process(open_process: Open) -> None:
    process, undisturbed = await open_process(SLOW), await open_process(SLOW)
    run = await process.start("hi", None, keep_as=DETACHED)
    seen = await first(run, 30)
    await process.stop()
    assert (await answer(run)).status is RunStatus.RUNNING
    later = await open_process(SLOW, left=process.url)
    events = await all_of(await again(later, run))
    assert events[: len(seen)] == seen
    whole = await undisturbed.start("hi", None, keep_as=DETACHED)
    assert told(events) == told(await all_of(whole))


async def test_it_can_be_cancelled_after_the_restart(open_process: Open, tmp_path: Path) -> None:
    rule = says("hi", WORDS * 20, delay_ms=5)
    process = await open_process(rule)
    run = await process.start("hi", None, keep_as=DETACHED)
    seen = await first(run, 30)
    later = await open_process(rule, left=process.left_behind(tmp_path))
    with anyio.fail_after(PATIENCE_S):
        leg = await later.runner.cancel_leg(ALICE, run.leg_id)
    assert (await all_of(leg))[: len(seen)] == seen
    assert leg.snapshot().status is RunStatus.CANCELLED
    said = (await later.items(run.session_id))[-1]
    assert isinstance(said, AssistantItem)
    assert said.text.startswith("".join(event.text for event in seen if isinstance(event, TextAdded)))
    await process.cancel(run)


ENDED_EACH_TIME = "it was gone on with 3 times, and each time the server stopped before it came further"


async def test_a_leg_that_ends_the_process_each_time_is_gone_on_with_three_times(
    open_process: Open, tmp_path: Path, clock: Clock, tools: Tools
) -> None:
    """As by a tool that brings the whole process down: each process here is the one that was there at the call."""
    rules = asks("peek", call("count__peek")), {"tool": "0", "text": "Nothing yet."}
    process = await open_process(*rules)
    left = [process.left_behind(tmp_path)]
    tools.count.on_call = lambda: left.append(process.left_behind(tmp_path))
    run = await process.start("peek", None, keep_as=DETACHED)
    await all_of(run)
    for tried in range(1, 4):
        there = Process(left[-1], Setup(), clock, Tools())
        again_called = Tools()
        again_called.count.on_call = lambda there=there: left.append(there.left_behind(tmp_path))  # type: ignore[misc]
        later = await open_process(*rules, left=there.url, tools=again_called)
        assert (await answer(await later.runner.run(ALICE, run.id))).status is RunStatus.COMPLETED
        assert len(left) == 2 + tried
    last = await open_process(*rules, left=left[-1], tools=Tools())
    leg = await again(last, run)
    assert (leg.snapshot().status, leg.snapshot().error) == (RunStatus.INTERRUPTED, ENDED_EACH_TIME)
    assert (await last.ask("hello", None, after=run.leg_id)).session_id == run.session_id


@pytest.mark.slow
async def test_a_leg_that_waits_for_a_slot_is_not_tried_and_one_that_comes_further_begins_to_count_anew(
    open_process: Open, tmp_path: Path
) -> None:
    rules = says("first", WORDS * 3, delay_ms=5), says("second", WORDS)
    process = await open_process(*rules, script={"slots": 1})
    runs = [await process.start(said, None, keep_as=DETACHED) for said in ("first", "second")]
    count = 10
    for _ in range(4):
        await first(await again(process, runs[0]), count)
        process = await open_process(*rules, left=process.left_behind(tmp_path), script={"slots": 1})
        count += 20
    for run, text in zip(runs, (WORDS * 3, WORDS), strict=True):
        assert (await answer(await process.runner.run(ALICE, run.id))).text == text


async def test_one_that_is_cancelled_before_it_goes_on_keeps_what_it_had_said(
    open_process: Open, tmp_path: Path
) -> None:
    rules = says("first", WORDS * 20, delay_ms=5), says("second", WORDS * 20, delay_ms=5)
    process = await open_process(*rules, script={"slots": 2})
    runs = [await process.start(said, None, keep_as=DETACHED) for said in ("first", "second")]
    seen = [await first(run, 30) for run in runs]
    later = await open_process(*rules, left=process.left_behind(tmp_path), script={"slots": 1})
    for run, events in zip(reversed(runs), reversed(seen), strict=True):
        with anyio.fail_after(PATIENCE_S):
            leg = await later.runner.cancel_leg(ALICE, run.leg_id)
        assert (await all_of(leg))[: len(events)] == events
        said = (await later.items(run.session_id))[-1]
        assert isinstance(said, AssistantItem)
        assert said.text.startswith("".join(event.text for event in events if isinstance(event, TextAdded)))
        await process.cancel(run)

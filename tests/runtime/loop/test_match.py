"""The paragraph `Match`: which session a request without an id goes on with."""

from pathlib import Path

import anyio
import pytest

from tenuto.errors import ContextTooLong
from tenuto.runtime.loop.events import Answer
from tenuto.sessions.items import AssistantItem, Item, ToolResultItem, UserItem
from tenuto.sessions.records import PauseReason, RunStatus
from tenuto.tools.approvals import Rules
from tests.patience import HANGS_S
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import ALICE, DAY, Clock, Process, answer, asks, call, client_tools, history, says
from tests.runtime.loop.tools import Tools

SLOW = asks("slow", call("slow__wait", name="it"))


async def talked(process: Process, *texts: str) -> list[Item]:
    """A conversation of a stock client that repeats its history."""
    told: list[Item] = []
    for text in texts:
        told.append(UserItem(text))
        told.append(AssistantItem((await process.ask(told, None)).text))
    return told


async def number_of_sessions(process: Process) -> int:
    return len(await process.runner.list_sessions(ALICE, implicit=True, limit=99, after=None))


async def parent_of(process: Process, answer: Answer) -> tuple[str, int] | None:
    parent = (await process.session(answer.session_id)).parent
    return None if parent is None else (parent.uid, parent.at)


async def test_a_request_that_repeats_a_session_goes_on_with_it(open_process: Open) -> None:
    process = await open_process()
    told = await talked(process, "one", "two")
    again = await process.ask([*told, UserItem("three")], None)
    assert await number_of_sessions(process) == 1
    assert (await process.session(again.session_id)).items[:4] == told
    assert again.usage.rounds[0].computed == again.usage.rounds[0].new


@pytest.mark.parametrize(
    "other",
    [{"principal": "bob"}, {"user": "u"}, {"match": False}, {"stored": False}],
    ids=["another principal", "another user", "match off", "not stored"],
)
async def test_it_goes_on_only_for_whoever_began_it(open_process: Open, other: dict[str, object]) -> None:
    process = await open_process()
    first = await process.ask("one", None)
    again = await process.ask([UserItem("one"), AssistantItem("one"), UserItem("two")], None, **other)
    assert again.session_id != first.session_id


async def test_a_user_finds_the_sessions_of_that_user(open_process: Open) -> None:
    process = await open_process()
    first = await process.ask("one", None, user="u")
    told = [UserItem("one"), AssistantItem("one"), UserItem("two")]
    assert (await process.ask(told, None, user="u")).session_id == first.session_id


async def test_a_request_that_repeats_no_answer_begins_a_session_and_shares_the_cache(open_process: Open) -> None:
    process = await open_process()
    first = await process.ask("one", None)
    again = await process.ask("one", None)
    assert again.session_id != first.session_id
    assert again.usage.cached > 0.9 * again.usage.prompt


async def test_a_request_that_fits_two_sessions_goes_on_with_neither(open_process: Open) -> None:
    process = await open_process()
    twins = {(await process.ask("one", None)).session_id for _ in range(2)}
    again = await process.ask([UserItem("one"), AssistantItem("one"), UserItem("two")], None)
    assert again.session_id not in twins
    assert await parent_of(process, again) is None


async def test_of_two_sessions_that_fit_it_goes_on_with_the_one_of_its_clients_hint(
    open_process: Open, tmp_path: Path
) -> None:
    process = await open_process()
    first, second = [await process.ask("one", None, hint=hint) for hint in ("x", "y")]
    told = [UserItem("one"), AssistantItem("one"), UserItem("two")]
    assert (await process.ask(told, None, hint="y")).session_id == second.session_id
    later = await open_process(left=process.left_behind(tmp_path))
    assert (await later.ask([*told[:2], UserItem("three")], None, hint="x")).session_id == first.session_id


async def test_a_session_keeps_its_last_hint(open_process: Open) -> None:
    process = await open_process()
    for said, hint in (("one", "x"), ("two", None), ("three", "y"), ("four", None)):
        await process.ask(said, hint=hint)
    assert (await process.session()).hint == "y"


async def test_a_session_that_has_gone_further_is_forked(open_process: Open) -> None:
    process = await open_process(says("one", "Ah.", reasoning="Let me think."))
    await talked(process, "one", "two", "three")
    (first,) = await process.runner.list_sessions(ALICE, implicit=True, limit=9, after=None)
    origin = await process.session(first.id)
    regenerated: list[Item] = [UserItem("one"), AssistantItem("Ah."), UserItem("two!")]
    forks = [await process.ask(regenerated, None) for _ in range(3)]
    assert len({fork.session_id for fork in forks} | {origin.id}) == 4
    assert [len(one.items) for one in [await process.session(fork.session_id) for fork in forks]] == [4, 4, 4]
    assert await parent_of(process, forks[0]) == (origin.uid, 2)
    for fork in forks:
        session = await process.session(fork.session_id)
        assert session.items[:2] == origin.items[:2], "the reasoning that the client never repeats is there"
        assert fork.usage.rounds[0].computed <= fork.usage.rounds[0].new + 1
    assert len((await process.session(origin.id)).items) == 6


async def test_a_fork_by_match_has_the_exact_tokens_of_its_origin(open_process: Open) -> None:
    process = await open_process(asks("count", call("count__add", by=1), text="Well."))
    told = await talked(process, "count", "two")
    (first,) = await process.runner.list_sessions(ALICE, implicit=True, limit=9, after=None)
    fork = await process.ask([*told[:2], UserItem("other")], None)
    origin, twin = await process.session(first.id), await process.session(fork.session_id)
    assert twin.items[:4] == origin.items[:4]
    for name, ledger in twin.ledgers.items():
        assert ledger.copy(4) == origin.ledgers[name].copy(4)


async def test_a_history_that_a_client_brought_can_be_found_at_each_of_its_turns(open_process: Open) -> None:
    process = await open_process()
    brought = [UserItem("a"), AssistantItem("b"), UserItem("c"), AssistantItem("d"), UserItem("e")]
    first = await process.ask(brought, None)
    origin = await process.session(first.session_id)
    for end in (2, 4):
        fork = await process.ask([*brought[:end], UserItem("other")], None)
        assert await parent_of(process, fork) == (origin.uid, end)


async def test_a_session_that_is_busy_is_forked_at_its_last_turn(open_process: Open, tools: Tools) -> None:
    process = await open_process(SLOW)
    told = await talked(process, "one")
    busy = await process.start([*told, UserItem("slow")], None)
    await waits_for(tools)
    fork = await process.ask([*told, UserItem("two")], None)
    assert fork.session_id != busy.session_id
    assert (await parent_of(process, fork)) == (busy.record.session_uid, 2)
    tools.slow.go.set()
    assert (await answer(busy)).text == "waited for it"
    assert await process.items(fork.session_id) == [*told, UserItem("two"), AssistantItem("two")]


async def test_a_history_that_a_client_brought_can_be_found_while_it_is_being_answered(
    open_process: Open, tools: Tools
) -> None:
    process = await open_process(SLOW)
    brought = [UserItem("a"), AssistantItem("b"), UserItem("slow")]
    busy = await process.start(brought, None)
    await waits_for(tools)
    fork = await process.ask([*brought[:2], UserItem("other")], None)
    assert await parent_of(process, fork) == (busy.record.session_uid, 2)
    tools.slow.go.set()
    await answer(busy)


async def test_of_two_requests_at_once_one_goes_on_and_the_other_forks(open_process: Open) -> None:
    process = await open_process()
    told = await talked(process, "one")
    (first,) = await process.runner.list_sessions(ALICE, implicit=True, limit=9, after=None)
    answers: list[Answer] = []

    async def ask(text: str) -> None:
        answers.append(await process.ask([*told, UserItem(text)], None))

    async with anyio.create_task_group() as group:
        for text in ("two", "three", "four"):
            group.start_soon(ask, text)
    assert sorted(answer.text for answer in answers) == ["four", "three", "two"]
    assert len({answer.session_id for answer in answers}) == 3
    assert [answer.session_id for answer in answers].count(first.id) == 1


async def test_a_session_that_waits_for_the_clients_results_goes_on_with_them(open_process: Open) -> None:
    process = await open_process(asks("weather?", call("weather", city="Oslo")))
    first = await process.ask("weather?", None, tools=client_tools())
    (called,) = first.calls
    told = [UserItem("weather?"), AssistantItem(calls=(called,)), ToolResultItem(called.id, "weather", "rain")]
    again = await process.ask(told, None, tools=client_tools())
    assert (again.run_id, again.text) == (first.run_id, "rain")


async def test_a_session_that_waits_for_a_person_is_forked(open_process: Open) -> None:
    process = await open_process(
        asks("count", call("count__add", by=1), text="One moment."), configured={"count": Rules()}
    )
    told = await talked(process, "one")
    paused = await process.ask([*told, UserItem("count")], None, wants_events=True)
    assert paused.pause is not None
    assert paused.pause.reason is PauseReason.APPROVAL
    for said in ([*told, UserItem("two")], [*told, UserItem("count"), AssistantItem("One moment."), UserItem("two")]):
        fork = await process.ask(said, None)
        assert fork.session_id != paused.session_id
        assert (fork.status, fork.text) == (RunStatus.COMPLETED, "two")
    assert (await answer(await process.decide(paused.pause.pause_id, approve=True))).text == "1"


async def test_an_implicit_session_is_kept_a_day_from_its_last_use(open_process: Open, clock: Clock) -> None:
    process = await open_process()
    first = await process.ask("one", None)
    told = [UserItem("one"), AssistantItem("one"), UserItem("two")]
    clock.now += DAY - 1
    assert (await process.ask(told, None)).session_id == first.session_id
    clock.now += DAY - 1
    await process.runner.expire_sessions()
    assert await number_of_sessions(process) == 1
    clock.now += 2
    await process.runner.expire_sessions()
    assert await number_of_sessions(process) == 0
    assert (await process.ask(told, None)).session_id != first.session_id


async def test_a_session_is_promoted_when_its_id_is_used(open_process: Open, clock: Clock) -> None:
    process = await open_process()
    first = await process.ask("one", None)
    assert [one.id for one in await process.runner.list_sessions(ALICE, implicit=False, limit=9, after=None)] == []
    await process.ask("two", first.session_id)
    clock.now += 100 * DAY
    await process.runner.expire_sessions()
    (listed,) = await process.runner.list_sessions(ALICE, implicit=False, limit=9, after=None)
    assert (listed.id, listed.implicit) == (first.session_id, False)


async def test_a_session_that_is_not_stored_is_in_memory_only(open_process: Open) -> None:
    process = await open_process()
    first = await process.ask("one", None, stored=False)
    assert await number_of_sessions(process) == 0
    assert (await process.ask("two", first.session_id)).session_id == first.session_id
    session = await process.directory.get("alice", first.session_id)
    assert session is not None
    assert len(session.items) == 4


async def test_a_request_that_is_refused_leaves_no_fork_behind(open_process: Open) -> None:
    process = await open_process(script={"cells": 3000})
    told = await talked(process, "one", "two")
    with pytest.raises(ContextTooLong):
        await process.ask([*told[:2], UserItem("x" * 3000)], None)
    assert await number_of_sessions(process) == 1


async def test_a_session_found_by_match_survives_the_process(open_process: Open, tmp_path: object) -> None:
    process = await open_process()
    told = await talked(process, "one", "two")
    later = await open_process(left=process.url)
    for end, text in ((4, "three"), (2, "other")):
        answer = await later.ask([*history(told[:end]), UserItem(text)], None)
        assert (await later.session(answer.session_id)).items[:end] == told[:end]


async def waits_for(tools: Tools) -> None:
    with anyio.fail_after(HANGS_S):
        await tools.slow.begun.wait()

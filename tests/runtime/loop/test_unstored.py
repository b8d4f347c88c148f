"""`store: false` decides what reaches the disk, not what is matched."""

import pytest

from tenuto.sessions.items import AssistantItem, UserItem
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import ALICE, Process, asks, call, client_tools, history, says
from tests.runtime.loop.test_match import number_of_sessions, talked
from tests.runtime.loop.test_one_open_run import TWO, results


async def unstored(process: Process, *texts: str) -> list[object]:
    told: list[object] = []
    for text in texts:
        told.append(UserItem(text))
        told.append(AssistantItem((await process.ask(told, None, stored=False)).text))
    return told


async def test_an_unstored_session_goes_on_by_its_history(open_process: Open) -> None:
    process = await open_process()
    told = await unstored(process, "one", "two")
    again = await process.ask([*told, UserItem("three")], None, stored=False)
    assert [*(await process.session(again.session_id)).items[:4]] == told
    assert again.usage.rounds[0].computed == again.usage.rounds[0].new
    assert again.usage.cached > 0
    assert await number_of_sessions(process) == 0, "nothing has reached the store"


async def test_an_unstored_run_gets_its_clients_results(open_process: Open) -> None:
    process = await open_process(TWO)
    paused = await process.ask([UserItem("weather?")], None, stored=False, tools=client_tools())
    told = history((await process.session(paused.session_id)).items)
    done = await process.ask([*told, *results(paused, "rain", "sun")], None, stored=False, tools=client_tools())
    assert (done.run_id, done.session_id) == (paused.run_id, paused.session_id)
    assert [one.computed for one in done.usage.rounds] == [one.new for one in done.usage.rounds]


@pytest.mark.parametrize("other", [{"principal": "bob"}, {"user": "u"}, {"match": False}])
async def test_it_goes_on_only_for_whoever_began_it(open_process: Open, other: dict[str, object]) -> None:
    process = await open_process()
    first = await process.ask([UserItem("one")], None, stored=False)
    again = await process.ask([UserItem("one"), AssistantItem("one"), UserItem("two")], None, stored=False, **other)
    assert again.session_id != first.session_id


async def test_what_has_gone_further_is_left_at_the_turn_that_is_repeated(open_process: Open) -> None:
    process = await open_process()
    told = await unstored(process, "one", "two")
    branch = await process.ask([*told[:2], UserItem("three")], None, stored=False)
    assert branch.usage.cached > 0
    session = await process.session(branch.session_id)
    assert (session.stored, session.parent is not None) == (False, True)


async def test_a_stored_session_is_left_for_one_in_memory(open_process: Open) -> None:
    process = await open_process()
    told = await talked(process, "one", "two")
    branch = await process.ask([*told, UserItem("three")], None, stored=False)
    session = await process.session(branch.session_id)
    assert (session.stored, len(session.items)) == (False, 6)
    assert branch.usage.rounds[0].computed <= branch.usage.rounds[0].new + 1
    assert branch.usage.cached > 0
    assert await number_of_sessions(process) == 1
    again = await process.ask([*told, UserItem("four")], None)
    assert len((await process.session(again.session_id)).items) == 6, "it is as it was, and goes on"


async def test_what_is_in_memory_only_never_reaches_the_store(open_process: Open) -> None:
    """Not even what the client never saw of it."""
    count = asks("count", call("count__add", by=1))
    process = await open_process(count, says("and?", "more"))
    first = await process.ask([UserItem("count")], None, stored=False)
    again = await process.ask([UserItem("count"), AssistantItem(first.text), UserItem("and?")], None)
    session = await process.session(again.session_id)
    assert (session.stored, again.session_id != first.session_id) == (True, True)
    assert [item.kind for item in session.items] == ["user", "assistant", "user", "assistant"]


async def test_sessions_that_gave_way_are_not_found(open_process: Open) -> None:
    process = await open_process()
    first = await process.ask([UserItem("one")], None, stored=False)
    await process.runner.delete_session(ALICE, first.session_id)
    again = await process.ask([UserItem("one"), AssistantItem("one"), UserItem("two")], None, stored=False)
    assert again.session_id != first.session_id

"""The paragraph `Append or replace`: how the items of a request join those of its session."""

from collections.abc import Awaitable, Callable

import pytest

from tenuto.errors import InvalidRequest, NotFound
from tenuto.sessions.items import AssistantItem, Item, SystemItem, UserItem
from tenuto.sessions.principal import Principal
from tenuto.sessions.records import RunStatus, SessionSummary
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import ALICE, Process, history, says, turn

HI, HO = UserItem("hi"), AssistantItem("hi")
TERSE = SystemItem("Be terse.")


async def test_a_body_of_user_items_is_appended_to_a_session_that_has_been_answered(open_process: Open) -> None:
    process = await open_process()
    await process.ask("hi")
    await process.ask("and now?")
    assert await process.items() == [HI, HO, UserItem("and now?"), AssistantItem("and now?")]


async def test_a_body_with_an_assistant_item_is_the_whole_history(open_process: Open) -> None:
    process = await open_process()
    await process.ask("hi")
    told = [UserItem("hello"), AssistantItem("you"), UserItem("again")]
    await process.ask(told)
    assert await process.items() == [*told, AssistantItem("again")]


async def test_any_body_is_the_whole_history_where_the_session_has_not_been_answered(open_process: Open) -> None:
    process = await open_process(says("hi", "", fail="forward"))
    assert (await process.ask("hi")).status is RunStatus.FAILED
    assert await process.items() == [HI]
    await process.ask([TERSE, UserItem("hello")])
    assert await process.items() == [TERSE, UserItem("hello"), AssistantItem("hello")]


async def test_a_system_item_that_repeats_the_sessions_is_not_appended(open_process: Open) -> None:
    process = await open_process()
    await process.ask([TERSE, HI])
    await process.ask([TERSE, UserItem("again")])
    assert await process.items() == [TERSE, HI, HO, UserItem("again"), AssistantItem("again")]


async def test_another_system_item_is_refused_and_changes_nothing(open_process: Open) -> None:
    process = await open_process()
    await process.ask([TERSE, HI])
    with pytest.raises(InvalidRequest) as raised:
        await process.ask([SystemItem("Ramble."), HI])
    assert raised.value.param == "messages"
    assert await process.items() == [TERSE, HI, HO]


@pytest.mark.parametrize(
    ("mode", "said", "kept"),
    [("append", [UserItem("an example"), AssistantItem("good"), UserItem("x")], 2), ("replace", [UserItem("x")], 0)],
)
async def test_the_request_may_say_which_it_is(open_process: Open, mode: str, said: list[Item], kept: int) -> None:
    process = await open_process()
    await process.ask("hi")
    await process.ask(said, mode=mode)
    assert await process.items() == [*[HI, HO][:kept], *said, AssistantItem("x")]


async def test_a_body_that_asks_nothing_is_refused(open_process: Open) -> None:
    process = await open_process()
    await process.ask("hi")
    with pytest.raises(InvalidRequest):
        await process.ask([HI, HO])
    with pytest.raises(InvalidRequest):
        await process.ask([], mode="append")
    assert await process.items() == [HI, HO]


async def test_an_id_that_nobody_has_used_makes_a_session(open_process: Open) -> None:
    process = await open_process()
    answer = await process.ask("hi", "My-session_1.0")
    assert answer.session_id == "My-session_1.0"
    assert [one.id for one in await listed(process)] == ["My-session_1.0"]


async def test_an_id_that_cannot_be_is_refused(open_process: Open) -> None:
    process = await open_process()
    for id in ("", "a b", "x" * 129):
        with pytest.raises(InvalidRequest):
            await process.ask("hi", id)


async def test_only_reading_deleting_and_forking_need_a_session_to_be_there(open_process: Open) -> None:
    process = await open_process()
    for ask in asking(process, "alice"):
        with pytest.raises(NotFound):
            await ask()
    assert await listed(process) == []


async def test_the_id_of_another_principal_answers_as_an_unknown_one_does(open_process: Open) -> None:
    process = await open_process()
    await process.ask("hi")
    for ask, unknown in zip(asking(process, "bob"), asking(process, "bob", "nobodys"), strict=True):
        with pytest.raises(NotFound) as raised:
            await ask()
        with pytest.raises(NotFound) as expected:
            await unknown()
        assert str(raised.value) == str(expected.value).replace("nobodys", "s")
    await process.ask("hello", principal="bob")
    assert (await process.session("s", "bob")).items == [UserItem("hello"), AssistantItem("hello")]
    assert await process.items() == [HI, HO]


async def test_a_repeated_history_adds_only_what_is_new(open_process: Open) -> None:
    process = await open_process()
    first = await process.ask("hi")
    again = await process.ask([*history(await process.items()), UserItem("again")])
    assert await process.items() == [HI, HO, UserItem("again"), AssistantItem("again")]
    assert again.usage.rounds[0].miss_reason is None
    assert again.usage.computed < first.usage.computed


async def test_a_session_in_memory_only_may_have_a_name(open_process: Open) -> None:
    process = await open_process()
    await process.ask("hi", stored=False)
    await process.ask("again", stored=False)
    session = await process.directory.get("alice", "s")
    assert session is not None
    assert len(session.items) == 4
    assert await process.store.session("alice", "s") is None


@pytest.mark.parametrize("stored", [True, False])
async def test_a_request_cannot_change_whether_a_session_is_stored(open_process: Open, stored: bool) -> None:
    process = await open_process()
    await process.ask("hi", stored=stored)
    for refused in (process.start("again", stored=not stored), process.runner.preview(turn("", stored=not stored))):
        with pytest.raises(InvalidRequest, match="use another session_id") as raised:
            await refused
        assert raised.value.param == "store"
    await process.ask("again")  # without a word it goes with the session
    session = await process.directory.get("alice", "s")
    assert session is not None
    assert len(session.items) == 4
    assert (await process.store.session("alice", "s") is not None) is stored


async def listed(process: Process) -> list[SessionSummary]:
    return await process.runner.list_sessions(ALICE, implicit=True, limit=9, after=None)


def asking(process: Process, principal: str, id: str = "s") -> tuple[Callable[[], Awaitable[object]], ...]:
    runner, whoever = process.runner, Principal(principal)
    return (
        lambda: runner.export_session(whoever, id),
        lambda: runner.delete_session(whoever, id),
        lambda: runner.fork_session(whoever, id, None, None),
    )

"""What is done with a session's items beside its runs: it holds for everybody at once, and after a restart."""

from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tenuto.errors import Conflict, InvalidRequest, NotFound, SessionBusy, SessionPaused
from tenuto.runtime.loop import conversations
from tenuto.runtime.loop.requests import KeepAs
from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolCall, ToolResultItem, UserItem
from tenuto.sessions.principal import Principal
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import ALICE, Process, answer, asks, call, client_tools, says

BOB = Principal("bob")


def texts(items: list[Item]) -> list[str]:
    return [item.text for item in items]


async def names(process: Process, id: str = "s") -> list[str]:
    page = await process.runner.parts(ALICE, id, None, 100, newest_first=False)
    return [one.name for one in page.parts]


async def test_a_restart_changes_nothing(open_process: Open) -> None:
    process = await open_process(says("one", "two", reasoning="hm"))
    await process.runner.begin_session(ALICE, "s", [UserItem("a"), UserItem("b")], {"topic": "x"})
    await process.runner.remove_part(ALICE, "s", (await names(process))[0])
    await process.ask("one", is_appended=True)
    before = await names(process)
    await process.stop()
    later = await open_process(left=process.url)
    assert await names(later) == before
    session = await later.session()
    assert (texts(session.items), session.metadata, session.removed) == (["b", "one", "two"], {"topic": "x"}, (0,))
    await later.runner.remove_part(ALICE, "s", before[2])
    assert (await later.items())[-1] == AssistantItem("two"), "reasoning is a part of its own"


async def test_nothing_of_a_conversation_is_another_principals(open_process: Open) -> None:
    process = await open_process()
    runner = process.runner
    await runner.begin_session(ALICE, "s", [UserItem("a")], {"a": "b"})
    (name,) = await names(process)
    await runner.begin_session(BOB, "t", [UserItem("a")], {})
    for ask in (
        runner.session(BOB, "s"),
        runner.describe_session(BOB, "s", {}),
        runner.add_items(BOB, "s", [UserItem("b")]),
        runner.parts(BOB, "s", None, 5, newest_first=True),
        runner.part(BOB, "s", name),
        runner.remove_part(BOB, "s", name),
        runner.part(BOB, "t", name),
        runner.remove_part(BOB, "t", name),
    ):
        with pytest.raises(NotFound):
            await ask
    with pytest.raises(NotFound):
        await process.start("x", "s", principal="bob", is_appended=True)
    with pytest.raises(Conflict):
        await runner.begin_session(ALICE, "s", [], {})
    session = await process.session()
    assert (texts(session.items), session.metadata) == (["a"], {"a": "b"})


async def test_two_clients_at_once_have_both_what_they_added(open_process: Open) -> None:
    process = await open_process()
    await process.runner.begin_session(ALICE, "s", [], {})
    outcomes: list[str] = []

    async def add(text: str) -> None:
        (part,) = await process.runner.add_items(ALICE, "s", [UserItem(text)])
        assert part.part.item == UserItem(text)
        outcomes.append(part.name)

    async def take() -> None:
        await anyio.lowlevel.checkpoint()
        for name in await names(process):
            with suppress(NotFound):
                await process.runner.remove_part(ALICE, "s", name)

    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(add, str(number))
            if number % 3 == 0:
                group.start_soon(take)
    left = await names(process)
    assert set(left) <= set(outcomes)
    assert len(set(outcomes)) == 12
    assert len((await process.session()).removed) == 12 - len(left)


async def test_metadata_that_comes_while_a_run_is_at_work_is_kept_beside_what_it_says(open_process: Open) -> None:
    process = await open_process(asks("add", *[call("count__add", by=1)] * 3, text="a"))
    await process.runner.begin_session(ALICE, "s", [], {})
    for number in range(8):
        run = await process.start("add", is_appended=True)
        while run.run.working:
            await process.runner.describe_session(ALICE, "s", {"number": str(number)})
        assert (await answer(run)).error is None
        assert (await process.session()).metadata == {"number": str(number)}, "and the store has what memory has"


async def test_what_a_run_is_at_work_on_or_waits_for_is_not_changed(open_process: Open) -> None:
    process = await open_process(asks("the weather", call("weather", city="Ulm")), says("long", "y" * 400, delay_ms=2))
    run = await process.start("long")
    with pytest.raises(SessionBusy):
        await process.runner.add_items(ALICE, "s", [UserItem("x")])
    await process.cancel(run)
    paused = await process.ask("the weather", "t", tools=client_tools())
    name = (await names(process, "t"))[0]
    with pytest.raises(SessionPaused, match=paused.calls[0].id):
        await process.runner.remove_part(ALICE, "t", name)
    await process.runner.delete_session(ALICE, "t")
    with pytest.raises(NotFound):
        await process.runner.add_items(ALICE, "t", [UserItem("x")])


async def test_a_run_in_the_middle_keeps_its_instructions_and_the_next_has_its_own(open_process: Open) -> None:
    process = await open_process(asks("the weather", call("weather", city="Ulm")), {"tool": "sun", "text": "hat"})
    await process.runner.begin_session(ALICE, "s", [UserItem("before")], {})
    brief, rhyme = SystemItem("Be brief."), SystemItem("Rhyme.")
    fields: dict[str, Any] = {
        "is_instructed": True,
        "is_appended": True,
        "tools": client_tools(),
        "keep_as": KeepAs({}),
    }
    first = await process.start([brief, UserItem("the weather")], **fields)
    (wanted,) = (await answer(first)).calls
    second = await process.start([rhyme, ToolResultItem(wanted.id, "", "sun")], **fields)
    assert (await answer(second)).text == "hat"
    assert (await process.items())[0] == brief
    again = await process.start([brief, UserItem("the weather")], **fields)
    await answer(again)
    third = await process.start([rhyme, UserItem("other")], **fields)
    await answer(third)
    assert texts(await process.items())[:2] == ["Rhyme.", "before"]
    for leg, said in ((first, ["the weather"]), (second, ["sun"]), (again, ["the weather"]), (third, ["other"])):
        assert texts([*await process.runner.brought(ALICE, leg.leg_id)]) == said


async def test_calls_without_results_are_closed_when_something_else_is_added(open_process: Open) -> None:
    process = await open_process()
    asked = AssistantItem(calls=(ToolCall("c1", "weather", "{}"),))
    await process.runner.begin_session(ALICE, "s", [UserItem("a"), asked], {})
    with pytest.raises(InvalidRequest, match="no open tool call"):
        await process.runner.add_items(ALICE, "s", [ToolResultItem("c2", "", "sun")])
    await process.runner.add_items(ALICE, "s", [UserItem("b")])
    assert texts(await process.items()) == ["a", "", "not executed: the client went on", "b"]
    assert (await process.ask([], is_appended=True)).text == "b"


async def test_a_conversation_has_room_for_so_much(open_process: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    process = await open_process()
    await process.runner.begin_session(ALICE, "s", [UserItem("a")], {})
    monkeypatch.setattr(conversations, "MOST_BYTES", 2_000)
    with pytest.raises(InvalidRequest, match="at most 2000 bytes"):
        await process.runner.add_items(ALICE, "s", [UserItem("b" * 2_000)])
    monkeypatch.setattr(conversations, "MOST_ITEMS", 2)
    await process.runner.add_items(ALICE, "s", [UserItem("b")])
    with pytest.raises(InvalidRequest, match="at most 2 items"):
        await process.runner.add_items(ALICE, "s", [UserItem("c")])
    assert texts(await process.items()) == ["a", "b"]

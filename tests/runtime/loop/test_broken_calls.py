"""A call that cannot be read is text for the client, and the model is told once what was wrong with it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import InvalidRequest
from tenuto.runtime.loop.events import StopReason
from tenuto.runtime.loop.requests import KeepAs
from tenuto.sessions.changes import Change
from tenuto.sessions.items import AssistantItem, Item, ToolCall, UserItem
from tenuto.sessions.records import RunStatus
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import ALICE, Process, answer, asks, call, client_tools, history, says
from tests.runtime.loop.test_recovery import all_of, plain
from tests.runtime.loop.tools import Tools

BROKEN = '<tool_call>{"count": 1}</tool_call>'
BREAKS = {"user": "count", "text": "Let me see. ", "raw": BROKEN}
TOLD = {"user_contains": "cannot be read"}
MENDS = {**TOLD, "turn": 2, "calls": [call("count__add", by=1)]}
RULES = (BREAKS, MENDS, {"tool": "1", "text": "One."}, says("and now?", "Still one."))


async def opened(open_process: Open, *rules: Any, **setup: Any) -> Process:
    return await open_process(*rules, holds_calls=False, **setup)


def kinds(items: list[Item]) -> list[str]:
    return [item.kind for item in items]


async def test_the_model_is_told_and_calls_again(open_process: Open, tools: Tools) -> None:
    process = await opened(open_process, *RULES)
    answered = await process.ask("count")
    assert (answered.text, answered.stop_reason) == (f"Let me see.{BROKEN}One.", StopReason.END)
    assert answered.diagnostics == [{"kind": "broken_call", "reason": "the call names no tool", "text": BROKEN}]
    assert [made.name for made in answered.server_calls] == ["count__add"]
    assert tools.count.value == 1
    items = await process.items()
    assert kinds(items) == ["user", "assistant", "note", "assistant", "tool_result", "assistant"]
    assert "the call names no tool" in items[2].text
    assert items[2].text in await process.tokens()


async def test_it_is_told_once_a_run(open_process: Open) -> None:
    process = await opened(open_process, BREAKS, {**TOLD, "raw": BROKEN}, says("again", "Yes."))
    answered = await process.ask("count")
    assert (answered.text, answered.stop_reason) == (f"Let me see.{BROKEN}{BROKEN}", StopReason.END)
    assert kinds(await process.items()) == ["user", "assistant", "note", "assistant"]
    await process.ask("count")
    assert kinds(await process.items())[4:] == ["user", "assistant", "note", "assistant"], (
        "the next run may tell it too"
    )


async def test_a_client_that_repeats_what_it_saw_goes_on_with_the_session(open_process: Open) -> None:
    process = await opened(open_process, *RULES)
    first = await process.ask("count", None)
    seen = [UserItem("count"), AssistantItem(first.text), UserItem("and now?")]
    then = await process.ask(seen, None)
    assert (then.session_id, then.text) == (first.session_id, "Still one.")
    assert kinds(await process.items(then.session_id))[:3] == ["user", "assistant", "note"], "nothing was cut"


NOT_TOLD: dict[str, dict[str, Any]] = {
    "whose tools are all the client's": {"tools": client_tools()},
    "that may not call": {"choice": "none"},
    "whose calls are not made": {"max_tool_rounds": 0},
    "that has said all that it may": {"max_tokens": 60},
    "that a stop string ends": {"stop": ("</tool",)},
}


@pytest.mark.parametrize("why", NOT_TOLD)
async def test_a_run_is_not_told(open_process: Open, why: str) -> None:
    process = await opened(open_process, *RULES)
    answered = await process.ask("count", **NOT_TOLD[why])
    assert answered.status is RunStatus.COMPLETED
    assert kinds(await process.items()) == ["user", "assistant"]


async def test_nobody_is_shown_the_note_among_the_items(open_process: Open) -> None:
    process = await opened(open_process, *RULES)
    await process.ask("count")
    page = await process.runner.parts(ALICE, "s", None, 100, newest_first=False)
    assert [part.part.kind for part in page.parts] == ["message", "message", "call", "message"]
    assert [part.part.item.kind for part in page.parts] == ["user", "assistant", "assistant", "assistant"]


async def test_a_fork_has_the_note_and_begins_with_no_part_of_the_turn(open_process: Open) -> None:
    process = await opened(open_process, *RULES)
    await process.ask("count")
    whole = await process.items()
    for at, keep in ((None, 6), (6, 6), (4, 1), (3, 1), (2, 2)):
        fork = await process.runner.fork_session(ALICE, "s", at, None)
        assert fork.items == whole[:keep], f"at {at}"
        assert all(ledger.items <= keep for ledger in fork.ledgers.values())


async def test_there_is_nothing_to_answer_after_a_note(open_process: Open) -> None:
    process = await opened(open_process, BREAKS, {**TOLD, "text": "never said", "fail": "forward"})
    assert (await process.ask("count")).status is RunStatus.FAILED
    items = await process.items()
    assert kinds(items)[:3] == ["user", "assistant", "note"]
    with pytest.raises(InvalidRequest, match="nothing to answer"):
        await process.ask(history(items[:2]), mode="replace")


async def test_after_every_commit_it_goes_on_and_tells_the_model_once(
    open_process: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = (BREAKS, {**TOLD, "text": "As you wish."})
    process = await opened(open_process, *rules)
    left: list[str] = []
    begin = process.store.begin

    def copied(*changes: Change) -> "asyncio.Future[None]":
        outcome = begin(*changes)
        outcome.add_done_callback(lambda _: left.append(process.left_behind(tmp_path)))
        return outcome

    monkeypatch.setattr(process.store, "begin", copied)
    run = await process.start("count", None, keep_as=KeepAs({}, is_detached=True))
    whole = plain(await all_of(run))
    for url in left:
        later = await opened(open_process, *rules, left=url)
        assert plain(await all_of(await later.runner.leg(ALICE, run.leg_id))) == whole
        ours, theirs = [await one.session(run.session_id) for one in (process, later)]
        assert ours.items == theirs.items
        assert [ledger.tokens for ledger in ours.ledgers.values()] == [
            ledger.tokens for ledger in theirs.ledgers.values()
        ]
        await later.stop()


async def test_a_call_beside_it_goes_on_with_its_result_alone(open_process: Open) -> None:
    beside = {**BREAKS, "calls": [call("count__add", by=1)]}
    process = await opened(open_process, beside, {"tool": "1", "text": "One."})
    await process.ask("count")
    assert kinds(await process.items()) == ["user", "assistant", "tool_result", "assistant"]


async def test_a_named_call_that_broke_is_a_call_whose_result_says_so(open_process: Open) -> None:
    raw = '<tool_call>{"name": "count__add", "arguments": {"by": }}</tool_call>'
    process = await opened(open_process, {"user": "count", "raw": raw}, {"tool_contains": "", "text": "Oh."})
    answered = await process.ask("count")
    items = await process.items()
    assert kinds(items) == ["user", "assistant", "tool_result", "assistant"]
    assert isinstance(items[1], AssistantItem)
    assert [type(made) for made in items[1].calls] == [ToolCall]
    assert answered.server_calls[0].status == "failed"


async def test_a_whole_call_is_never_told_of(open_process: Open) -> None:
    process = await opened(open_process, asks("count", call("count__add", by=1)), {"tool": "1", "text": "One."})
    await process.ask("count")
    assert "note" not in kinds(await process.items())
    assert (await answer(await process.start("count", "t"))).diagnostics == []

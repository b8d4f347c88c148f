"""The paragraph `Permission`: what may be called without asking, how a person is asked, and what an answer does."""

import pytest

from tenuto.errors import AlreadyDecided, NotFound
from tenuto.runtime.loop.events import Answer, RunPaused, ToolCalling
from tenuto.sessions.items import AssistantItem, ToolResultItem
from tenuto.sessions.records import PauseReason, PauseStatus, RunStatus
from tenuto.tools.approvals import Permission, Rules
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import ALICE, Clock, Process, answer, asks, call, client_tools, events, until
from tests.runtime.loop.tools import Tools

COUNT = asks("count", call("count__add", by=1))
PEEK = asks("peek", call("count__peek"))
CONFIGURED = {"count": Rules()}


def rules(**permissions: str) -> dict[str, Rules]:
    return {"count": Rules(tuple((name, Permission(word)) for name, word in permissions.items()))}


def pause_of(answer: Answer) -> str:
    assert answer.status is RunStatus.PAUSED
    assert answer.pause is not None
    assert answer.pause.reason is PauseReason.APPROVAL
    assert answer.pause.pause_id is not None
    return answer.pause.pause_id


async def asked(process: Process, said: str = "count", id: str = "s", **fields: object) -> Answer:
    return await process.ask(said, id, wants_events=True, **fields)


async def results(process: Process) -> list[str]:
    return [one.text for one in await process.items() if isinstance(one, ToolResultItem)]


async def test_built_in_tools_need_nobodys_word(open_process: Open) -> None:
    process = await open_process(asks("sum", call("calculator__evaluate", expression="2+3")), configured=CONFIGURED)
    assert (await process.ask("sum")).text == "5"


@pytest.mark.parametrize(
    ("entry", "everywhere", "expected"),
    [
        ({}, None, "ask"),
        ({}, Permission.AUTO, "auto"),
        ({}, Permission.DENY, "deny"),
        ({"add": "auto"}, Permission.DENY, "auto"),
        ({"add": "deny"}, Permission.AUTO, "deny"),
        ({"*": "deny", "add": "auto"}, None, "auto"),
        ({"a*": "ask"}, Permission.AUTO, "ask"),
        ({"peek": "auto"}, None, "ask"),
    ],
)
async def test_a_configured_servers_entry_comes_before_what_holds_for_all(
    open_process: Open, entry: dict[str, str], everywhere: Permission | None, expected: str
) -> None:
    process = await open_process(COUNT, configured=rules(**entry), everywhere=everywhere)
    done = await asked(process)
    status = done.server_calls[0].status if done.server_calls else "ask"
    assert status == {"auto": "completed", "deny": "denied", "ask": "ask"}[expected]
    assert (done.status is RunStatus.PAUSED) is (expected == "ask")


async def test_where_nobody_can_be_asked_it_is_denied_with_a_result_that_names_the_setting(
    open_process: Open, tools: Tools
) -> None:
    process = await open_process(COUNT, configured=CONFIGURED)
    done = await process.ask("count")
    assert done.status is RunStatus.COMPLETED
    assert [one.status for one in done.server_calls] == ["denied"]
    assert '"permission"' in done.text
    assert "--agent-permission" in done.text
    assert tools.count.value == 0


@pytest.mark.parametrize(
    ("setting", "request_word", "expected"),
    [
        ("auto", "ask", "ask"),
        ("auto", "deny", "deny"),
        ("ask", "auto", "ask"),
        ("deny", "auto", "deny"),
        ("deny", "ask", "deny"),
        ("ask", "deny", "deny"),
    ],
)
async def test_a_request_tightens_and_never_loosens(
    open_process: Open, setting: str, request_word: str, expected: str
) -> None:
    process = await open_process(COUNT, configured=rules(add=setting))
    done = await asked(process, permission=Permission(request_word))
    status = done.server_calls[0].status if done.server_calls else "ask"
    assert status == {"deny": "denied", "ask": "ask"}[expected]


async def test_a_request_can_tighten_what_is_built_in(open_process: Open) -> None:
    process = await open_process(asks("sum", call("calculator__evaluate", expression="2+3")))
    assert (await asked(process, "sum", permission=Permission.ASK)).status is RunStatus.PAUSED
    denied = await asked(process, "sum", "other", permission=Permission.DENY)
    assert "agent_permission is deny" in denied.text


async def test_a_call_that_is_asked_about_is_not_made_before_the_answer(open_process: Open, tools: Tools) -> None:
    process = await open_process(COUNT, configured=CONFIGURED)
    run = await process.start("count", wants_events=True)
    seen = await events(run)
    assert not any(isinstance(one, ToolCalling) for one in seen)
    assert isinstance(paused := seen[-1], RunPaused)
    assert [(one.name, one.arguments) for one in paused.calls] == [("count__add", '{"by": 1}')]
    assert tools.count.value == 0
    assert run.record.status is RunStatus.PAUSED


async def test_the_run_goes_on_after_an_approval(open_process: Open, tools: Tools) -> None:
    process = await open_process(COUNT, configured=CONFIGURED)
    paused = await asked(process)
    run = await process.decide(pause_of(paused), approve=True)
    done = await answer(run)
    assert (done.run_id, done.status, done.text) == (paused.run_id, RunStatus.COMPLETED, "1")
    assert tools.count.value == 1
    assert done.usage.rounds[1].computed == done.usage.rounds[1].new


@pytest.mark.parametrize("message", [None, "Use peek."])
async def test_the_model_reads_a_denial_and_what_the_person_said(
    open_process: Open, tools: Tools, message: str | None
) -> None:
    process = await open_process(COUNT, configured=CONFIGURED)
    paused = await asked(process)
    done = await answer(await process.decide(pause_of(paused), approve=False, message=message))
    assert done.text == " ".join(filter(None, ("The user denied this tool call.", message)))
    assert [one.status for one in done.server_calls] == ["denied"]
    assert tools.count.value == 0


@pytest.mark.parametrize("approve", [True, False])
async def test_an_approval_is_answered_once(open_process: Open, approve: bool) -> None:
    process = await open_process(COUNT, configured=CONFIGURED)
    pause = pause_of(await asked(process))
    await answer(await process.decide(pause, approve=approve))
    with pytest.raises(AlreadyDecided):
        await process.decide(pause, approve=True)
    later = await open_process(left=process.url)
    with pytest.raises(AlreadyDecided):
        await later.decide(pause, approve=True)


async def test_an_approval_that_has_expired_is_answered_no_more(open_process: Open, clock: Clock) -> None:
    process = await open_process(COUNT, configured=CONFIGURED)
    paused = await asked(process)
    clock.now += 3600
    with pytest.raises(AlreadyDecided):
        await process.decide(pause_of(paused), approve=True)
    assert (await process.runner.run(ALICE, paused.run_id)).record.status is RunStatus.EXPIRED
    assert (await process.ask("hi")).text == "hi"


async def test_an_approval_of_a_run_that_was_cancelled_is_answered_no_more(open_process: Open, tools: Tools) -> None:
    process = await open_process(COUNT, configured=CONFIGURED)
    paused = await asked(process)
    run = await process.runner.run(ALICE, paused.run_id)
    await process.cancel(run)
    with pytest.raises(AlreadyDecided):
        await process.decide(pause_of(paused), approve=True)
    (kept,) = await process.store.run_pauses(run.id)
    assert kept.status is PauseStatus.CLOSED
    assert tools.count.value == 0


async def test_only_the_principal_of_the_run_can_answer(open_process: Open) -> None:
    process = await open_process(COUNT, configured=CONFIGURED)
    pause = pause_of(await asked(process))
    with pytest.raises(NotFound):
        await process.decide(pause, approve=True, principal="bob")
    with pytest.raises(NotFound):
        await process.decide("appr_nobody", approve=True)
    assert (await answer(await process.decide(pause, approve=True))).text == "1"


async def test_an_approval_can_be_remembered_for_the_session(open_process: Open, tools: Tools) -> None:
    process = await open_process(COUNT, PEEK, configured=CONFIGURED)
    await answer(await process.decide(pause_of(await asked(process)), approve=True, remember=True))
    assert (await asked(process)).text == "2"
    assert (await process.ask("count")).text == "3", "also where nobody can be asked"
    later = await open_process(COUNT, PEEK, configured=CONFIGURED, left=process.url)
    assert (await asked(later)).text == "4"
    assert pause_of(await asked(later, "peek")), "another tool"
    assert pause_of(await asked(later, "count", "elsewhere")), "another session"


async def test_a_denial_is_not_remembered(open_process: Open) -> None:
    process = await open_process(COUNT, configured=CONFIGURED)
    await answer(await process.decide(pause_of(await asked(process)), approve=False, remember=True))
    assert pause_of(await asked(process))


async def test_remembering_does_not_loosen_a_denial(open_process: Open) -> None:
    process = await open_process(COUNT, configured=CONFIGURED)
    await answer(await process.decide(pause_of(await asked(process)), approve=True, remember=True))
    denied = await asked(process, permission=Permission.DENY)
    assert [one.status for one in denied.server_calls] == ["denied"]


async def test_several_calls_are_asked_about_one_after_the_other(open_process: Open, tools: Tools) -> None:
    both = asks("both", call("count__add", by=1), call("calculator__evaluate", expression="6*7"), call("count__peek"))
    process = await open_process(both, configured=CONFIGURED)
    first = await asked(process, "both")
    assert first.pause is not None
    assert [one.name for one in first.pause.calls] == ["count__add"]
    assert [one.result for one in first.server_calls] == ["42"], "what needs no word does not wait"
    second = await answer(await process.decide(pause_of(first), approve=True))
    assert second.pause is not None
    assert [one.name for one in second.pause.calls] == ["count__peek"]
    assert tools.count.value == 1
    done = await answer(await process.decide(pause_of(second), approve=False))
    assert done.run_id == first.run_id
    assert await results(process) == ["1", "42", "The user denied this tool call."]


async def test_approvals_and_the_clients_calls_may_stand_in_one_turn(open_process: Open) -> None:
    mixed = asks("mixed", call("weather", city="Oslo"), call("count__add", by=1))
    process = await open_process(mixed, configured=CONFIGURED)
    paused = await asked(process, "mixed", tools=client_tools(servers={"count": None}))
    waiting = await answer(await process.decide(pause_of(paused), approve=True))
    assert waiting.pause is not None
    assert waiting.pause.reason is PauseReason.CLIENT_TOOL
    (called,) = waiting.pause.calls
    done = await process.ask([ToolResultItem(called.id, "", "rain")])
    assert (done.run_id, done.status) == (paused.run_id, RunStatus.COMPLETED)
    assert await results(process) == ["rain", "1"]


async def test_a_session_in_memory_only_can_be_asked_about_too(open_process: Open) -> None:
    process = await open_process(COUNT, configured=CONFIGURED)
    paused = await asked(process, stored=False)
    done = await answer(await process.decide(pause_of(paused), approve=True))
    assert done.text == "1"
    assert await process.store.run(done.run_id) is None


@pytest.mark.parametrize("stored", [True, False])
async def test_an_approval_is_answered_once_wherever_its_session_is(open_process: Open, stored: bool) -> None:
    process = await open_process(COUNT, configured=CONFIGURED)
    decided = pause_of(await asked(process, stored=stored))
    run = await process.decide(decided, approve=True)
    with pytest.raises(AlreadyDecided, match="already approved"):
        await process.decide(decided, approve=False)
    await answer(run)
    cancelled = await asked(process, stored=stored)
    await process.cancel(await process.runner.run(ALICE, cancelled.run_id))
    for pause, state in ((decided, "approved"), (pause_of(cancelled), "closed")):
        with pytest.raises(AlreadyDecided, match=f"already {state}"):
            await process.decide(pause, approve=True)
        with pytest.raises(NotFound):
            await process.decide(pause, approve=True, principal="bob")


async def test_who_calls_is_not_taken_from_what_the_model_wrote(open_process: Open, tools: Tools) -> None:
    process = await open_process(COUNT)
    done = await process.ask("count")
    (context,) = tools.count.contexts
    (_, item, *_) = await process.items()
    assert isinstance(item, AssistantItem)
    session = await process.session()
    assert (context.principal, context.session, context.run) == ("alice", session.uid, done.run_id)
    assert context.call == item.calls[0].id


async def test_the_events_of_the_leg_after_an_approval_begin_with_the_call(open_process: Open) -> None:
    process = await open_process(COUNT, configured=CONFIGURED)
    run = await process.start("count", wants_events=True)
    paused = await until(run, RunPaused)
    assert isinstance(paused, RunPaused)
    again = await process.decide(paused.pause_id, approve=True)
    assert again is run.run
    assert next(type(one) for one in await events(again)) is ToolCalling

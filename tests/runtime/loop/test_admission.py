"""A request that cannot be taken is refused at once, before anything has changed, and costs nobody else a place."""

import anyio
import pytest

from tenuto.errors import InvalidRequest, NotFound, Overloaded
from tenuto.runtime.loop.events import TextAdded
from tenuto.runtime.loop.turn_options import Defaults
from tenuto.sessions.items import ToolSpec
from tenuto.sessions.principal import Principal
from tests.patience import HANGS_S
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import answer, client_tools, says, until
from tests.runtime.loop.test_match import SLOW, waits_for
from tests.runtime.loop.tools import Tools, spec

LONG = says("long", "x" * 3000, delay_ms=1)


async def test_a_full_queue_refuses_at_once_and_keeps_nothing(open_process: Open) -> None:
    process = await open_process(LONG, script={"slots": 1}, queue=1)
    runs = [await process.start("long", "a"), await process.start("long", "b")]
    await until(runs[0], TextAdded)
    with pytest.raises(Overloaded) as raised:
        await process.ask("hi", "c")
    assert raised.value.retry_after_s > 0
    assert await process.store.session("alice", "c") is None
    with anyio.fail_after(HANGS_S):
        for run in runs:
            await process.cancel(run)
    assert (await process.ask("hi", "c")).text == "hi"


async def test_a_run_that_waits_for_a_tool_takes_no_place_from_others(open_process: Open, tools: Tools) -> None:
    process = await open_process(SLOW, script={"slots": 1}, queue=0)
    run = await process.start("slow")
    await waits_for(tools)
    assert (await process.ask("hi", "other")).text == "hi"
    tools.slow.go.set()
    assert (await answer(run)).text == "waited for it"


async def test_requests_that_are_refused_or_repeated_give_their_place_back(open_process: Open) -> None:
    process = await open_process(script={"slots": 1}, queue=0)
    for _ in range(3):
        with pytest.raises(InvalidRequest):
            await process.ask("hi", tools=client_tools(spec("count__add")))
        with pytest.raises(InvalidRequest):
            await process.ask("hi", "not an id")
        first = await process.ask("hi", "s", idempotency_key="k")
        assert first.text == "hi"


async def test_more_runs_than_the_table_holds_are_refused(open_process: Open, tools: Tools) -> None:
    process = await open_process(SLOW, defaults=Defaults(max_runs=1))
    run = await process.start("slow")
    await waits_for(tools)
    with pytest.raises(Overloaded):
        await process.ask("hi", "other")
    tools.slow.go.set()
    await answer(run)
    assert (await process.ask("hi", "other")).text == "hi"


async def test_a_model_that_is_not_served_is_named(open_process: Open) -> None:
    process = await open_process()
    with pytest.raises(NotFound, match="scripted, other"):
        await process.ask("hi", model="nobody")
    assert (await process.ask("hi", model="default")).model == "scripted"


async def test_runs_with_equal_tools_have_them_once(open_process: Open) -> None:
    process = await open_process()
    runs = []
    for number in range(2):
        tools = client_tools(ToolSpec("mine", "does it", {"type": "object", "properties": {}}))
        follower = await process.start(f"hi {number}", None, tools=tools)
        runs.append((await process.runner.run(Principal("alice"), follower.id)).options)
        await answer(follower)
    assert runs[0].tools is runs[1].tools


async def test_a_run_that_has_ended_holds_none_of_its_tools(open_process: Open) -> None:
    process = await open_process()
    tools = client_tools(ToolSpec("mine", "does it " * 1_000, {"type": "object", "properties": {}}))
    follower = await process.start("hi", None, tools=tools)
    await answer(follower)
    run = await process.runner.run(Principal("alice"), follower.id)
    await run.rest()
    await anyio.wait_all_tasks_blocked()
    assert not run.record.options
    assert run.nbytes < 8_000


async def test_sessions_have_the_servers_tools_once(open_process: Open) -> None:
    process = await open_process()
    for id in ("s", "t"):
        await process.ask("hi", id)
    first, second = await process.session("s"), await process.session("t")
    assert first.server_tools
    assert first.server_tools is second.server_tools

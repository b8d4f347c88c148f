"""The paragraph `Streams to stock clients`, as far as it is the loop's: what its events say, in which order."""

import anyio
import pytest

from tenuto.runtime.loop.events import (
    ClientCallArguments,
    ClientCallStarted,
    ReasoningAdded,
    RoundEnded,
    RunDone,
    RunEvent,
    RunPaused,
    TextAdded,
    ToolCalling,
    ToolReturned,
)
from tenuto.sessions.items import ToolCall
from tenuto.sessions.records import RunStatus
from tests.patience import HANGS_S
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import answer, asks, call, client_tools, events, says, until
from tests.runtime.loop.test_one_open_run import results
from tests.runtime.loop.tools import Tools

pytestmark = pytest.mark.every_engine

COUNT = asks("count", call("count__add", by=1), text="Let me see:")
MIXED = asks("mixed", call("weather", city="Oslo"), call("count__add", by=1), call("weather", city="Rome"))
BOTH = client_tools(servers={"count": None})


def shape(seen: list[RunEvent]) -> list[str]:
    """The kinds of the events in order, each once where it comes several times in a row."""
    names = [type(one).__name__ for one in seen]
    return [name for name, before in zip(names, [None, *names], strict=False) if name != before]


async def test_a_run_tells_its_rounds_and_calls_in_order(open_process: Open) -> None:
    process = await open_process(COUNT)
    seen = await events(await process.start("count"))
    assert shape(seen) == [
        *("TextAdded", "RoundEnded", "ToolCalling", "ToolReturned"),
        *("TextAdded", "RoundEnded", "RunDone"),
    ]


async def test_the_text_of_all_rounds_is_one_stream(open_process: Open) -> None:
    process = await open_process(COUNT)
    run = await process.start("count")
    seen = await events(run)
    assert "".join(one.text for one in seen if isinstance(one, TextAdded)) == "Let me see:1"
    assert (await answer(run)).text == "Let me see:1"


async def test_a_call_that_the_server_makes_is_never_the_clients(open_process: Open) -> None:
    process = await open_process(COUNT)
    run = await process.start("count", tools=BOTH)
    seen = await events(run)
    assert not any(isinstance(one, ClientCallStarted | ClientCallArguments | RunPaused) for one in seen)
    assert (await answer(run)).calls == []
    assert seen[-1] == RunDone(RunStatus.COMPLETED, "end")


async def test_of_a_mixed_turn_the_client_is_told_its_own_calls(open_process: Open) -> None:
    process = await open_process(MIXED)
    run = await process.start("mixed", tools=BOTH)
    seen = await events(run)
    started = [one for one in seen if isinstance(one, ClientCallStarted)]
    assert [(one.index, one.name) for one in started] == [(0, "weather"), (1, "weather")]
    told = [
        "".join(one.text for one in seen if isinstance(one, ClientCallArguments) and one.index == i) for i in (0, 1)
    ]
    assert told == ['{"city": "Oslo"}', '{"city": "Rome"}']
    assert [one.call.name for one in seen if isinstance(one, ToolCalling)] == ["count__add"]
    paused = seen[-1]
    assert isinstance(paused, RunPaused)
    expected = [ToolCall(one.call_id, one.name, text) for one, text in zip(started, told, strict=True)]
    assert list(paused.calls) == (await answer(run)).calls == expected


async def test_calls_that_begin_after_a_servers_round_are_counted_from_the_requests_first(open_process: Open) -> None:
    process = await open_process(
        COUNT,
        {"tool": "1", "calls": [call("weather", city="Oslo")]},
        {"tool": "rain", "calls": [call("weather", city="Rome")]},
    )
    run = await process.start("count", tools=BOTH)
    assert [one.index for one in await events(run) if isinstance(one, ClientCallStarted)] == [0]
    paused = await answer(run)
    again = await process.start(results(paused, "rain"))
    assert [one.index for one in await events(again) if isinstance(one, ClientCallStarted)] == [0]
    assert len((await answer(again)).calls) == 1, "an answer has the calls of its own request"


async def test_reasoning_is_told_apart_from_the_text(open_process: Open) -> None:
    process = await open_process(says("why", "So.", reasoning="Hm."))
    run = await process.start("why")
    seen = await events(run)
    assert "".join(one.text for one in seen if isinstance(one, ReasoningAdded)) == "Hm."
    assert ((await answer(run)).reasoning, (await answer(run)).text) == ("Hm.", "So.")


async def test_a_call_is_told_when_it_begins_and_when_it_has_its_result(open_process: Open) -> None:
    process = await open_process(asks("both", call("broken__deny"), call("calculator__evaluate", expression="1+1")))
    seen = await events(await process.start("both"))
    calling = [one for one in seen if isinstance(one, ToolCalling)]
    returned = [one for one in seen if isinstance(one, ToolReturned)]
    assert [one.call.name for one in calling] == ["broken__deny", "calculator__evaluate"]
    assert {(one.call.name, one.status, one.result) for one in returned} == {
        ("broken__deny", "failed", "it is not allowed"),
        ("calculator__evaluate", "completed", "2"),
    }
    assert all(
        seen.index(calling[i]) < seen.index(one) for i in (0, 1) for one in returned if one.call == calling[i].call
    )


async def test_a_servers_calls_are_made_at_the_same_time(open_process: Open, tools: Tools) -> None:
    process = await open_process(asks("both", call("slow__wait", name="it"), call("count__add", by=1)))
    run = await process.start("both")
    returned = await until(run, ToolReturned)
    assert isinstance(returned, ToolReturned)
    assert returned.call.name == "count__add", "it has not waited for the slow one before it"
    tools.slow.go.set()
    assert (await answer(run)).text == "waited for it\n1"


async def test_who_comes_later_is_told_from_the_number_that_he_names(open_process: Open) -> None:
    process = await open_process(COUNT)
    run = await process.start("count")
    seen = await events(run)
    for after in (0, 1, 5, len(seen) - 1, len(seen), len(seen) + 7):
        assert await events(run, after) == seen[after:]
    with anyio.fail_after(HANGS_S):
        assert [number async for number, _ in run.events(3)] == list(range(4, len(seen) + 1))


async def test_two_who_follow_a_run_are_told_the_same(open_process: Open) -> None:
    process = await open_process(COUNT)
    run = await process.start("count")
    told: list[list[RunEvent]] = []

    async def follow() -> None:
        told.append(await events(run))

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(follow)
    assert told[0] == told[1] == told[2]
    assert isinstance(told[0][-1], RunDone)


async def test_a_leg_has_its_own_events_and_the_log_goes_on(open_process: Open) -> None:
    process = await open_process(MIXED)
    run = await process.start("mixed", tools=BOTH)
    first = await events(run)
    again = await process.start(results(await answer(run), "rain", "sun"))
    second = await events(again)
    assert again.run is run.run
    assert shape(second) == ["TextAdded", "RoundEnded", "RunDone"]
    assert await events(run.run, 0) == [*first, *second]


@pytest.mark.parametrize("text", ["", "  ", "plain", "näïve ☃ 🎵", "<tool_call>", "<|end|>", '{"name": "x"}'])
async def test_what_the_client_is_told_is_what_the_session_keeps(open_process: Open, text: str) -> None:
    process = await open_process()
    run = await process.start(text)
    seen = await events(run)
    told = "".join(one.text for one in seen if isinstance(one, TextAdded))
    item = (await process.items())[-1]
    assert told == (await answer(run)).text == item.text
    assert sum(isinstance(one, RoundEnded) for one in seen) == 1

"""Default tools that do not fit the context are left out by a rule, told, and never the end of a plain chat."""

from typing import Any

import pytest

from tenuto.errors import ContextTooLong, InvalidRequest
from tenuto.pipelines.base import ToolChoice
from tenuto.runtime.loop.requests import ToolSelection
from tenuto.runtime.loop.tool_room import ToolRoom
from tenuto.runtime.loop.turn_options import Defaults
from tenuto.tools.spec import CallContext, Tool, ToolResult
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import codec, says
from tests.runtime.loop.test_which_tools_the_model_sees import seen
from tests.runtime.loop.tools import Tools, spec

CELLS = 2048


class Many:
    """A server with more tools than a small model can read of."""

    def __init__(self, name: str, count: int) -> None:
        self.name, self.count = name, count

    async def list(self) -> list[Tool]:
        return [Tool(spec(f"tool_{number}", argument="string")) for number in range(self.count)]

    async def call(self, name: str, arguments: dict[str, Any], context: CallContext) -> ToolResult:
        return ToolResult(name)


SMALL: dict[str, Any] = {
    "script": {"cells": CELLS},
    "servers": ["calculator", "many"],
    "defaults": Defaults(tool_share=1.0),
}


@pytest.fixture
def tools() -> Tools:
    crowd = Tools()
    vars(crowd)["many"] = Many("many", 58)
    return crowd


async def test_a_plain_chat_gets_the_first_of_the_tools_that_leave_it_half_of_the_context(open_process: Open) -> None:
    process = await open_process(**SMALL)
    done = await process.ask("hi")
    names = await seen(process)
    assert names == [one.name for one in (await process.session()).server_tools or ()][: len(names)]
    assert 0 < len(names) < 59
    assert CELLS // 4 < done.usage.prompt <= CELLS // 2 + 64
    (told,) = done.diagnostics
    assert (told["kind"], told["what"]) == ("left_out", "tools")
    assert told["reason"].startswith("the server's 59 default tools take more than half of the context: many__tool_")


async def test_the_choice_stays_the_same_over_the_session(open_process: Open) -> None:
    process = await open_process(**SMALL)
    await process.ask("hi")
    before = await seen(process)
    again = await process.ask("and now?")
    assert await seen(process) == before
    assert again.usage.rounds[0].computed == again.usage.rounds[0].new


async def test_all_of_a_sessions_tools_can_still_be_named(open_process: Open) -> None:
    process = await open_process(**SMALL)
    await process.ask("hi")
    await process.ask("hi", tools=ToolSelection(given=True, servers={"many": ("tool_57",)}))
    assert (await seen(process))[-1:] == ["many__tool_57"]


async def test_a_conversation_that_does_not_fit_with_the_tools_goes_on_without_them(open_process: Open) -> None:
    long = "a" * (CELLS // 3 * 2)
    process = await open_process(says(long, "I see."), **SMALL)
    await process.ask("hi")
    done = await process.ask(long)
    assert done.text == "I see."
    assert "does not fit the context with the server's" in done.diagnostics[-1]["reason"]
    again = await process.ask("and now?")
    assert again.usage.rounds[0].computed == again.usage.rounds[0].new, "from there on the prefix is the same again"


async def test_what_does_not_fit_without_tools_either_is_refused(open_process: Open) -> None:
    process = await open_process(**SMALL)
    with pytest.raises(ContextTooLong):
        await process.ask("a" * CELLS)


@pytest.mark.parametrize(
    "asked",
    [
        ToolSelection(given=True, servers={"many": None}),
        ToolSelection(choice=ToolChoice.REQUIRED),
        ToolSelection(allowed=("calculator__evaluate",)),
    ],
)
async def test_tools_that_a_request_asks_for_are_not_taken_from_it(open_process: Open, asked: ToolSelection) -> None:
    process = await open_process(**SMALL)
    with pytest.raises(InvalidRequest):
        await process.ask("a" * (CELLS - 400), tools=asked)


async def test_tools_that_fit_are_all_there_and_nothing_is_told(open_process: Open) -> None:
    process = await open_process(**{**SMALL, "script": {"cells": 32 * CELLS}})
    done = await process.ask("hi")
    assert len(await seen(process)) == 59
    assert done.diagnostics == []


async def test_how_many_fit_grows_with_the_context() -> None:
    room = ToolRoom()
    tools = [tool.spec for tool in await Many("many", 20).list()]
    counts = [len(await room.fitting(codec(), tools, context)) for context in range(0, 16384, 256)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 20)
    assert len(set(counts)) > 5

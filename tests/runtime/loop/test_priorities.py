"""Which rounds are interactive, and which are in the background."""

from typing import Any

from tenuto.pipelines.base import Pipeline
from tenuto.runtime.engine.engine import Engine
from tenuto.runtime.engine.messages import Command, Submit
from tenuto.runtime.loop.options import RunOptions
from tenuto.runtime.loop.requests import KeepAs
from tenuto.sessions.items import ToolResultItem, ToolSpec
from tenuto.sessions.priority import Priority
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import answer, asks, call, client_tools

INTERACTIVE, BACKGROUND = Priority.INTERACTIVE, Priority.BACKGROUND
LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})
DETACHED = KeepAs({}, is_detached=True)


class Told(Engine):
    """An engine that keeps the priorities of what it was told to begin."""

    priorities: list[Priority]

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self.priorities = told

    def tell(self, command: Command) -> None:
        if isinstance(command, Submit):
            self.priorities.append(command.priority)
        super().tell(command)


told: list[Priority] = []


async def priorities(open_process: Open, **fields: Any) -> list[Priority]:
    """Of the two rounds of a run that calls a tool."""
    told.clear()
    process = await open_process(asks("go", call("count__add", by=1)), {"tool": "1", "text": "One."}, engine=Told)
    await answer(await process.start("go", **fields))
    return list(told)


async def test_a_run_that_somebody_waits_for_is_interactive(open_process: Open) -> None:
    assert await priorities(open_process) == [INTERACTIVE] * 2


async def test_a_run_that_goes_on_by_itself_is_in_the_background(open_process: Open) -> None:
    assert await priorities(open_process, keep_as=DETACHED) == [BACKGROUND] * 2


async def test_what_the_request_says_counts_more(open_process: Open) -> None:
    assert await priorities(open_process, keep_as=DETACHED, priority=INTERACTIVE) == [INTERACTIVE] * 2
    assert await priorities(open_process, priority=BACKGROUND) == [BACKGROUND] * 2


async def test_a_run_keeps_it_when_its_client_brings_results_and_says_nothing_else(open_process: Open) -> None:
    told.clear()
    process = await open_process(asks("go", call("look")), {"tool": "seen", "text": "I see."}, engine=Told)
    run = await process.start("go", tools=client_tools(LOOK), priority=BACKGROUND)
    paused = await answer(run)
    await process.ask([ToolResultItem(paused.calls[0].id, "look", "seen")])
    assert told == [BACKGROUND] * 2


async def test_it_is_stored_with_the_run(open_process: Open) -> None:
    process = await open_process(asks("go", call("look")))
    run = await process.start("go", tools=client_tools(LOOK), priority=BACKGROUND)
    await answer(run)
    assert RunOptions.load(run.run.options.dump()).priority is BACKGROUND

"""What the loop expects of tools, people and clients, and when it tells the engine."""

from collections.abc import Callable, Sequence

import pytest

from tenuto.pipelines.base import Pipeline
from tenuto.runtime.engine.engine import Engine
from tenuto.runtime.engine.messages import Command, Hint, Submit
from tenuto.runtime.loop.expectations import MOST_PAUSES, MOST_TOOLS, Expectations
from tenuto.sessions.records import PauseReason
from tenuto.tools.approvals import Rules
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import answer, asks, call, client_tools, says

SLOW, FAST = ("files", "grep"), ("clock", "now")


def test_a_round_waits_for_the_slowest_of_its_calls() -> None:
    expectations = Expectations()
    for _ in range(5):
        expectations.called(SLOW, 8.0)
        expectations.called(FAST, 0.01)
    assert expectations.of_calls([FAST]).seconds == pytest.approx(0.01)
    assert expectations.of_calls([FAST, SLOW, FAST]).seconds == pytest.approx(8.0)
    assert expectations.of_calls([SLOW]).spread_s < 8.0


def test_a_tool_that_was_never_called_takes_as_long_as_any() -> None:
    expectations = Expectations()
    before = expectations.of_calls([SLOW])
    assert before == expectations.of_calls([]) == Expectations().of_calls([FAST])
    expectations.called(SLOW, 8.0)
    assert expectations.of_calls([FAST]).seconds == pytest.approx(8.0)


def test_pauses_are_told_apart_by_whom_they_wait_for() -> None:
    expectations = Expectations()
    for number in range(5):
        expectations.paused(f"a{number}", PauseReason.APPROVAL, 100.0)
        expectations.resumed(f"a{number}", 400.0)
        expectations.paused(f"c{number}", PauseReason.CLIENT_TOOL, 100.0)
        expectations.resumed(f"c{number}", 100.5)
    assert expectations.paused("a", PauseReason.APPROVAL, 0.0).seconds == pytest.approx(300.0)
    assert expectations.paused("c", PauseReason.CLIENT_TOOL, 0.0).seconds == pytest.approx(0.5)
    expectations.resumed("c", -5.0)  # a clock that was set back
    assert expectations.paused("c", PauseReason.CLIENT_TOOL, 0.0).seconds >= 0.0
    expectations.resumed("never paused", 1.0)


def test_what_is_remembered_is_bounded() -> None:
    expectations = Expectations()
    for number in range(MOST_TOOLS + 10):
        expectations.called(("server", f"tool {number}"), 1.0)
    for number in range(MOST_PAUSES + 10):
        expectations.paused(f"run {number}", PauseReason.INPUT, 1.0)
    assert (len(expectations._tools), len(expectations._paused)) == (MOST_TOOLS, MOST_PAUSES)


class Noting(Engine):
    """Remembers what it was told."""

    def __init__(self, pipeline: Pipeline, told: list[Command]) -> None:
        super().__init__(pipeline)
        self._told_commands = told

    def tell(self, command: Command) -> None:
        self._told_commands.append(command)
        super().tell(command)


def noting() -> tuple[list[Command], Callable[[Pipeline], Engine]]:
    told: list[Command] = []
    return told, lambda pipeline: Noting(pipeline, told)


def kinds(told: Sequence[Command]) -> list[str]:
    return [type(one).__name__ for one in told if isinstance(one, Submit | Hint)]


RULES = [
    asks("sum", call("calculator__evaluate", expression="1 + 1")),
    asks("weather", call("weather", city="Oslo")),
    asks("count", call("count__add", by=1)),
    says("", "done"),
]


async def test_the_engine_is_told_when_results_are_expected_before_the_calls_are_made(open_process: Open) -> None:
    told, engine = noting()
    process = await open_process(*RULES, engine=engine)
    assert (await process.ask("sum")).text == "2"
    assert kinds(told) == ["Submit", "Hint", "Submit"]
    await process.ask("sum", "t")
    hints = [one for one in told if isinstance(one, Hint)]
    assert hints[1].sequence != hints[0].sequence
    assert hints[1].expected_s < hints[0].expected_s == 1.0, "as long as that tool has taken, and no more a guess"


async def test_a_turn_without_calls_hints_nothing(open_process: Open) -> None:
    told, engine = noting()
    process = await open_process(*RULES, engine=engine)
    await process.ask("hello")
    assert kinds(told) == ["Submit"]


async def test_who_waits_for_its_client_or_a_person_is_expected_later(open_process: Open) -> None:
    told, engine = noting()
    process = await open_process(*RULES, engine=engine, configured={"count": Rules()})
    await process.ask("weather", tools=client_tools())
    await process.ask("count", "t", wants_events=True)
    client, person = (one for one in told if isinstance(one, Hint))
    assert 1.0 < client.expected_s < person.expected_s


async def test_the_time_that_a_person_takes_is_none_of_the_tools(open_process: Open) -> None:
    told, engine = noting()
    process = await open_process(*RULES, engine=engine, configured={"count": Rules()})
    paused = await process.ask("count", wants_events=True)
    assert paused.pause is not None
    run = await process.decide(paused.pause.pause_id, True)
    await answer(run)
    estimates = process.runner._services.expectations
    assert estimates.of_calls([("count", "count__add")]).seconds < 5.0
    assert kinds(told) == ["Submit", "Hint", "Hint", "Submit"], "for the person, and then for the tool"

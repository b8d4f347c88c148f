"""A run's events after a restart: nothing that was kept is left out, and no number means two events."""

import pytest

from tenuto.runtime.loop.events import RunDone, RunEvent, TextAdded
from tenuto.runtime.loop.run import Run
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import ALICE, asks, call, says


async def told(run: Run, after: int) -> list[tuple[int, RunEvent]]:
    return [each async for each in run.events(after)]


def text(events: list[tuple[int, RunEvent]]) -> str:
    return "".join(event.text for _, event in events if isinstance(event, TextAdded))


@pytest.mark.parametrize("seen", [1, 5, 1000])
async def test_who_has_seen_a_part_before_a_restart_is_told_all_of_it_again(open_process: Open, seen: int) -> None:
    process = await open_process(says("hi", "a long answer"))
    run_id = (await process.ask("hi")).run_id
    before = await told(await process.runner.run(ALICE, run_id), 0)
    later = await open_process(left=process.url)
    run = await later.runner.run(ALICE, run_id)
    assert run.tells_again(seen)
    after = await told(run, seen)
    assert text(after) == text(before) == "a long answer"
    assert isinstance(after[-1][1], RunDone)
    assert min(number for number, _ in after) > max(number for number, _ in before)


async def test_who_begins_after_a_restart_goes_on_where_it_was(open_process: Open) -> None:
    process = await open_process(asks("count", call("count__add", by=1)))
    run_id = (await process.ask("count")).run_id
    later = await open_process(left=process.url)
    run = await later.runner.run(ALICE, run_id)
    everything = await told(run, 0)
    assert not run.tells_again(0)
    for at, (number, _) in enumerate(everything[:-1], 1):
        assert not run.tells_again(number)
        assert await told(run, number) == everything[at:]


async def test_which_stop_string_ended_an_answer_is_told_at_once_and_after_a_restart(open_process: Open) -> None:
    process = await open_process(says("hi", "one two three"), says("ho", "one two three"))
    assert (await process.ask("ho", stop=("four",))).stop_string is None
    answer = await process.ask("hi", stop=("three", "two"))
    assert answer.stop_string == "two"
    later = await open_process(left=process.url)
    assert (await later.runner.run(ALICE, answer.run_id)).snapshot().stop_string == "two"

"""An engine in a process of its own: what it says, and what becomes of its rounds when the process ends."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tenuto.errors import ModelLoadFailed, ShuttingDown
from tenuto.pipelines.load_settings import LoadSettings
from tenuto.runtime.engine.messages import Failed, StopCause, Stopped
from tenuto.runtime.engine.own_process import EngineProcess, NotForText, Order
from tenuto.runtime.engine.own_process.restarts import MOST, MOST_DELAY_S, QUIET_S, Restarts
from tenuto.runtime.loop.engine_client import MOST_LOSSES
from tenuto.sessions.tokens import Tokens
from tests.patience import HANGS_S
from tests.processes import children_of
from tests.runtime.engine.process_house import ECHO, LONG, Reading, house, script, text_of, until
from tests.runtime.engine.rig import round_of


async def test_it_says_what_an_engine_in_a_thread_says(tmp_path: Path) -> None:
    async with house(script(tmp_path / "s.json")) as it:
        rounds = [it.begin(f"s{number}", f"{number} {LONG}") for number in range(20)]
        ends = await asyncio.gather(*(one.follow() for one in rounds))
        assert {end.cause for end in ends if isinstance(end, Stopped)} == {StopCause.END}
        assert [text_of(it, one) for one in rounds] == [f"{number} {LONG}" for number in range(20)]
        assert it.client.status.sampled == sum(len(one.tokens) for one in rounds)
    assert not it.client.is_alive


async def test_a_resume_computes_only_what_is_new(tmp_path: Path) -> None:
    async with house(script(tmp_path / "s.json")) as it:
        first = it.begin("s", LONG)
        await first.follow()
        before = Tokens([*it.prompt(LONG), *first.tokens])
        new = it.prompt("more")
        opened = it.client.submit("s", new, round_of(), principal="alice", known=before.prefix(), whole=lambda: before)
        end = await Reading(opened).follow()
        assert isinstance(end, Stopped)
        assert end.usage.computed == len(new) + 1


@pytest.mark.parametrize("how", [signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV])
async def test_a_process_that_ends_under_sixteen_rounds_costs_them_a_pause(tmp_path: Path, how: signal.Signals) -> None:
    model = script(tmp_path / "s.json", [{**ECHO[0], "delay_ms": 3}], slots=8)
    async with house(model) as it:
        rounds = [it.begin(f"s{number}", f"{number} {LONG}") for number in range(16)]
        ends = [asyncio.create_task(one.follow()) for one in rounds]
        await asyncio.gather(*(one.has_said(5) for one in rounds[:8]))
        it.kill(how)
        for number, end in enumerate(await asyncio.gather(*ends)):
            assert isinstance(end, Stopped), end
            assert (end.cause, end.usage.sampled) == (StopCause.END, len(rounds[number].tokens))
            assert text_of(it, rounds[number]) == f"{number} {LONG}"
            assert end.usage.first_token_s is not None
            assert end.usage.first_token_s <= end.usage.total_s
        assert it.client.health.restarts == 1
        assert it.client.places == 0


async def test_a_process_that_ends_while_nobody_uses_it_is_begun_again(tmp_path: Path) -> None:
    async with house(script(tmp_path / "s.json")) as it:
        first = it.begin("s", LONG)
        await first.follow()
        steps = it.client.status.steps
        it.kill()
        await it.has_begun_again()
        assert it.client.status.steps == steps, "counters do not go back"
        assert not it.client.holds("s", 1), "nothing is known any more"
        again = it.begin("s", LONG)
        await again.follow()
        assert again.tokens == first.tokens
        assert it.client.status.steps > steps


async def test_a_round_that_comes_in_between_waits_for_the_next_process(tmp_path: Path) -> None:
    async with house(script(tmp_path / "s.json")) as it:
        it.kill()
        with anyio.fail_after(HANGS_S):
            while it.process.process_id is not None:
                await anyio.lowlevel.checkpoint()
        between = it.begin("s", LONG)
        end = await between.follow()
        assert isinstance(end, Stopped)
        assert text_of(it, between) == LONG


async def test_a_round_that_is_cancelled_in_between_is_over_when_the_next_process_begins(tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", [{**ECHO[0], "delay_ms": 3}])
    async with house(model) as it:
        one = it.begin("s", LONG)
        end = asyncio.create_task(one.follow())
        await one.has_said(3)
        it.kill()
        with anyio.fail_after(HANGS_S):
            while it.process.process_id is not None:
                await anyio.lowlevel.checkpoint()
        one.opened.cancel()
        stopped = await end
        assert isinstance(stopped, Stopped)
        assert stopped.cause is StopCause.CANCELLED
        assert it.client.places == 0


async def test_a_round_under_which_processes_end_without_a_token_fails(tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", [{**ECHO[0], "user_contains": "poison", "delay_ms": 30_000}, ECHO[0]])
    async with house(model) as it:
        poison = it.begin("poison", "poison")
        end = asyncio.create_task(poison.follow())
        for times in range(MOST_LOSSES + 1):
            with anyio.fail_after(HANGS_S):
                await until(lambda: it.client.status.commands >= 1 and it.process.process_id is not None)
            it.kill()
            await it.has_begun_again(times + 1)
        failed = await end
        assert isinstance(failed, Failed)
        assert "ended 3 times" in failed.error
        other = it.begin("other", LONG)
        assert isinstance(await other.follow(), Stopped)


async def test_a_round_whose_prompt_cannot_be_had_any_more_fails_alone(tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", [{**ECHO[0], "delay_ms": 3}])
    async with house(model) as it:
        known = Tokens(it.prompt(LONG))
        first = it.begin("s", LONG)
        await first.follow()
        known.extend(first.tokens)
        changed = it.client.submit(
            "s", it.prompt(LONG), round_of(), principal="alice", known=known.prefix(), whole=lambda: Tokens([1, 2])
        )
        one, other = Reading(changed), it.begin("other", LONG)
        ends = [asyncio.create_task(each.follow()) for each in (one, other)]
        await asyncio.gather(one.has_said(2), other.has_said(2))
        it.kill()
        failed, stopped = await asyncio.gather(*ends)
        assert isinstance(failed, Failed)
        assert "the prompt has changed" in failed.error
        assert isinstance(stopped, Stopped)


async def test_a_stop_while_it_is_begun_again_ends_all(tmp_path: Path) -> None:
    async with house(script(tmp_path / "s.json", [{**ECHO[0], "delay_ms": 3}])) as it:
        one = it.begin("s", LONG)
        end = asyncio.create_task(one.follow())
        await one.has_said(2)
        it.kill()
        with anyio.fail_after(HANGS_S):
            while it.process.process_id is not None:
                await anyio.lowlevel.checkpoint()
        await it.client.stop()
        assert isinstance(await end, Failed)
        assert not it.client.is_alive
        with pytest.raises(ShuttingDown):
            it.begin("other", LONG)


async def test_a_process_that_hangs_is_killed_by_a_stop(tmp_path: Path) -> None:
    async with house(script(tmp_path / "s.json", [{**ECHO[0], "delay_ms": 3}])) as it:
        one = it.begin("s", LONG)
        end = asyncio.create_task(one.follow())
        await one.has_said(2)
        process = it.process.process_id
        it.kill(signal.SIGSTOP)
        await it.client.stop(timeout_s=0.1)
        assert isinstance(await end, Failed)
        assert process is not None
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


async def test_an_engine_that_has_not_begun_is_stopped_at_once(
    tmp_path: Path, started: Callable[[], list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    process = await EngineProcess.open(Order(script(tmp_path / "s.json"), LoadSettings(), HANGS_S))
    await process.stop(HANGS_S)
    assert not started()
    assert not process.is_alive()
    assert not caplog.records


@pytest.mark.parametrize("ways", [["no file"], ["not a script"]])
async def test_a_model_that_cannot_be_loaded_is_an_error_that_says_why(tmp_path: Path, ways: list[str]) -> None:
    path = tmp_path / "s.json"
    if ways == ["not a script"]:
        path.write_text("{")
    with pytest.raises(ModelLoadFailed, match=r"s\.json"):
        await EngineProcess.open(Order(f"scripted:{path}", LoadSettings(), HANGS_S))


async def test_a_load_that_is_given_up_leaves_no_process(tmp_path: Path, started: Callable[[], list[int]]) -> None:
    with anyio.move_on_after(0.05):
        await EngineProcess.open(Order(script(tmp_path / "s.json"), LoadSettings(), HANGS_S))
    with anyio.fail_after(HANGS_S):
        await until(lambda: not started())


async def test_a_load_that_takes_too_long_is_an_error(tmp_path: Path, started: Callable[[], list[int]]) -> None:
    with pytest.raises(ModelLoadFailed, match="was not loaded within"):
        await EngineProcess.open(Order(script(tmp_path / "s.json"), LoadSettings(), 0.01))
    assert not started()


async def test_an_engine_whose_model_is_gone_is_given_up_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenuto.runtime.engine.own_process.restarts.FIRST_DELAY_S", 0.0)
    monkeypatch.setattr("tenuto.runtime.engine.own_process.restarts.MOST", 2)
    async with house(script(tmp_path / "s.json", [{**ECHO[0], "delay_ms": 3}])) as it:
        one = it.begin("s", LONG)
        end = asyncio.create_task(one.follow())
        await one.has_said(2)
        (tmp_path / "s.json").unlink()
        it.kill()
        failed = await end
        assert isinstance(failed, Failed)
        assert failed.error == "the engine has stopped"
        assert not it.client.is_alive


@pytest.fixture
def started() -> Callable[[], list[int]]:
    """The processes that have been started by this one since, and are there."""

    def children() -> list[int]:
        found = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
        if not found.exists():
            pytest.skip("the children of a process are told on Linux alone")
        return children_of(os.getpid())

    before = children()
    return lambda: [id for id in children() if id not in before]


def test_ends_in_a_row_are_waited_out_ever_longer_and_not_for_ever() -> None:
    restarts, now = Restarts(), 100.0
    delays = [restarts.next(now) for _ in range(MOST + 1)]
    assert delays[0] == 0.0
    assert delays[-1] is None
    told = [delay for delay in delays if delay is not None]
    assert told == sorted(told)
    assert told[-1] <= MOST_DELAY_S


def test_an_end_after_a_quiet_time_counts_as_the_first() -> None:
    restarts, now = Restarts(), 0.0
    for _ in range(3 * MOST):
        restarts.works(now)
        now += QUIET_S + 1
        assert restarts.next(now) == 0.0


def test_an_engine_that_has_worked_for_longer_than_its_wait_is_begun_again_at_once() -> None:
    restarts, now = Restarts(), 100.0
    for _ in range(3 * MOST):
        restarts.next(now)
        restarts.works(now)
    now += MOST_DELAY_S - 2
    assert restarts.next(now) == 2.0
    restarts.works(now)
    assert restarts.next(now + MOST_DELAY_S) == 0.0


def test_an_engine_that_came_to_work_is_never_given_up() -> None:
    restarts, now = Restarts(), 100.0
    delays = []
    for _ in range(3 * MOST):
        delays.append(restarts.next(now))
        restarts.works(now)
    assert delays[-1] == MOST_DELAY_S


def test_loads_that_fail_are_given_up_however_long_each_takes() -> None:
    restarts, now = Restarts(), 0.0
    restarts.works(now)
    for _ in range(MOST):
        now += 10 * QUIET_S
        assert restarts.next(now) is not None
    assert restarts.next(now) is None


async def test_a_model_that_makes_vectors_has_no_such_engine(tmp_path: Path, started: Callable[[], list[int]]) -> None:
    (tmp_path / "s.json").write_text(json.dumps({"embeds": {"width": 8}}))
    with pytest.raises(NotForText):
        await EngineProcess.open(Order(f"scripted:{tmp_path / 's.json'}", LoadSettings(), HANGS_S))
    assert not started()

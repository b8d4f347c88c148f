"""What a process of an engine may do that it should not, and what whoever uses it sees of that."""

import asyncio
import errno
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.load_settings import LoadSettings
from tenuto.runtime.engine.messages import WINDOW, Failed, StopCause, Stopped
from tenuto.runtime.engine.own_process import EngineProcess, Order, line
from tenuto.runtime.loop.engine_client import MOST_LOSSES
from tests.patience import HANGS_S
from tests.processes import children_of
from tests.runtime.engine.process_house import ECHO, LONG, Reading, house, script, text_of, until
from tests.runtime.engine.rig import round_of
from tests.runtime.engine.wrong_engine import AT_FIRST

SLOW = [{**ECHO[0], "delay_ms": 3}]


def go_wrong(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int = 1) -> Path:
    monkeypatch.setattr(line, "CHILD", "tests.runtime.engine.wrong_engine")
    monkeypatch.setenv("WRONG_ENGINE", f"{how} {times} {tmp_path / 'wrong'}")
    return tmp_path / "wrong"


@pytest.mark.parametrize(
    "how",
    [
        "garbage",
        "a huge frame",
        "a report that is cut",
        "a token that there is not",
        "it closes its end",
    ],
)
async def test_a_process_that_says_what_cannot_be_is_ended_and_costs_a_pause(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "KILLED_S", 0.2)
    go_wrong(how, tmp_path, monkeypatch)
    async with house(script(tmp_path / "s.json", SLOW)) as it:
        rounds = [it.begin(name, f"{name} {LONG}") for name in "abst"]
        ends = await asyncio.gather(*(one.follow() for one in rounds))
        assert {end.cause for end in ends if isinstance(end, Stopped)} == {StopCause.END}
        assert [text_of(it, one) for one in rounds] == [f"{name} {LONG}" for name in "abst"]
        assert it.client.health.restarts == 1


async def test_events_of_strangers_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_wrong("strangers", tmp_path, monkeypatch)
    async with house(script(tmp_path / "s.json", SLOW)) as it:
        one = it.begin("s", LONG)
        assert isinstance(await one.follow(), Stopped)
        assert text_of(it, one) == LONG
        assert it.client.health.restarts == 0


@pytest.mark.parametrize("how", ["a flood", "it knows nothing"])
async def test_a_round_of_which_an_engine_says_what_it_may_not_fails_alone(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_wrong(how, tmp_path, monkeypatch)
    async with house(script(tmp_path / "s.json", SLOW)) as it:
        flooded, other = it.begin("s", LONG), it.begin("other", LONG)
        end = asyncio.create_task(other.follow())
        await until(lambda: not it.client.holds("s", 0) and it.client.places == 1)
        failed = await flooded.follow()
        assert isinstance(failed, Failed)
        assert len(flooded.tokens) < 100 * WINDOW
        assert isinstance(await end, Stopped)
        assert text_of(it, other) == LONG


@pytest.mark.parametrize("how", AT_FIRST)
async def test_a_next_process_that_does_not_say_what_it_has_loaded_is_followed_by_another(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = go_wrong(how, tmp_path, monkeypatch)
    async with house(script(tmp_path / "s.json", SLOW)) as it:
        one = it.begin("s", LONG)
        end = asyncio.create_task(one.follow())
        await one.has_said(3)
        file.touch()
        it.kill()
        assert isinstance(await end, Stopped)
        assert text_of(it, one) == LONG


@pytest.mark.parametrize("how", AT_FIRST)
async def test_a_first_process_that_does_not_say_what_it_has_loaded_is_a_load_that_failed(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_wrong(how, tmp_path, monkeypatch).touch()
    with pytest.raises(ModelLoadFailed):
        await EngineProcess.open(Order(script(tmp_path / "s.json"), LoadSettings(), HANGS_S))


async def test_a_system_that_has_nothing_left_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, refused = socket.socketpair, 0

    def full(*arguments: Any) -> Any:
        nonlocal refused
        refused += 1
        if refused == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*arguments)

    async with house(script(tmp_path / "s.json", SLOW)) as it:
        one = it.begin("s", LONG)
        end = asyncio.create_task(one.follow())
        await one.has_said(3)
        monkeypatch.setattr(socket, "socketpair", full)
        it.kill()
        assert isinstance(await end, Stopped)
        assert text_of(it, one) == LONG
        assert refused == 2


async def test_a_model_that_was_replaced_since_does_not_go_on_with_rounds_of_the_one_before(tmp_path: Path) -> None:
    async with house(script(tmp_path / "s.json", SLOW)) as it:
        one = it.begin("s", LONG)
        end = asyncio.create_task(one.follow())
        await one.has_said(3)
        (tmp_path / "s.json").write_text(json.dumps({"rules": [{**ECHO[0], "delay_ms": 4}]}))
        it.kill()
        assert isinstance(await end, Failed)
        assert not it.client.is_alive


async def test_a_process_that_is_killed_while_it_loads_is_begun_once_more(tmp_path: Path) -> None:
    killed = asyncio.create_task(_kill_first_child())
    process = await EngineProcess.open(Order(script(tmp_path / "s.json"), LoadSettings(), HANGS_S))
    await killed
    await process.stop(HANGS_S)


async def _kill_first_child() -> None:
    before = set(children_of(os.getpid()))
    await until(lambda: bool(set(children_of(os.getpid())) - before))
    os.kill((set(children_of(os.getpid())) - before).pop(), signal.SIGKILL)


async def test_what_ends_engines_fails_alone_among_those_that_wait_and_those_at_work(tmp_path: Path) -> None:
    poison = {**ECHO[0], "user_contains": "poison", "delay_ms": 30_000}
    async with house(script(tmp_path / "s.json", [poison, SLOW[0]], slots=2)) as it:
        rounds = [it.begin(f"s{number}", f"{number} {LONG}") for number in range(3)]
        guilty = it.begin("guilty", "poison")
        rounds += [it.begin(f"s{number}", f"{number} {LONG}") for number in range(3, 6)]
        ends = [asyncio.create_task(one.follow()) for one in rounds]
        failed = asyncio.create_task(guilty.follow())

        while not failed.done():
            await until(lambda: guilty.opened.is_admitted or failed.done())
            restarts = it.client.health.restarts
            if not failed.done():
                it.kill()
                await it.has_begun_again(restarts + 1)
        end = await failed
        assert isinstance(end, Failed)
        assert "ended 3 times" in end.error
        assert it.client.health.restarts == MOST_LOSSES + 1
        for number, end in enumerate(await asyncio.gather(*ends)):
            assert isinstance(end, Stopped), end
            assert text_of(it, rounds[number]) == f"{number} {LONG}"


async def test_a_round_that_waits_for_a_slot_has_ended_no_engine(tmp_path: Path) -> None:
    async with house(script(tmp_path / "s.json", [{**ECHO[0], "delay_ms": 10}], slots=1)) as it:
        first, waits = it.begin("first", LONG), it.begin("waits", LONG)
        ends = [asyncio.create_task(one.follow()) for one in (first, waits)]
        for times in range(MOST_LOSSES + 2):
            await first.has_said(2 * times + 1)
            it.kill()
            await it.has_begun_again(times + 1)
        for end in await asyncio.gather(*ends):
            assert isinstance(end, Stopped), end
        assert text_of(it, waits) == LONG


async def _is_away(it: Any) -> None:
    with anyio.fail_after(HANGS_S):
        await until(lambda: it.process.process_id is None)


async def test_a_cancel_while_there_is_no_engine_waits_for_none(tmp_path: Path) -> None:
    async with house(script(tmp_path / "s.json", SLOW)) as it:
        one, other = it.begin("s", LONG), it.begin("other", LONG)
        ends = [asyncio.create_task(each.follow()) for each in (one, other)]
        await asyncio.gather(one.has_said(3), other.has_said(3))
        it.kill()
        await _is_away(it)
        one.opened.cancel()
        stopped = await ends[0]
        assert it.process.process_id is None
        assert isinstance(stopped, Stopped)
        assert (stopped.cause, stopped.usage.prompt) == (StopCause.CANCELLED, len(it.prompt(LONG)))
        assert stopped.usage.sampled == len(one.tokens)
        again = it.begin("s", LONG)
        assert isinstance(await again.follow(), Stopped)
        assert text_of(it, again) == LONG
        assert isinstance(await ends[1], Stopped)


async def test_a_prompt_that_cannot_be_given_again_for_any_reason_fails_its_round_alone(tmp_path: Path) -> None:
    def gone() -> list[int]:
        raise KeyError("it has been deleted")

    async with house(script(tmp_path / "s.json", SLOW)) as it:
        opened = it.client.submit("s", it.prompt(LONG), round_of(), principal="alice", whole=gone)
        one, other = Reading(opened), it.begin("other", LONG)
        ends = [asyncio.create_task(each.follow()) for each in (one, other)]
        await asyncio.gather(one.has_said(2), other.has_said(2))
        it.kill()
        failed, stopped = await asyncio.gather(*ends)
        assert isinstance(failed, Failed)
        assert isinstance(stopped, Stopped)

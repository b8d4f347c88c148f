"""What engines in processes of their own leave on the disk when they end by themselves."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tenuto.runtime.engine.engine import DiskSettings, EngineSettings
from tenuto.runtime.engine.messages import Residency, Stopped
from tenuto.runtime.engine.own_process import line, restarts
from tenuto.runtime.engine.snapshots import Limits, forget
from tests.patience import HANGS_S
from tests.runtime.engine.process_house import ECHO, Reading, house, script, text_of, until

LONG = "Count the ducks! " * 40
RULES = [{**ECHO[0], "text": "ok", "delay_ms": 150}]
"""To compute is slower than to read, so that caches are kept."""


@pytest.fixture
def model(tmp_path: Path) -> str:
    return script(tmp_path / "s.json", RULES, batch_tokens=4096)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "caches"


@pytest.fixture
def settings(folder: Path) -> EngineSettings:
    return EngineSettings(disk=DiskSettings(folder, Limits(1 << 30, 1 << 28, 3600.0, spare_bytes=0)))


@pytest.fixture
def files(folder: Path) -> Callable[[], list[str]]:
    return lambda: [path.suffix for path in folder.glob("*/*") if path.is_file()]


async def ended(reading: Reading) -> Stopped:
    with anyio.fail_after(HANGS_S):
        end = await reading.follow()
    assert isinstance(end, Stopped), end
    return end


async def test_a_cache_whose_restore_ends_the_engine_costs_one_engine_and_is_computed(
    model: str,
    settings: EngineSettings,
    files: Callable[[], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with house(model, engine=settings) as it:
        await ended(it.begin("s", LONG, kept_as="s"))
        await until(lambda: files() == [".kv"])
    monkeypatch.setattr(line, "CHILD", "tests.runtime.engine.wrong_engine")
    monkeypatch.setenv("WRONG_ENGINE", f"it aborts in a restore 99 {tmp_path / 'wrong'}")
    async with house(model, engine=settings) as it:
        reading = it.begin("s", LONG, kept_as="s")
        assert (await ended(reading)).usage.residency is Residency.NONE
        assert text_of(it, reading) == "ok"
        assert it.client.health.restarts == 1
    assert (tmp_path / "wrong").read_text() == "x", "it was tried once"


async def test_a_cache_that_has_served_serves_after_the_engines_end(
    model: str, settings: EngineSettings, files: Callable[[], list[str]]
) -> None:
    async with house(model, engine=settings) as it:
        await ended(it.begin("s", LONG, kept_as="s"))
        await until(lambda: files() == [".kv"])
        for times in (1, 2):
            it.kill()
            await it.has_begun_again(times)
            assert (await ended(it.begin("s", LONG, kept_as="s"))).usage.residency is Residency.DISK
            await until(lambda: files() == [".kv"])


async def test_what_is_forgotten_while_there_is_no_engine_does_not_wait_for_one(
    model: str,
    settings: EngineSettings,
    folder: Path,
    files: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restarts, "FIRST_DELAY_S", 10 * HANGS_S)
    monkeypatch.setattr(restarts, "MOST_DELAY_S", 10 * HANGS_S)
    async with house(model, engine=settings) as it:
        await ended(it.begin("s", LONG, kept_as="s"))
        await until(lambda: files() == [".kv"])
        it.kill()
        await it.has_begun_again()
        it.kill()
        with anyio.fail_after(HANGS_S):
            await it.client.forget("s", "s")
        forget(folder, "s")
        assert files() == []
        assert it.process.process_id is None, "it has not been begun again meanwhile"


async def test_what_is_forgotten_as_the_engine_ends_is_left_to_the_folder(
    model: str, settings: EngineSettings, folder: Path, files: Callable[[], list[str]]
) -> None:
    async with house(model, engine=settings) as it:
        await ended(it.begin("s", LONG, kept_as="s"))
        await until(lambda: files() == [".kv"])
        it.kill()
        await it.client.forget("s", "s")
        forget(folder, "s")
        assert files() == []
        await it.has_begun_again()
        assert (await ended(it.begin("s", LONG, kept_as="s"))).usage.residency is Residency.NONE

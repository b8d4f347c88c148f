import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tenuto.runtime.engine.engine import Engine
from tenuto.sessions.storage.store import Store
from tests.runtime.loop.house import Clock, Process, Rule, Setup
from tests.runtime.loop.pickled_engine import PickledEngine
from tests.runtime.loop.tools import Tools

Open = Callable[..., Awaitable[Process]]

ENGINES = {"thread": Engine, "pickled": PickledEngine}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Some of the loop's tests run on every engine; with `--every-engine`, all do."""
    everywhere = metafunc.config.getoption("every_engine") or metafunc.definition.get_closest_marker("every_engine")
    if everywhere and "open_process" in metafunc.fixturenames:
        metafunc.parametrize("open_process", ENGINES.values(), ids=ENGINES, indirect=True)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with all tables, so that they are made once."""
    path = tmp_path_factory.mktemp("database") / "empty.db"
    Store.open(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tools() -> Tools:
    """The tool servers of the processes that are opened without others."""
    return Tools()


@pytest.fixture
async def open_process(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, tools: Tools, empty_database: Path
) -> AsyncIterator[Callable[..., Awaitable[Process]]]:
    """Opens processes: on a database of its own, or on what another has left behind; stops them after the test."""
    processes: list[Process] = []
    engine = getattr(request, "param", Engine)

    async def begin(*rules: Rule, left: str | None = None, tools: Tools = tools, **setup: Any) -> Process:
        if left is None:
            path = tmp_path / f"sessions-{len(processes)}.db"
            shutil.copyfile(empty_database, path)
            left = f"sqlite:///{path}"
        processes.append(Process(left, Setup(rules, **{"engine": engine, **setup}), clock, tools))
        return await processes[-1].begin()

    yield begin
    for process in processes:
        await process.stop()

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tenuto.sessions.store import Store
from tests.runtime.loop.house import Clock, Process, Rule, Setup
from tests.runtime.loop.tools import Tools

Open = Callable[..., Awaitable[Process]]


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
    tmp_path: Path, clock: Clock, tools: Tools, empty_database: Path
) -> AsyncIterator[Callable[..., Awaitable[Process]]]:
    """Opens processes: on a database of its own, or on what another has left behind; stops them after the test."""
    processes: list[Process] = []

    async def begin(*rules: Rule, left: str | None = None, tools: Tools = tools, **setup: Any) -> Process:
        if left is None:
            path = tmp_path / f"sessions-{len(processes)}.db"
            shutil.copyfile(empty_database, path)
            left = f"sqlite:///{path}"
        processes.append(Process(left, Setup(rules, **setup), clock, tools))
        return await processes[-1].begin()

    yield begin
    for process in processes:
        await process.stop()

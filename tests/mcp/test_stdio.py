import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tenuto.errors import ConfigurationError
from tenuto.runtime.data_folder.ownership import DataFolder, read_owner
from tests.e2e.forked import program
from tests.e2e.server import Server, environment, script
from tests.mcp.conftest import ERAS, LONG_TEXT, RULES
from tests.mcp.test_http import answer_of, text_of
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Server]:
    """A data folder, with a server that a test may start; one that the command has started is ended, too."""
    server = Server(tmp_path, script(tmp_path / "model.json", RULES))
    yield server
    server.close()
    with suppress(OSError), claimed(server.data_dir) as folder:
        # A start that lost the race and is still on its way finds no folder to own.
        shutil.rmtree(folder.path)
        folder.path.touch()


def claimed(path: Path) -> DataFolder:
    """The data folder for ourselves; whoever owns it is ended."""
    while True:
        try:
            return DataFolder.acquire(path)
        except ConfigurationError:
            owner = read_owner(path)
            if owner is not None:
                os.kill(owner.pid, signal.SIGKILL)
                wait_until_gone(owner.pid)


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + HANGS_S
    while time.monotonic() < deadline:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
    raise AssertionError(f"process {pid} does not end")


@asynccontextmanager
async def command(home: Server, mode: str = "auto", **options: Any) -> AsyncIterator[Client]:
    """`tenuto mcp`, and a client of it."""
    name, *arguments = program("mcp", "--data-dir", str(home.data_dir), "--model", home.model)
    parameters = StdioServerParameters(command=name, args=arguments, env=environment(home.folder), cwd=str(home.folder))
    async with Client(parameters, mode=mode, cache=None, read_timeout_seconds=30, **options) as client:
        yield client


@pytest.mark.parametrize("mode", ERAS)
async def test_it_speaks_for_the_server_that_owns_the_folder(mode: str, home: Server) -> None:
    home.start()
    with home.client() as http:
        http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}], "session_id": "s"})
    seen: list[str] = []

    async def see(progress: float, total: float | None = None, message: str | None = None) -> None:
        seen.append(message or "")

    async with command(home, mode) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        session = answer_of(await client.call_tool("session_get", {"session_id": "s"}))
        answer = answer_of(await client.call_tool("chat", {"message": "slow"}, progress_callback=see))
        wrong = await client.call_tool("chat", {"message": 1})
    assert {"chat", "calculator__evaluate"} <= names
    assert session["items"][0]["text"] == "x"
    assert "".join(seen) == answer["text"] == LONG_TEXT
    assert wrong.is_error


@pytest.mark.parametrize("mode", ERAS)
async def test_it_starts_a_server_that_outlives_it(mode: str, home: Server) -> None:
    async with command(home, mode) as client:
        first = answer_of(await client.call_tool("chat", {"message": "one"}))
    owner = read_owner(home.data_dir)
    assert owner is not None
    async with command(home, mode) as client:
        arguments = {"message": "two", "session_id": first["session_id"]}
        assert answer_of(await client.call_tool("chat", arguments))["text"] == "two"
    assert read_owner(home.data_dir) == owner


async def test_the_handshake_starts_nothing(home: Server) -> None:
    for mode in ERAS:
        async with command(home, mode) as client:
            assert client.server_capabilities.tools is not None
    assert read_owner(home.data_dir) is None


async def test_two_at_once_start_one_server(home: Server) -> None:
    answers: list[str] = []

    async def ask(text: str) -> None:
        async with command(home) as client:
            answers.append(answer_of(await client.call_tool("chat", {"message": text}))["text"])

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "one")
        group.start_soon(ask, "two")
    assert sorted(answers) == ["one", "two"]


async def test_it_finds_the_server_again_after_a_restart(home: Server) -> None:
    home.start()
    async with command(home) as client:
        first = answer_of(await client.call_tool("chat", {"message": "one"}))
        home.kill()
        home.start()
        arguments = {"message": "two", "session_id": first["session_id"]}
        assert answer_of(await client.call_tool("chat", arguments))["text"] == "two"


async def test_a_call_that_the_server_dies_under_is_told_in_words_and_the_next_one_works(home: Server) -> None:
    home.start()
    began = anyio.Event()
    results = []

    async def see(progress: float, total: float | None = None, message: str | None = None) -> None:
        began.set()

    async with command(home) as client:

        async def call() -> None:
            results.append(await client.call_tool("chat", {"message": "slow"}, progress_callback=see))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            with anyio.fail_after(HANGS_S):
                await began.wait()
            home.kill()
        assert results[0].is_error
        assert "may have had an effect" in text_of(results[0])
        home.start()
        assert answer_of(await client.call_tool("chat", {"message": "again"}))["text"] == "again"


async def test_a_server_that_cannot_start_is_told_with_the_end_of_its_log(home: Server) -> None:
    home.model = "no-such-model.gguf"
    async with command(home) as client:
        result = await client.call_tool("chat", {"message": "x"})
    assert result.is_error
    assert "no-such-model.gguf" in text_of(result)


async def test_nothing_but_the_protocol_is_on_stdout(home: Server) -> None:
    strays: list[Exception] = []

    async def handler(message: object) -> None:
        if isinstance(message, Exception):
            strays.append(message)

    async with command(home, "legacy", message_handler=handler) as client:
        await client.list_tools()
        await client.call_tool("chat", {"message": "x"})
    assert strays == []

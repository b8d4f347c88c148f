"""An MCP server over HTTP that goes away and comes back, through the whole loop."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import Server, script
from tests.faults.test_mcp_servers import MAYBE, ask, is_back, state, wait_until

pytestmark = [pytest.mark.slow]

FAR = str(Path(__file__).parent / "far.py")
AWAY = "the MCP server far is not connected: the server cannot be reached: All connection attempts failed"
TOOLS = ("well", "die", "die_once")


@dataclass
class Far:
    """The server over HTTP. While `listener` is open, who connects waits for the next process."""

    book: Path
    listener: socket.socket
    process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        port: int = self.listener.getsockname()[1]
        return port

    def start(self) -> None:
        number = self.listener.fileno()
        self.process = subprocess.Popen([sys.executable, FAR, str(number), str(self.book)], pass_fds=[number])

    def ended(self) -> None:
        """Wait for its end."""
        assert self.process is not None
        self.process.wait(30)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.ended()

    def calls(self) -> list[str]:
        return self.book.read_text().split()


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    server = Far(tmp_path / "book", socket.create_server(("127.0.0.1", 0)))
    server.start()
    try:
        yield server
    finally:
        server.kill()
        server.listener.close()


@pytest.fixture
def server(far: Far, tmp_path: Path) -> Iterator[Server]:
    """A runtime whose model calls the tool that the user names."""
    calls: list[dict[str, Any]] = [
        {"user": f"far {tool}", "calls": [{"name": f"far__{tool}", "arguments": {}}]} for tool in TOOLS
    ]
    model = script(tmp_path / "model.json", [*calls, {"tool_contains": "", "text": "read: ${tool}"}])
    config = tmp_path / "mcp.json"
    entry = {"url": f"http://127.0.0.1:{far.port}/mcp", "permission": "auto"}
    config.write_text(json.dumps({"mcpServers": {"far": entry}}))
    running = Server(tmp_path, model, ("--mcp-config", str(config)))
    try:
        running.start()
        wait_until(lambda: is_back(running, "far"))
        yield running
        assert running.stop() == 0
    finally:
        running.close()


def test_a_repeatable_call_that_its_server_dies_in_is_made_again_once_it_is_back(far: Far, server: Server) -> None:
    answers: list[tuple[str, str]] = []
    asking = threading.Thread(target=lambda: answers.append(ask(server, "far die_once")))
    asking.start()
    far.ended()
    far.start()
    asking.join(60)
    assert answers == [("die_once 2", "completed")]
    assert state(server, "far")["restarts"] == 1


def test_a_call_that_its_server_dies_in_is_told_and_the_next_one_works(far: Far, server: Server) -> None:
    text, status = ask(server, "far die")
    assert status == "failed"
    assert text.startswith("Error: the connection to far ended during the call of die (")
    assert text.endswith(MAYBE)
    far.ended()
    far.start()
    assert ask(server, "far well") == ("well 1", "completed")
    assert far.calls() == ["die", "well"], "a call that may have had an effect is made once"


def test_a_call_to_a_server_that_has_forgotten_the_session_is_made_once(far: Far, server: Server) -> None:
    assert ask(server, "far well") == ("well 1", "completed")
    far.kill()
    far.start()
    assert ask(server, "far well") == ("well 2", "completed")
    assert far.calls() == ["well", "well"]
    assert (state(server, "far")["restarts"], state(server, "far")["last_error"]) == (
        1,
        "the server has forgotten the session",
    )


def test_a_server_that_is_away_is_told_and_used_again_once_it_is_back(far: Far, server: Server) -> None:
    far.kill()
    port = far.port
    far.listener.close()
    assert ask(server, "far well") == (f"Error: {AWAY}", "failed")
    far.listener = socket.create_server(("127.0.0.1", port))
    far.start()
    wait_until(lambda: is_back(server, "far"), 45)
    assert ask(server, "far well") == ("well 1", "completed")
    assert far.calls() == ["well"]

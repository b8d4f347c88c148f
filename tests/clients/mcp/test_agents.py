"""Coding agents as MCP clients: over HTTP and by starting `tenuto mcp`, each finds the server and its tools."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import path_of
from tests.clients.mcp.serving import TRANSPORTS, printed, serving
from tests.e2e.server import Server, environment
from tests.third_party.installed import programs_from_npm

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("mcp-agents").resolve()) as running:
        yield running


def variables(home: Path, programs: tuple[Path, Path]) -> dict[str, str]:
    """The environment of a client in a home of its own."""
    return {**environment(home), "PATH": path_of(programs), "CODEX_HOME": str(home / ".codex")}


def installing(client: str, server: Server, transport: str) -> list[str]:
    """The command that lets a client have the server."""
    where = ["--url", f"{server.url}/mcp"] if transport == "http" else ["--", "--data-dir", str(server.data_dir)]
    return [sys.executable, "-m", "tenuto", "mcp", "install", client, *where]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_claude_code_finds_the_server_healthy(server: Server, transport: str, tmp_path: Path) -> None:
    programs = programs_from_npm("@anthropic-ai/claude-code", "2.1.330")
    own = variables(tmp_path, programs)
    printed(installing("claude", server, transport), own, tmp_path)
    listed = printed(["claude", "mcp", "list"], own, tmp_path)
    (line,) = [line for line in listed.splitlines() if line.startswith("tenuto:")]
    assert "Connected" in line, listed


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_codex_connects_and_lists_the_servers_tools(server: Server, transport: str, tmp_path: Path) -> None:
    programs = programs_from_npm("@openai/codex", "0.169.0")
    (tmp_path / ".codex").mkdir()
    own = variables(tmp_path, programs)
    printed(installing("codex", server, transport), own, tmp_path)
    assert "tenuto" in printed(["codex", "mcp", "list"], own, tmp_path)
    asked: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "test", "version": "1"}}},
        {"method": "initialized"},
        {"id": 2, "method": "mcpServerStatus/list", "params": {}},
    ]
    told = answered(own, tmp_path, asked, 2)
    (status,) = [one for one in told["data"] if one["name"] == "tenuto"]
    assert {"chat", "many__echo"} <= {*status["tools"]}, status


def answered(variables: dict[str, str], folder: Path, asked: list[dict[str, Any]], last: int) -> dict[str, Any]:
    """What Codex's app server answers to the last of several requests."""
    with subprocess.Popen(
        ["codex", "app-server"],
        env=variables,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as app:
        assert app.stdin is not None
        assert app.stdout is not None
        try:
            for one in asked:
                app.stdin.write(json.dumps(one) + "\n")
                app.stdin.flush()
            for line in app.stdout:
                answer = json.loads(line)
                if answer.get("id") == last:
                    assert "result" in answer, answer
                    return dict(answer["result"])
        finally:
            app.kill()
    raise AssertionError("it ended without an answer")

"""One runtime for all servers of others: a real process, a model that is a script, and the tools of all of them."""

import http.server
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import Server, script
from tests.third_party.cases import PAGE, Call, cases
from tests.third_party.installed import from_npm, from_pypi, python_with

FASTMCP = Path(__file__).with_name("fastmcp_server.py")
UP_S = 20.0


@dataclass(frozen=True)
class Peers:
    """The runtime with all of them, and what the model will call."""

    server: Server
    folder: Path
    calls: dict[str, Call]

    def ask(self, name: str) -> tuple[str, dict[str, Any]]:
        """Let the model make a call through the whole loop: what it read, and the session afterwards."""
        call, session = self.calls[name], f"{name}-{os.urandom(4).hex()}"
        body = {
            "messages": [{"role": "user", "content": name}],
            "tools": [{"type": "mcp", "server_label": call.server}],
            "session_id": session,
        }
        with self.server.client() as client:
            answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
            kept = client.get(f"/v1/sessions/{session}").raise_for_status().json()
        (made,) = answer["agentic_tool_calls"]
        assert (made["name"], made["status"]) == (call.exported, "completed"), made
        assert answer["choices"][0]["message"]["content"] == "read: " + made["result_content"].strip()
        return made["result_content"], kept

    def asked(self, name: str, content: dict[str, Any] | None) -> tuple[dict[str, Any], str]:
        """Let the model make a call in the middle of which its server asks: the question, and the answer in the end."""
        call = self.calls[name]
        body = {
            "messages": [{"role": "user", "content": name}],
            "tools": [{"type": "mcp", "server_label": call.server}],
        }
        with self.server.client() as client:
            paused = client.post("/v1/chat/completions", json=body).raise_for_status().json()["tenuto"]
            assert (paused["status"], paused["reason"]) == ("paused", "input"), paused
            reply = {"action": "accept"} if content is None else {"action": "accept", "content": content}
            client.post(f"/v1/agent/inputs/{paused['input_id']}", json=reply).raise_for_status()
            client.get(f"/v1/runs/{paused['run_id']}/events", params={"after": 0}).raise_for_status()
            run = client.get(f"/v1/runs/{paused['run_id']}").raise_for_status().json()
        assert run["status"] == "completed", run
        return paused["question"], run["text"]

    def states(self) -> dict[str, dict[str, Any]]:
        """Each server as /v1/mcp/servers shows it."""
        with self.server.client() as client:
            return {each["id"]: each for each in client.get("/v1/mcp/servers").raise_for_status().json()["data"]}


@pytest.fixture(scope="package")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    """Start everything; a server's own state is below a folder of the test's."""
    folder = tmp_path_factory.mktemp("third-party").resolve()
    with ExitStack() as stack:
        page = stack.enter_context(web_page())
        calls = cases(folder, page)
        config = {
            "mcpServers": {
                name: {**entry, "permission": "auto", "sampling": "allow"}
                for name, entry in entries(folder, stack).items()
            },
            "roots": [str(folder)],
        }
        (folder / "mcp.json").write_text(json.dumps(config))
        rules: list[dict[str, Any]] = [
            {"user": name, "calls": [{"name": call.exported, "arguments": call.arguments}]}
            for name, call in calls.items()
        ]
        rules.append({"user_matches": "capital", "text": "Paris"})
        rules.append({"tool_contains": "", "text": "read: ${tool}"})
        model = script(folder / "model.json", rules, cells=1 << 16)
        server = Server(folder, model, ("--mcp-config", str(folder / "mcp.json")))
        stack.callback(server.close)
        yield Peers(server.start(), folder, calls)


def entries(folder: Path, stack: ExitStack) -> dict[str, dict[str, Any]]:
    """The entries of the configuration; servers over HTTP are started here."""
    repository = folder / "repository"
    git = ("git", "-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-C", str(repository))
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "First light"], check=True)
    (folder / "files").mkdir()
    (folder / "files" / "old.txt").write_text("held\n")

    fetch = ["--ignore-robots-txt", "--allow-private-ips"]
    node, filesystem = from_npm("@modelcontextprotocol/server-filesystem", "2026.8.31")
    _, memory = from_npm("@modelcontextprotocol/server-memory", "2026.8.31")
    _, thinking = from_npm("@modelcontextprotocol/server-sequential-thinking", "2026.8.31")
    _, everything = from_npm("@modelcontextprotocol/server-everything", "2026.8.31")
    http_port = stack.enter_context(over_http([node, everything, "streamableHttp"]))
    sse_port = stack.enter_context(over_http([node, everything, "sse"]))
    return {
        "time": {"command": from_pypi("mcp-server-time", "2026.10.19")},
        "git": {"command": from_pypi("mcp-server-git", "2026.10.19"), "args": ["--repository", str(repository)]},
        "fetch": {"command": from_pypi("mcp-server-fetch", "2026.10.24"), "args": fetch},
        "filesystem": {"command": node, "args": [filesystem, str(folder / "files")]},
        "memory": {"command": node, "args": [memory], "env": {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}},
        "thinking": {"command": node, "args": [thinking]},
        "sqlite": {
            "command": from_pypi("mcp-server-sqlite", "2025.4.25", "mcp<2"),
            "args": ["--db-path", str(folder / "notes.db")],
        },
        "fastmcp2": {"command": python_with("fastmcp", "2.14.7"), "args": [str(FASTMCP)]},
        "fastmcp4": {"command": python_with("fastmcp", "4.2.3"), "args": [str(FASTMCP)]},
        "fastmcp4-before": {"command": python_with("fastmcp", "4.2.3"), "args": [str(FASTMCP)], "era": "legacy"},
        "everything": {"command": node, "args": [everything, "stdio"]},
        "http": {"url": f"http://127.0.0.1:{http_port}/mcp"},
        "sse": {"url": f"http://127.0.0.1:{sse_port}/sse"},
    }


@contextmanager
def over_http(command: list[str]) -> Iterator[int]:
    """Run a server that listens where PORT says; yields the port once it does."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env={**os.environ, "PORT": str(port)}, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        deadline = time.monotonic() + UP_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, f"{command} ended with {process.returncode}"
                assert time.monotonic() < deadline, f"{command} does not listen"
                time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait(UP_S)


@contextmanager
def web_page() -> Iterator[str]:
    """A page of the web; yields its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the base class finds it by this name
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{web.server_port}/page"
        finally:
            web.shutdown()
            thread.join(UP_S)

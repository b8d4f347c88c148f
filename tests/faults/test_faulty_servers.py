"""MCP servers that are a burden, on stdio and over HTTP, in both eras: no other server, session or run notices."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.e2e.forked import tool_server
from tests.e2e.server import Server
from tests.faults.test_mcp_servers import ask, state, wait_until
from tests.faults.test_questions import say

pytestmark = pytest.mark.slow

SERVERS = Path(__file__).parent.parent / "tools" / "servers"
FAULTY = str(SERVERS / "faulty.py")
TOOLS = ("echo", "late", "release", "change", "new", "orphan", "die", "odd_type", "odd_remote", "odd_cycle")
RULES: list[dict[str, Any]] = [
    *({"user": name, "calls": [{"name": f"faulty__{name}", "arguments": {}}]} for name in TOOLS),
    {"user": "odd", "calls": [{"name": "faulty__odd_pattern", "arguments": {"a": "x"}}]},
    {"user": "calm", "calls": [{"name": "calm__count", "arguments": {}}]},
    {"tool_contains": "", "text": "read: ${tool}"},
]
Burdened = Callable[..., Server]


@pytest.fixture(params=["stdio-legacy", "stdio-modern", "http-legacy", "http-modern"])
def burdened(request: pytest.FixtureRequest, start: Start, tmp_path: Path) -> Iterator[Burdened]:
    """Starts a runtime with the server behind it, and a calm one beside that."""
    transport, era = request.param.split("-")
    with ExitStack() as stack:

        def begin(**entry: Any) -> Server:
            where: dict[str, Any] = {"command": sys.executable, "args": [FAULTY]}
            if transport == "http":
                listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
                number = listener.fileno()
                process = stack.enter_context(
                    subprocess.Popen([sys.executable, FAULTY, str(number)], pass_fds=[number])
                )
                stack.callback(process.kill)
                where = {"url": f"http://127.0.0.1:{listener.getsockname()[1]}/mcp/", "type": "http"}
            calm = tool_server(SERVERS / "counting.py", str(tmp_path / "calm"))
            entries = {
                "faulty": {**where, "era": era, "permission": "auto", "tools": {"late": {"timeout_s": 1}}, **entry},
                "calm": {**calm, "permission": "auto"},
            }
            (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
            return start("--mcp-config", str(tmp_path / "mcp.json"), rules=RULES, cells=1 << 15)

        yield begin


def calm(server: Server) -> int:
    """What the calm server has counted, in one process all the time."""
    text, status = ask(server, "calm")
    assert status == "completed"
    assert state(server, "calm")["restarts"] == 0
    return int(text.split()[0])


def test_an_answer_after_the_deadline_is_no_other_calls_answer(burdened: Burdened) -> None:
    server = burdened()
    text, status = ask(server, "late")
    assert (status, "did not answer late within 1 s; the call may have had an effect" in text) == ("failed", True)
    assert ask(server, "release") == ("release", "completed")
    assert [ask(server, "echo") for _ in range(3)] == [("echo", "completed")] * 3
    assert (calm(server), state(server, "faulty")["restarts"]) == (1, 0)


def test_schemas_that_are_none_are_their_own_tools_affair(burdened: Burdened) -> None:
    server = burdened()
    assert ask(server, "echo") == ("echo", "completed")
    for tool in ("odd_type", "odd_remote", "odd_cycle", "odd"):
        ask(server, tool)  # whatever comes of it, it ends
    tools = state(server, "faulty")["tools"]
    assert len(set(tools)) == len(tools)
    assert all(len(name) <= 64 and name.isascii() for name in tools)
    assert ask(server, "echo", session="after") == ("echo", "completed")
    assert calm(server) == 1


def test_a_definition_that_changes_is_approved_anew(burdened: Burdened) -> None:
    server = burdened(permission={"echo": "ask", "*": "auto"})
    first = say(server, "echo", agent_events=True)["tenuto"]
    assert first["status"] == "paused"
    with server.client() as client:
        decision = {"decision": "approve", "remember_for_session": True}
        client.post(f"/v1/agent/approvals/{first['approval_id']}", json=decision).raise_for_status()
        wait_until(lambda: client.get(f"/v1/runs/{first['run_id']}").json()["status"] == "completed")
    assert say(server, "echo")["choices"][0]["message"]["content"] == "read: echo"
    assert ask(server, "change") == ("change", "completed")
    wait_until(lambda: "faulty__new" in state(server, "faulty")["tools"])
    assert "faulty__late" not in state(server, "faulty")["tools"]
    again = say(server, "echo", agent_events=True)["tenuto"]
    assert again["status"] == "paused"
    assert calm(server) == 1


def test_nothing_that_a_program_has_started_outlives_it(burdened: Burdened) -> None:
    server = burdened()
    if state(server, "faulty")["transport"] != "stdio":
        pytest.skip("a program that we do not start is not ours to end")
    orphans = [int(ask(server, "orphan")[0])]
    ask(server, "die")
    wait_until(lambda: not alive(orphans[0]))
    orphans.append(int(ask(server, "orphan")[0]))
    assert calm(server) == 1
    assert server.stop() == 0
    wait_until(lambda: not alive(orphans[1]))


def alive(pid: int) -> bool:
    """Whether there is a process of this id that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("kept", [True, False])
def test_an_instance_of_a_session_ends_with_the_session(start: Start, tmp_path: Path, kept: bool) -> None:
    calm = tool_server(SERVERS / "counting.py", str(tmp_path / "calm"))
    entries = {"calm": {**calm, "permission": "auto", "instance": "session"}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    server = start("--mcp-config", str(tmp_path / "mcp.json"), rules=RULES, cells=1 << 15)
    told = [
        say(server, "calm", session, store=kept)["choices"][0]["message"]["content"] for session in ("s", "s", "other")
    ]
    assert [text.split()[1] for text in told] == ["1", "2", "1"]
    pid, other = (int(told[index].split()[2]) for index in (0, 2))
    with server.client() as client:
        client.delete("/v1/sessions/s").raise_for_status()
    wait_until(lambda: not alive(pid))
    assert alive(other)

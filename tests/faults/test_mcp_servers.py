"""MCP servers in trouble, through the whole loop: the model reads what happened, and nobody else notices."""

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.forked import tool_server
from tests.e2e.server import Server, script

pytestmark = [pytest.mark.slow]

TROUBLED = str(Path(__file__).parent / "troubled.py")
CROWD = str(Path(__file__).parent / "crowd.py")
MAYBE = "it may have had an effect"
TOOLS = ("exit", "hang", "rubbish", "die", "die_once", "flood", "huge", "well", "die_idle", "grow", "new")
IN_A_CALL = {
    "exit": f"Error: the connection to t ended during the call of exit (it exited with code 1); {MAYBE}",
    "die": f"Error: the connection to t ended during the call of die (it was ended by SIGKILL); {MAYBE}",
    "huge": "Error: the connection to t ended during the call of huge (it sent a message over 33554432 bytes); "
    + MAYBE,
    "hang": "Error: t did not answer hang within 2 s; the call may have had an effect",
    "rubbish": "rubbish 1",
    "flood": "flood 1",
}
AT_THE_START = {
    "exits": "it exited with code 1",
    "hangs": "it was not ready within 2 s",
    "rubbish": "it was not ready within 2 s",
    "missing": "the command 'no-such-command' was not found on PATH",
}


def entry(*arguments: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [TROUBLED, *arguments], "permission": "auto", **more}


Begin = Callable[..., Server]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts a runtime whose model calls the tool that the user names, of the configured servers."""
    servers: list[Server] = []

    def start(*flags: str, first: tuple[dict[str, Any], ...] = (), **entries: dict[str, Any]) -> Server:
        rules: list[dict[str, Any]] = [
            {"user": f"{label} {tool}", "calls": [{"name": f"{label}__{tool}", "arguments": {}}]}
            for label in entries
            for tool in TOOLS
        ]
        model = script(
            tmp_path / "model.json", [*first, *rules, {"tool_contains": "", "text": "read: ${tool}"}], cells=1 << 15
        )
        config = tmp_path / "mcp.json"
        config.write_text(json.dumps({"mcpServers": entries}))
        server = Server(tmp_path, model, ("--mcp-config", str(config), *flags))
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        try:
            assert server.stop() == 0, "a server in trouble does not hold up the stop"
        finally:
            server.close()


def ask(server: Server, what: str, session: str | None = None) -> tuple[str, str]:
    """One turn; what the model read of its call, and how the call ended. The run has completed."""
    body = {"messages": [{"role": "user", "content": what}]} | ({"session_id": session} if session else {})
    with server.client() as client:
        answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["tenuto"]["status"] == "completed"
    (made,) = answer["agentic_tool_calls"]
    assert answer["choices"][0]["message"]["content"] == f"read: {made['result_content']}"
    return made["result_content"], made["status"]


def state(server: Server, name: str) -> dict[str, Any]:
    with server.client() as client:
        listed = client.get("/v1/mcp/servers").raise_for_status().json()["data"]
    return next(each for each in listed if each["id"] == name)


@pytest.mark.parametrize("tool", IN_A_CALL)
def test_trouble_in_a_call_is_a_result_and_the_next_call_works(begin: Begin, tmp_path: Path, tool: str) -> None:
    book = tmp_path / "book"
    server = begin(t=entry("none", str(book), tools={"hang": {"timeout_s": 2}}), calm=entry())
    others: list[tuple[str, str]] = []
    beside = threading.Thread(target=lambda: others.append(ask(server, "calm well")))
    beside.start()
    text, status = ask(server, f"t {tool}")
    beside.join(30)
    assert text == IN_A_CALL[tool]
    assert status == ("failed" if text.startswith("Error: ") else "completed")
    assert others == [("well 0", "completed")]
    assert book.read_text().split().count(tool) == 1, "a call that may have had an effect is made once"
    if tool != "hang":
        wait_until(lambda: is_back(server, "t"))
        assert ask(server, "t well") == ("well 1", "completed")
    assert state(server, "calm")["restarts"] == 0


def test_what_a_server_said_last_can_be_read(begin: Begin) -> None:
    server = begin(t=entry())
    ask(server, "t exit")
    wait_until(lambda: is_back(server, "t"))
    ask(server, "t well")
    seen = state(server, "t")
    assert (seen["status"], seen["restarts"], seen["last_error"]) == ("ready", 1, "it exited with code 1")
    assert seen["stderr"] == ["out of memory"]
    ask(server, "t flood")
    wait_until(lambda: state(server, "t")["stderr"][-1].startswith("complaint 9999 !!!"))
    assert len(state(server, "t")["stderr"]) == 20


def test_a_call_that_its_server_calls_idempotent_is_made_again(begin: Begin, tmp_path: Path) -> None:
    book = tmp_path / "book"
    server = begin(t=entry("none", str(book)))
    assert ask(server, "t die_once") == ("die_once 2", "completed")
    assert state(server, "t")["restarts"] == 1


def test_a_server_that_died_while_idle_is_called_once_it_is_back(begin: Begin, tmp_path: Path) -> None:
    book = tmp_path / "book"
    server = begin(t=entry("none", str(book)))
    ask(server, "t die_idle")
    wait_until(lambda: state(server, "t")["restarts"] == 1 and is_back(server, "t"))
    assert ask(server, "t well") == ("well 1", "completed")


@pytest.mark.parametrize("trouble", AT_THE_START)
def test_a_server_that_does_not_start_is_shown_with_its_reason(begin: Begin, trouble: str) -> None:
    patience = {"start_timeout_s": 2} if AT_THE_START[trouble] == "it was not ready within 2 s" else {}
    broken = entry(trouble, **patience) if trouble != "missing" else {"command": "no-such-command"}
    server = begin(broken=broken, calm=entry())
    assert ask(server, "calm well") == ("well 0", "completed")
    seen = state(server, "broken")
    assert (seen["last_error"], seen["tools"]) == (AT_THE_START[trouble], [])
    if trouble == "exits":
        assert "no licence" in seen["stderr"]
    if trouble == "rubbish":
        assert seen["stderr"][-1] == "this is no message"


def test_a_server_that_keeps_failing_is_started_after_longer_and_longer_waits(begin: Begin) -> None:
    server = begin("--log-level", "debug", broken=entry("exits"), calm=entry())
    wait_until(lambda: state(server, "broken")["restarts"] >= 4)
    waits = re.findall(r"the MCP server broken: it exited with code 1; next try in (\S+) s", server.log)
    assert waits[:4] == ["0", "0.5", "1", "2"]
    assert ask(server, "calm well") == ("well 0", "completed")


@pytest.mark.parametrize("limit", [1, 2])
def test_no_more_calls_of_a_tool_are_under_way_than_its_limit(begin: Begin, limit: int) -> None:
    meetings = [{"name": "crowd__meet", "arguments": {"number": limit, "who": who}} for who in range(6)]
    server = begin(
        first=({"user": "meet", "calls": meetings},),
        crowd={**tool_server(CROWD), "permission": "auto", "max_concurrency": limit},
    )
    with server.client() as client:
        body = {"messages": [{"role": "user", "content": "meet"}]}
        answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    assert [call["result_content"] for call in answer["agentic_tool_calls"]] == [f"{limit} at once"] * 6


def test_a_session_keeps_its_tools_while_the_list_changes(begin: Begin) -> None:
    server = begin(t=entry())
    assert ask(server, "t grow", session="old") == ("grow 0", "completed")
    wait_until(lambda: "t__new" in state(server, "t")["tools"])
    with server.client() as client:
        old = client.get("/v1/sessions/old").raise_for_status().json()
    assert "t__well" in json.dumps(old["tools"])
    assert "t__new" not in json.dumps(old["tools"])
    assert ask(server, "t well", session="old") == ("well 0", "completed")
    assert ask(server, "t new", session="fresh") == ("new 0", "completed")


def test_no_secret_of_the_configuration_is_shown(begin: Begin) -> None:
    echo = "import os, sys; print('key', os.environ['KEY'], file=sys.stderr); sys.exit(1)"
    also = "import sys; print('key', sys.argv[2], file=sys.stderr); sys.exit(1)"
    server = begin(
        leaky={"command": sys.executable, "args": ["-c", echo], "env": {"KEY": "s3cret-value"}},
        telling={"command": sys.executable, "args": ["-c", also, "--token", "s3cret-word"]},
        calm=entry(),
    )
    for name in ("leaky", "telling"):
        seen = state(server, name)
        assert "key ***" in seen["stderr"]
        assert "s3cret" not in json.dumps(seen)
    assert "s3cret" not in server.log


def is_back(server: Server, name: str) -> bool:
    seen = state(server, name)
    return bool(seen["status"] == "ready" and seen["tools"])


def wait_until(condition: Callable[[], bool], seconds: float = 15) -> None:
    """Ask again and again; each question takes a round trip to the server."""
    done = threading.Event()
    timer = threading.Timer(seconds, done.set)
    timer.start()
    try:
        while not condition():
            assert not done.is_set(), "it did not come to pass"
    finally:
        timer.cancel()

"""A run that waits for a person is answered, after a crash, by another client than the one that began it, and ends."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from tests.conftest import Start
from tests.e2e.forked import tool_server
from tests.e2e.server import Server
from tests.faults.test_questions import GOOD, answer, ended, say
from tests.mcp.test_approval import connected
from tests.mcp.test_http import answer_of

pytestmark = pytest.mark.slow

ASKER = Path(__file__).parent.parent / "tools" / "servers" / "asker.py"
RULES: list[dict[str, Any]] = [
    {"user": "approval", "calls": [{"name": "careful__log", "arguments": {}}]},
    {"user": "input", "calls": [{"name": "asker__form", "arguments": {}}]},
    {"tool_contains": "", "text": "heard: ${tool}"},
]
HEARD = {"approval": "heard: called log", "input": "heard: accept colour=blue name=Ann"}
REASONS = tuple(HEARD)


@pytest.fixture
def waiting(start: Start, tmp_path: Path) -> Callable[[], Server]:
    """Starts a server with a tool that asks, and one that must be asked about."""

    def begin() -> Server:
        entry = {**tool_server(ASKER), "cwd": str(tmp_path), "era": "modern"}
        entries = {"asker": {**entry, "permission": "auto"}, "careful": {**entry, "permission": "ask"}}
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
        return start("--mcp-config", str(tmp_path / "mcp.json"), rules=RULES, cells=1 << 15)

    return begin


@pytest.mark.parametrize("reason", REASONS)
async def test_begun_over_http_and_answered_over_mcp(waiting: Callable[[], Server], reason: str) -> None:
    server = waiting()
    paused = say(server, reason)["tenuto"]
    assert (paused["status"], paused["reason"]) == ("paused", reason)
    server.kill()
    server.start()
    given: dict[str, Any] = {"decision": "approve"} if reason == "approval" else {"answer": GOOD}
    async with connected(server, "stdio", "legacy") as client:
        done = answer_of(await client.call_tool("run_resume", {"run_id": paused["run_id"], **given}))
    assert done["status"] == "completed"
    assert done["text"].startswith(HEARD[reason])


@pytest.mark.parametrize("reason", REASONS)
async def test_begun_over_mcp_and_answered_over_http(waiting: Callable[[], Server], reason: str) -> None:
    server = waiting()
    async with connected(server, "http", "auto") as client:
        paused = answer_of(await client.call_tool("chat", {"message": reason}))
    assert (paused["status"], paused["pause"]["reason"]) == ("paused", reason)
    server.kill()
    server.start()
    id = paused["pause"]["id"]
    if reason == "input":
        (await anyio.to_thread.run_sync(answer, server, id, GOOD)).raise_for_status()
    else:
        with server.client() as http:
            http.post(f"/v1/agent/approvals/{id}", json={"decision": "approve"}).raise_for_status()
    run = await anyio.to_thread.run_sync(ended, server, paused["run_id"])
    assert run["status"] == "completed"
    assert run["text"].startswith(HEARD[reason])

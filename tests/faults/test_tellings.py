"""What servers tell in the middle of calls, progress and logs, is told of the run, bounded and without secrets."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp.types as t
import pytest

from tests.conftest import Start
from tests.e2e.forked import tool_server
from tests.e2e.server import Server
from tests.faults.test_questions import say
from tests.faults.test_samples import events_of
from tests.mcp.conftest import ERAS
from tests.mcp.test_approval import connected

pytestmark = pytest.mark.slow

TELLING = Path(__file__).parent.parent / "tools" / "servers" / "telling.py"
TOOLS = ("work", "chatter", "garbage", "leak", "undeclared", "exit")
RULES: list[dict[str, Any]] = [
    *({"user": name, "calls": [{"name": f"telling__{name}", "arguments": {}}]} for name in TOOLS),
    {"tool_contains": "", "text": "heard: ${tool}"},
]
SECRET = "s3cret-value"


@pytest.fixture(params=["legacy", "modern"])
def telling(request: pytest.FixtureRequest, start: Start, tmp_path: Path) -> Callable[[], Server]:
    """Starts a server with the one that tells behind it."""

    def begin() -> Server:
        own = {"permission": "auto", "era": request.param, "env": {"KEY": SECRET}}
        entry = {**own, **tool_server(TELLING)}
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"telling": entry}}))
        return start("--mcp-config", str(tmp_path / "mcp.json"), rules=RULES, cells=1 << 15)

    return begin


def told(server: Server, run_id: str) -> list[dict[str, Any]]:
    return [event for event in events_of(server, run_id) if event["type"] == "tool_told"]


def test_progress_and_logs_are_events_of_the_run_and_outlive_a_restart(telling: Callable[[], Server]) -> None:
    server = telling()
    answer = say(server, "work")
    run_id = answer["tenuto"]["run_id"]
    events = told(server, run_id)
    progress = [(one["done"], one["total"], one["text"]) for one in events if one["level"] is None]
    assert progress[0] == (1, 3, "begun")
    assert progress[-1] == (3, 3, "done")
    (logged,) = [one for one in events if one["level"] is not None]
    assert (logged["level"], logged["name"], logged["round"]) == ("warning", "telling__work", 1)
    assert logged["text"] == 'worker: {"key": "***"}'
    assert SECRET not in server.log


def test_a_server_that_tells_without_end_is_cut(telling: Callable[[], Server]) -> None:
    server = telling()
    answer = say(server, "chatter")
    assert answer["choices"][0]["message"]["content"] == "heard: chatter"
    events = told(server, answer["tenuto"]["run_id"])
    assert 0 < len(events) <= 300
    assert all(len(one["text"]) < 2100 for one in events)


def test_what_cannot_be_told_does_no_harm(telling: Callable[[], Server]) -> None:
    server = telling()
    answer = say(server, "garbage")
    assert answer["choices"][0]["message"]["content"] == "heard: garbage"
    assert [one["level"] for one in told(server, answer["tenuto"]["run_id"])] == ["emergency"]


@pytest.mark.parametrize("tool", ["leak", "undeclared", "exit"])
def test_no_secret_that_a_server_tells_is_shown_or_kept(telling: Callable[[], Server], tool: str) -> None:
    server = telling()
    answer = say(server, tool)
    with server.client() as client:
        paths = ("/v1/mcp/servers", "/v1/sessions/s", f"/v1/runs/{answer['tenuto']['run_id']}", "/metrics")
        seen = [client.get(path).raise_for_status().text for path in paths]
    seen += [json.dumps(answer), json.dumps(events_of(server, answer["tenuto"]["run_id"])), server.log]
    assert all(SECRET not in text for text in seen)
    assert "***" in "".join(seen)


@pytest.mark.parametrize("mode", ERAS)
async def test_an_mcp_client_that_waits_hears_of_both(telling: Callable[[], Server], mode: Any) -> None:
    logs: list[Any] = []
    heard: list[str | None] = []

    async def log(params: t.LoggingMessageNotificationParams) -> None:
        logs.append(params.data)

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with connected(telling(), "http", mode, logging_callback=log, log_level="warning") as client:
        await client.call_tool("chat", {"message": "work"}, progress_callback=hear)
    assert "[telling__work: 1 of 3, begun]" in heard
    (message,) = [one for one in logs if one["event"] == "tool_told"]
    assert message["text"] == 'worker: {"key": "***"}'

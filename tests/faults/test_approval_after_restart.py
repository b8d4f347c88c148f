"""An approval asked for in one process is given after a restart by another client, and the run finishes."""

import anyio
import pytest
from mcp import Client

from tests.conftest import Start
from tests.e2e.server import Server
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

RULES = [
    {"user": "add", "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "20 + 22"}}]},
    {"tool_contains": "", "text": "the result: ${tool}"},
]


def ask(server: Server) -> tuple[str, str]:
    """Ask for a call that needs approval; the run and the approval that it waits for."""
    body = {"messages": [{"role": "user", "content": "add"}], "session_id": "s", "agent_permission": "ask"}
    with server.client() as client:
        answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    assert answer["tenuto"]["status"] == "paused"
    assert answer["choices"][0]["finish_reason"] == "stop"
    return answer["tenuto"]["run_id"], answer["tenuto"]["approval_id"]


def finished(server: Server, run_id: str) -> dict[str, object]:
    with server.client() as client:
        with client.stream("GET", f"/v1/runs/{run_id}/events", params={"after": 0}) as events:
            for _ in events.iter_lines():
                pass
        run: dict[str, object] = client.get(f"/v1/runs/{run_id}").json()
        return run


@pytest.mark.parametrize(
    ("decision", "text"), [("approve", "the result: 42"), ("deny", "the result: The user denied this tool call.")]
)
def test_it_is_answered_after_kill_9_and_the_run_finishes(start: Start, decision: str, text: str) -> None:
    server = start(rules=RULES)
    run_id, approval_id = ask(server)
    server.kill()
    server.start()
    with server.client() as client:
        assert client.get(f"/v1/runs/{run_id}").json()["status"] == "paused"
        client.post(f"/v1/agent/approvals/{approval_id}", json={"decision": decision}).raise_for_status()
        run = finished(server, run_id)
        assert (run["status"], run["text"]) == ("completed", text)
        again = client.post(f"/v1/agent/approvals/{approval_id}", json={"decision": decision})
        assert again.status_code == 409


async def test_the_session_then_goes_on_over_mcp(start: Start) -> None:
    server = start(rules=RULES)
    run_id, approval_id = ask(server)
    server.kill()
    server.start()
    with server.client() as client:
        client.post(f"/v1/agent/approvals/{approval_id}", json={"decision": "approve"}).raise_for_status()
    finished(server, run_id)
    with anyio.fail_after(HANGS_S):
        async with Client(f"{server.url}/mcp") as mcp:
            answer = await mcp.call_tool("chat", {"session_id": "s", "message": "hello"})
    assert answer.structured_content is not None
    assert answer.structured_content["text"] == "hello"

"""A client that goes away, wherever its run is: the sequence stops, its place is free again, others go on."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Start
from tests.e2e.forked import tool_server
from tests.e2e.server import Server
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

WAIT_S = HANGS_S
RULES = [
    {"user_contains": "long", "text": "x" * 100_000, "delay_ms": 5},
    {"user": "wait", "calls": [{"name": "slow__wait", "arguments": {}}]},
    {"user": "sum", "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "6 * 7"}}]},
    {"tool_contains": "", "text": "told: ${tool}"},
]


def body(text: str, session: str, **extra: Any) -> dict[str, Any]:
    return {"session_id": session, "messages": [{"role": "user", "content": text}], "max_tokens": 50_000, **extra}


def figures(client: httpx.Client) -> dict[str, float]:
    """Every series of /metrics."""
    lines = client.get("/metrics").text.splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def states(client: httpx.Client) -> dict[str, int]:
    """How many sequences there are in each state."""
    known = figures(client)
    return {state: int(known[f'tenuto_sequences{{model="model",state="{state}"}}']) for state in STATES}


STATES = ("waiting", "prefilling", "decoding", "paused")


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"it never came about that {what}"


def assert_all_is_free(server: Server, client: httpx.Client) -> None:
    """Nothing waits, nothing is computed, and somebody else is answered in the only slot."""
    until(lambda: {**states(client), "paused": 0} == dict.fromkeys(STATES, 0), "no sequence is at work")
    until(lambda: figures(client)['tenuto_runs{state="working"}'] == 0, "no run is at work")
    answer = client.post("/v1/chat/completions", json=body("hello", "other")).json()
    assert answer["choices"][0]["message"]["content"] == "hello"
    assert "Traceback" not in server.log


def run_of(client: httpx.Client, response: httpx.Response) -> dict[str, Any]:
    known: dict[str, Any] = client.get(f"/v1/runs/{response.headers['x-tenuto-run-id']}").json()
    return known


def test_in_the_middle_of_a_prefill(start: Start) -> None:
    """A prompt of some hundred steps beside a client that goes on decoding."""
    server = start(rules=RULES, cells=600_000, slots=2)
    with server.client() as client, server.client() as gone:
        request = gone.build_request("POST", "/v1/chat/completions", json=body("long " * 60_000, "s", stream=True))
        with client.stream("POST", "/v1/chat/completions", json=body("long", "bystander", stream=True)) as bystander:
            lines = bystander.iter_lines()
            next(lines)
            response = gone.send(request, stream=True)
            until(lambda: states(client)["prefilling"] == 1, "it is being prefilled")
            response.close()
            until(lambda: states(client)["prefilling"] == 0, "the prefill has been given up")
            until(lambda: run_of(client, response)["status"] == "cancelled", "the run is cancelled")
            assert run_of(client, response)["usage"]["completion_tokens"] == 0
            for _, line in zip(range(40), lines, strict=False):
                assert "error" not in line
        assert_all_is_free(server, client)


def test_in_the_middle_of_a_decode(start: Start) -> None:
    server = start(rules=RULES, cells=300_000, slots=1)
    with server.client() as client, server.client() as gone:
        with gone.stream("POST", "/v1/chat/completions", json=body("long", "s", stream=True)) as response:
            lines = response.iter_lines()  # kept, because to drop it is to leave
            next(lines)
            until(lambda: states(client)["decoding"] == 1, "it decodes")
        assert_all_is_free(server, client)
        assert run_of(client, response)["status"] == "cancelled"
        kept = client.get("/v1/sessions/s").json()["items"]
        assert [item["kind"] for item in kept][:1] == ["user"]


def test_while_it_waits_in_the_queue(start: Start) -> None:
    """Of those that wait one leaves; it is never begun, and the others get their turn."""
    server = start(rules=RULES, cells=300_000, slots=1)
    with server.client() as client, server.client() as gone:
        holder = client.stream("POST", "/v1/chat/completions", json=body("long", "holder", stream=True))
        with holder as held:
            lines = held.iter_lines()  # kept, because to drop it is to leave
            next(lines)
            waiting = gone.stream("POST", "/v1/chat/completions", json=body("hello", "s", stream=True))
            with waiting as response:
                until(lambda: states(client)["waiting"] == 1, "it waits")
            until(lambda: states(client)["waiting"] == 0, "its place is free")
            assert states(client)["decoding"] == 1, "the other goes on"
        assert_all_is_free(server, client)
        run = run_of(client, response)
        assert (run["status"], run["usage"]["completion_tokens"]) == ("cancelled", 0)


def test_in_the_middle_of_a_tool_call(start: Start, tmp_path: Path) -> None:
    go, book = tmp_path / "go", tmp_path / "book.txt"
    program = str(Path(__file__).with_name("slow.py"))
    entry = {**tool_server(program, str(go), str(book)), "permission": "auto"}
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"slow": entry}}))
    server = start("--mcp-config", str(config), rules=RULES, cells=300_000, slots=1)
    with server.client() as client, server.client() as gone:
        with gone.stream("POST", "/v1/chat/completions", json=body("wait", "s", stream=True)) as response:
            until(book.exists, "the tool is called")
            assert states(client)["paused"] == 2  # with the one that the server has had read when it loaded the model
        until(lambda: book.read_text() == "called\ncancelled\n", "the tool is told")
        assert_all_is_free(server, client)
        assert run_of(client, response)["status"] == "cancelled"
        assert client.get("/v1/sessions/s").json()["items"][-1]["text"] == "cancelled; it may have had an effect"


def test_a_run_that_waits_for_its_client_is_not_cancelled(start: Start) -> None:
    server = start(rules=RULES, slots=1)
    with server.client() as client, server.client() as gone:
        asking = body("sum", "s", agent_permission="ask", stream=True)
        with gone.stream("POST", "/v1/chat/completions", json=asking) as response:
            assert any("approval_id" in line for line in response.iter_lines())
        run = run_of(client, response)
        assert run["status"] == "paused"
        assert figures(client)['tenuto_runs{state="waiting"}'] == 1
        client.post(f"/v1/agent/approvals/{run['pause']['id']}", json={"decision": "approve"}).raise_for_status()
        until(lambda: run_of(client, response)["status"] == "completed", "it has gone on")

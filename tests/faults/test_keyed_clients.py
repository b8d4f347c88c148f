"""Clients that time out and come again with their Idempotency-Key: one run, each effect once, and its answer."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Start
from tests.e2e.server import Server
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

WAIT_S = HANGS_S
RULES = [
    {"user_contains": "wait", "calls": [{"name": "slow__wait", "arguments": {}}]},
    {"tool_contains": "", "text": "told: ${tool}"},
]
KEY = {"Idempotency-Key": "once"}


@pytest.fixture
def server(start: Start, tmp_path: Path) -> Server:
    slow = [str(Path(__file__).with_name("slow.py")), str(tmp_path / "go"), str(tmp_path / "book")]
    configured = tmp_path / "mcp.json"
    configured.write_text(json.dumps({"mcpServers": {"slow": {"command": sys.executable, "args": slow}}}))
    return start("--mcp-config", str(configured), "--agent-permission", "auto", rules=RULES)


def body(text: str, **extra: Any) -> dict[str, Any]:
    return {"session_id": "s", "messages": [{"role": "user", "content": text}], **extra}


def text_of(answer: httpx.Response, stream: bool) -> str:
    if not stream:
        text: str = answer.json()["choices"][0]["message"]["content"]
        return text
    chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def book(folder: Path) -> list[str]:
    path = folder / "book"
    return path.read_text().split() if path.exists() else []


def time_out(server: Server, folder: Path, stream: bool) -> None:
    """A first client that has had enough once the tool has been called; the server gets to know of it."""
    impatient = httpx.Client(base_url=server.url, timeout=httpx.Timeout(WAIT_S, read=1.0))
    with impatient, pytest.raises(httpx.ReadTimeout):
        impatient.post("/v1/chat/completions", json=body("wait", stream=stream), headers=KEY)
    deadline = time.monotonic() + WAIT_S
    while not book(folder):
        assert time.monotonic() < deadline, server.log
        time.sleep(0.01)
    time.sleep(1.0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_repeat_after_a_time_out_gets_the_answer_and_the_tool_is_called_once(
    server: Server, tmp_path: Path, stream: bool
) -> None:
    time_out(server, tmp_path, stream)
    with server.client(headers=KEY) as patient:
        (tmp_path / "go").touch()
        again = patient.post("/v1/chat/completions", json=body("wait", stream=stream))
        assert text_of(again, stream) == "told: waited"
        kinds = [item["kind"] for item in patient.get("/v1/sessions/s").json()["items"]]
    assert book(tmp_path) == ["called", "answered"]
    assert kinds == ["user", "assistant", "tool_result", "assistant"]


def test_a_client_that_says_something_else_after_a_time_out_is_not_kept_waiting(server: Server, tmp_path: Path) -> None:
    time_out(server, tmp_path, stream=False)
    with server.client() as client:
        answer = client.post("/v1/chat/completions", json=body("hello")).raise_for_status().json()
        assert answer["choices"][0]["message"]["content"] == "hello"
        late = client.post("/v1/chat/completions", json=body("wait", stream=False), headers=KEY).headers[
            "x-tenuto-run-id"
        ]
        assert client.get(f"/v1/runs/{late}").json()["status"] == "cancelled"
    assert book(tmp_path) == ["called", "cancelled"]

"""SIGTERM under load: every run finishes, waits, or is closed as interrupted; what was acknowledged is there."""

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Start
from tests.e2e.server import Server
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

RULES = [
    {"user_contains": "slowly", "text": "s" * 100, "delay_ms": 10},
    {"user_contains": "for ever", "text": "e" * 100_000, "delay_ms": 10},
    {"user": "mine", "calls": [{"name": "mine", "arguments": {}}]},
    {"user": "wait", "calls": [{"name": "slow__wait", "arguments": {}}]},
    {"user": "ask", "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "6 * 7"}}]},
    {"tool_contains": "", "text": "told: ${tool}"},
]
MINE = {"type": "function", "function": {"name": "mine", "parameters": {"type": "object", "properties": {}}}}
WAIT_S = HANGS_S


class Streamed:
    """One streamed answer, read in a thread: what came of it, and how it ended."""

    def __init__(self, url: str, session: str, text: str, **extra: Any) -> None:
        self.begun = threading.Event()
        self.text = ""
        self.finish: str | None = None
        self.error: dict[str, Any] | None = None
        self.done = False
        self._thread = threading.Thread(target=self._read, args=(url, session, text, extra), daemon=True)
        self._thread.start()

    def _read(self, url: str, session: str, text: str, extra: dict[str, Any]) -> None:
        body = {"session_id": session, "stream": True, "messages": [{"role": "user", "content": text}], **extra}
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=WAIT_S) as response:
            for line in response.iter_lines():
                self.done = self.done or line == "data: [DONE]"
                if line.startswith("data: {"):
                    self._take(json.loads(line[6:]))

    def _take(self, chunk: dict[str, Any]) -> None:
        self.error = chunk.get("error", self.error)
        if chunk.get("phase") == "calling":
            self.begun.set()
        for choice in chunk.get("choices", []):
            self.text += choice["delta"].get("content") or ""
            self.finish = choice["finish_reason"] or self.finish
        if self.text:
            self.begun.set()

    def wait(self) -> "Streamed":
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        return self


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as executor:
        yield executor


def say(client: httpx.Client, session: str, text: str, **extra: Any) -> dict[str, Any]:
    body = {"session_id": session, "messages": [{"role": "user", "content": text}], **extra}
    answer: dict[str, Any] = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    return answer


def terminate(server: Server) -> None:
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)


def until_draining(client: httpx.Client) -> None:
    deadline = time.monotonic() + WAIT_S
    while client.get("/ready").status_code != 503:
        assert time.monotonic() < deadline


def items(client: httpx.Client, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/v1/sessions/{session}").raise_for_status().json()["items"]
    return found


def running(client: httpx.Client) -> int:
    """How many sequences decode or wait, as /metrics counts them."""
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith("tenuto_sequences{")]
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if 'state="paused"' not in line)


def test_a_drain_finishes_or_pauses_every_run(start: Start, pool: ThreadPoolExecutor) -> None:
    server = start(rules=RULES, slots=16)
    with server.client() as client:
        waiting = say(client, "asks", "ask", agent_permission="ask")["tenuto"]
        outstanding = say(client, "mine", "mine", tools=[MINE])["choices"][0]["message"]["tool_calls"]
    streams = [Streamed(server.url, f"s{number}", "slowly") for number in range(12)]
    assert all(stream.begun.wait(WAIT_S) for stream in streams)
    whole: list[Future[dict[str, Any]]] = []
    with server.client() as client:
        whole = [pool.submit(say, client, f"w{number}", "hello slowly") for number in range(4)]
        deadline = time.monotonic() + WAIT_S
        while running(client) < 16:
            assert time.monotonic() < deadline
        terminate(server)
        until_draining(client)
        assert client.get("/health").status_code == 200
        refused = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "late"}]})
        decided = client.post(f"/v1/agent/approvals/{waiting['approval_id']}", json={"decision": "approve"})
        for response in (refused, decided):
            assert response.status_code == 503
            assert response.headers["retry-after"] == "5"
            assert response.json()["error"]["message"] == "the server is stopping"
            assert response.json()["error"]["code"] == "shutting_down"
        assert [future.result(WAIT_S)["choices"][0]["message"]["content"] for future in whole] == ["s" * 100] * 4
    for stream in streams:
        stream.wait()
        assert (stream.text, stream.finish, stream.done, stream.error) == ("s" * 100, "stop", True, None)
    assert server.ended() == 0
    assert "Traceback" not in server.log
    assert "Cancel" not in server.log, "no request was broken off"

    server.start()
    with server.client() as client:
        for session in [f"s{number}" for number in range(12)] + [f"w{number}" for number in range(4)]:
            assert items(client, session)[-1]["text"] == "s" * 100
        client.post(f"/v1/agent/approvals/{waiting['approval_id']}", json={"decision": "approve"}).raise_for_status()
        result = {"role": "tool", "tool_call_id": outstanding[0]["id"], "content": "did it"}
        body = {"session_id": "mine", "tools": [MINE], "messages": [result]}
        answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
        assert answer["choices"][0]["message"]["content"] == "told: did it"


def test_when_the_time_is_over_runs_are_closed_as_interrupted(start: Start) -> None:
    server = start("--shutdown-s", "0.5", rules=RULES, cells=300_000)
    streams = [Streamed(server.url, f"s{number}", "for ever", max_tokens=50_000) for number in range(4)]
    assert all(stream.begun.wait(WAIT_S) for stream in streams)
    terminate(server)
    for stream in streams:
        stream.wait()
        assert stream.error is None or stream.error["code"] == "shutting_down"
    assert server.ended() == 0
    assert "Traceback" not in server.log

    server.start()
    with server.client() as client:
        for number, stream in enumerate(streams):
            kept = items(client, f"s{number}")[-1]
            assert kept["incomplete"]
            assert kept["text"] == stream.text, "what the client saw is what is kept"
            assert say(client, f"s{number}", "hello")["choices"][0]["message"]["content"] == "hello"


def test_a_second_signal_stops_at_once(start: Start) -> None:
    server = start("--shutdown-s", "3600", rules=RULES, cells=300_000)
    stream = Streamed(server.url, "s", "for ever", max_tokens=50_000)
    assert stream.begun.wait(WAIT_S)
    terminate(server)
    with server.client() as client:
        until_draining(client)
    begun = time.monotonic()
    terminate(server)
    assert server.ended() == 0
    assert time.monotonic() - begun < 10, "nobody has waited for the run"
    server.start()
    with server.client() as client:
        assert items(client, "s")[-1]["incomplete"]


@pytest.mark.parametrize("in_time", [True, False])
def test_a_call_under_way_is_awaited_or_recorded_as_cut(start: Start, tmp_path: Path, in_time: bool) -> None:
    """A call that may have had an effect is never made again, and the model is told what is known of it."""
    go, book = tmp_path / "go", tmp_path / "book.txt"
    entry = {
        "command": sys.executable,
        "args": [str(Path(__file__).with_name("slow.py")), str(go), str(book)],
        "permission": "auto",
    }
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"slow": entry}}))
    seconds = "30" if in_time else "0.5"
    server = start("--mcp-config", str(config), "--shutdown-s", seconds, rules=RULES)
    stream = Streamed(server.url, "s", "wait", max_tool_rounds=4)
    deadline = time.monotonic() + WAIT_S
    while not book.exists():
        assert time.monotonic() < deadline
    terminate(server)
    with server.client() as client:
        if in_time:
            until_draining(client)
            go.touch()
    stream.wait()
    assert server.ended() == 0
    assert "Traceback" not in server.log
    server.start()
    with server.client() as client:
        kept = items(client, "s")
        if in_time:
            assert (stream.text, stream.finish, stream.error) == ("told: waited", "stop", None)
            assert kept[-1]["text"] == "told: waited"
            assert book.read_text() == "called\nanswered\n"
        else:
            assert kept[-1]["text"] == "interrupted; it may have had an effect"
            assert book.read_text() == "called\ncancelled\n"
        assert say(client, "s", "hello")["choices"][0]["message"]["content"] == "hello"
    assert book.read_text().count("called") == 1

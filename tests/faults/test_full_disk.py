"""A disk that is full, a real one of a few megabytes: nothing acknowledged is lost, and the server lives on."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Start
from tests.e2e.server import Server, environment, script
from tests.faults.disks import fill, mounted
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

RECOVERS_S = HANGS_S
RULES = [
    {"user_contains": "sum", "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "6 * 7"}}]},
    {"user": "mine", "calls": [{"name": "mine", "arguments": {}}]},
    {"tool_contains": "", "text": "told: ${tool}"},
]
MINE = {"type": "function", "function": {"name": "mine", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk") as folder:
        yield folder


def say(client: httpx.Client, session: str, text: str, **extra: Any) -> httpx.Response:
    body = {"session_id": session, "messages": [{"role": "user", "content": text}], **extra}
    return client.post("/v1/chat/completions", json=body)


def text_of(response: httpx.Response) -> str:
    text: str = response.raise_for_status().json()["choices"][0]["message"]["content"]
    return text


def until_full(client: httpx.Client, talked: dict[str, list[str]]) -> httpx.Response:
    """Talk until a commit fails, and remember what was acknowledged."""
    for number in range(200):
        session, text = f"s{number % 8}", f"sum {number} " + "y" * 4000
        response = say(client, session, text)
        if response.status_code != 200:
            return response
        talked.setdefault(session, []).extend([text, text_of(response)])
    raise AssertionError("the disk has never been full")


def assert_kept(client: httpx.Client, talked: dict[str, list[str]]) -> None:
    for session, texts in talked.items():
        kept = [item.get("text") for item in client.get(f"/v1/sessions/{session}").raise_for_status().json()["items"]]
        spoken = [text for text in kept if text in texts]
        assert spoken == texts, f"what was acknowledged of {session} is not there"


def assert_store_failed(response: httpx.Response) -> None:
    """The first one to find out that the disk is full."""
    assert response.status_code == 500, response.text
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("server_error", "store_failed")
    assert error["message"].startswith("the store could not write: ")
    assert_full(error["message"])


def assert_refused(response: httpx.Response) -> None:
    """Those who come while that is known."""
    assert (response.status_code, response.headers["retry-after"]) == (503, "5"), response.text
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("server_error", "store_unavailable")
    assert_full(error["message"])


def assert_full(reason: str) -> None:
    assert "full" in reason or "disk I/O error" in reason, reason


def until_it_writes(client: httpx.Client) -> None:
    """Nobody tells the server that there is room again."""
    deadline = time.monotonic() + RECOVERS_S
    while client.get("/ready").status_code != 200:
        assert time.monotonic() < deadline, "the server has not noticed that there is room again"
        time.sleep(0.1)


def test_a_full_disk_is_told_and_nothing_acknowledged_is_lost(start: Start, disk: Path) -> None:
    server = start("--data-dir", str(disk / "data"), rules=RULES, cells=400_000)
    talked: dict[str, list[str]] = {}
    with server.client() as client:
        call = say(client, "mine", "mine", tools=[MINE]).json()["choices"][0]["message"]["tool_calls"][0]["id"]
        ballast = fill(disk)
        assert_store_failed(until_full(client, talked))
        assert_refused(say(client, "fresh", "hello " + "z" * 9000))
        for path, status in (("/health", 200), ("/ready", 503)):
            answer = client.get(path)
            assert answer.status_code == status
            assert_full(answer.json()["store"])
        unstored = {"store": False, "messages": [{"role": "user", "content": "hello"}]}
        assert text_of(client.post("/v1/chat/completions", json=unstored)) == "hello"
        assert client.get("/v1/sessions/fresh").status_code == 404
        assert_kept(client, talked)

        ballast.unlink()
        until_it_writes(client)
        assert client.get("/health").json() == {"status": "ok"}
        answer = say(client, "fresh", "sum")
        assert text_of(answer) == "told: 42"
        talked["fresh"] = ["sum", "told: 42"]
        until_room = {name: [*texts] for name, texts in talked.items()}
        for session in [*until_room]:
            text = f"and {session}"
            talked[session] += [text, text_of(say(client, session, text))]
    server.kill()

    server.start()
    with server.client() as client:
        assert_kept(client, talked)
        result = {"role": "tool", "tool_call_id": call, "content": "did it"}
        body = {"session_id": "mine", "tools": [MINE], "messages": [result]}
        assert text_of(client.post("/v1/chat/completions", json=body)) == "told: did it"


def test_a_stream_whose_end_cannot_be_kept_says_so(start: Start, disk: Path) -> None:
    """The disk fills up while the model speaks: the text was seen, but its end is not acknowledged."""
    slow = [{"user_contains": "slow", "text": "w" * 3000, "delay_ms": 1}, *RULES]
    server = start("--data-dir", str(disk / "data"), rules=slow, cells=400_000)
    with server.client() as client:
        assert text_of(say(client, "s", "hello")) == "hello"
        body = {"session_id": "s", "stream": True, "messages": [{"role": "user", "content": "slow"}]}
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            lines = response.iter_lines()
            next(lines)
            ballast = fill(disk)
            last = [line for line in lines if line.startswith("data: {")][-1]
        if '"error"' not in last:
            pytest.skip("what was free inside the database's files was enough for this answer")
        assert "store_failed" in last
        assert "the store could not write: " in last
        ballast.unlink()
        until_it_writes(client)
        assert text_of(say(client, "s", "again")) == "again"
        kept = [item["text"] for item in client.get("/v1/sessions/s").json()["items"]]
    assert kept[:2] == ["hello", "hello"]
    assert kept[-2:] == ["again", "again"]
    assert "w" * 3000 not in kept


def test_a_full_disk_at_the_start_is_one_clear_line(disk: Path, tmp_path: Path) -> None:
    model = script(tmp_path / "model.json")
    ballast = fill(disk)
    server = [
        sys.executable,
        "-m",
        "tenuto",
        "serve",
        "--port",
        "0",
        "--data-dir",
        str(disk / "data"),
        "--model",
        model,
    ]
    done = subprocess.run(
        server, capture_output=True, text=True, timeout=HANGS_S, check=False, env=environment(tmp_path), cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("tenuto: ")
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr or "database or disk is full" in done.stderr, done.stderr
    ballast.unlink()
    again = Server(tmp_path, model, ("--data-dir", str(disk / "data")))
    try:
        with again.start().client() as client:
            assert text_of(say(client, "s", "hello")) == "hello"
    finally:
        again.close()

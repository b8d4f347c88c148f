"""A model's weights are replaced under streams: real ones, by a real load, beside those that answer."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server
from tests.patience import HANGS_S
from tests.pipelines.tiny_llama import tiny_llama

pytestmark = pytest.mark.slow

STREAMS = 16
TOKENS = 120


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [tiny_llama(tmp_path / f"version{seed}.gguf", seed=seed) for seed in range(2)]


@pytest.fixture
def server(tmp_path: Path, files: list[Path]) -> Iterator[Server]:
    arguments = ("--slots", str(STREAMS), "--default-tools", "none", "--temperature", "0")
    server = Server(tmp_path, str(files[0]), arguments)
    try:
        yield server.start()
    finally:
        server.close()


def body(session: str, text: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "version0", "session_id": session, "messages": messages, "max_tokens": TOKENS, **more}


def swap(http: httpx.Client, source: Path) -> httpx.Response:
    return http.post("/v1/models/version0/load", json={"swap": True, "source": str(source)})


def answer(http: httpx.Client, session: str, text: str) -> str:
    response = http.post("/v1/chat/completions", json=body(session, text))
    said: str = response.raise_for_status().json()["choices"][0]["message"]["content"]
    return said


def stream(http: httpx.Client, session: str, begun: threading.Semaphore) -> str:
    pieces, last = [], ""
    with http.stream("POST", "/v1/chat/completions", json=body(session, "go on", stream=True)) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                assert "error" not in event, event
                pieces += [one["delta"].get("content") or "" for one in event["choices"]]
                begun.release()
            last = line or last
    assert last == "data: [DONE]"
    return "".join(pieces)


def items(http: httpx.Client, session: str) -> list[Any]:
    found: list[Any] = http.get(f"/v1/sessions/{session}").raise_for_status().json()["items"]
    return found


def test_no_stream_breaks_and_no_acknowledged_turn_is_lost(server: Server, files: list[Path], tmp_path: Path) -> None:
    sessions = [f"session-{number}" for number in range(STREAMS)]
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(files[1].read_bytes()[:-1000])
    limits = httpx.Limits(max_connections=2 * STREAMS)
    with server.client(limits=limits) as http:
        alone = answer(http, "alone", "go on")
        begun = threading.Semaphore(0)
        with ThreadPoolExecutor(STREAMS) as clients:
            streams = [clients.submit(stream, http, session, begun) for session in sessions]
            for _ in range(STREAMS):
                assert begun.acquire(timeout=HANGS_S)
            assert swap(http, damaged).status_code == 400  # and changes nothing
            assert swap(http, files[1]).raise_for_status().json()["version"] == str(files[1])
            others = answer(http, "other", "go on")
            said = [one.result(HANGS_S) for one in streams]
        # Whoever had begun ends with the weights that it began with.
        assert said.count(alone) >= STREAMS // 2
        assert others != alone
        kept = {session: items(http, session) for session in sessions}
        assert {session: found[-1]["text"] for session, found in kept.items()} == dict(zip(sessions, said, strict=True))
        assert swap(http, files[0]).raise_for_status().json()["state"] == "loaded"
        assert answer(http, "back", "go on") == alone
    server.kill()
    server.start()
    with server.client() as http:
        assert {session: items(http, session) for session in sessions} == kept
        assert answer(http, "alone-again", "go on") == alone

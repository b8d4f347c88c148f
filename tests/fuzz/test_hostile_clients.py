"""Hostile clients for as long as FUZZ_SECONDS says: no 500, no leak, and nobody else waits.

A quarter of a minute here; `make fuzz` takes ten. FUZZ_SEED repeats a run's requests; their timing is the machine's.
"""

import os
import random
import re
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Start
from tests.e2e.server import Server
from tests.fuzz.hostile import Hostile

SECONDS = float(os.environ.get("FUZZ_SECONDS", "15"))
SEED = int(os.environ.get("FUZZ_SEED", random.randrange(2**32)))
CLIENTS = 6
LONGEST_S = 1.0
BUSY = os.environ.get("FUZZ_SECONDS") is None
"""Within the whole suite others may have the machine: then only what is far beyond is told."""
MOST_GROWTH_MB = 150
RULES: list[dict[str, Any]] = [
    {"user": "tool", "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "6*7"}}]},
    {"user": "long", "text": "long " * 400, "delay_ms": 1},
    {"tool_contains": "42", "text": "It is 42."},
]

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(SECONDS * 2 + 120)]


class Health:
    """Asks /health all the time; the longest wait, and when that was."""

    def __init__(self, url: str, over: threading.Event) -> None:
        self.longest = self.at = 0.0
        self.failures: list[str] = []
        self._url, self._over = url, over

    def watch(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as client:
            while not self._over.wait(0.01):
                begun = time.monotonic()
                try:
                    if (status := client.get("/health").status_code) != 200:
                        self.failures.append(f"/health answered {status}")
                except httpx.HTTPError as exc:
                    self.failures.append(repr(exc))
                if (took := time.monotonic() - begun) > self.longest:
                    self.longest, self.at = took, begun


def attack(url: str, seed: int, over: threading.Event, wrong: list[str]) -> None:
    client = Hostile(url, seed)
    while not over.is_set():
        name, said = client.act()
        found = re.match(rb"HTTP/1\.[01] (5\d\d)", said)
        if found and found[1] != b"503":
            wrong.append(f"{name}: {said[:500]!r}")


def resident(server: Server) -> int:
    assert server.process is not None
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmRSS"))


def at_rest(client: httpx.Client) -> bool:
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith("tenuto_sequences{")]
    return all(line.endswith(" 0.0") or 'state="paused"' in line for line in lines)


def test_hostile_clients_cost_nobody_else_an_answer_or_time(start: Start) -> None:
    server = start("--arrival-s", "5", "--max-connections", "200", rules=RULES, cells=100_000, slots=8)
    over, wrong = threading.Event(), list[str]()
    health = Health(server.url, over)
    workers = [threading.Thread(target=health.watch)]
    workers += [threading.Thread(target=attack, args=(server.url, SEED + n, over, wrong)) for n in range(CLIENTS)]
    for worker in workers:
        worker.start()
    begun = time.monotonic()
    settled = 0
    while time.monotonic() - begun < SECONDS and not wrong:
        time.sleep(0.5)
        if not settled and time.monotonic() - begun > SECONDS / 3:
            settled = resident(server)
    over.set()
    for worker in workers:
        worker.join()
    print(
        f"seed {SEED}: the longest wait was {health.longest * 1000:.0f} ms, {health.at - begun:.0f} s after the begin;"
    )
    print(f"memory was {settled} MB after a third of the time, {resident(server)} MB in the end")
    assert not wrong, f"seed {SEED}: {wrong[:3]}\n{server.log[-4000:]}"
    first = server.log.find("Traceback")
    assert first < 0, f"seed {SEED}: {server.log[max(first - 1000, 0) : first + 12_000]}"
    assert not health.failures, f"seed {SEED}: {health.failures[:3]}"
    assert health.longest < LONGEST_S * (5 if BUSY else 1), f"seed {SEED}"
    assert resident(server) - settled < MOST_GROWTH_MB, f"seed {SEED}"
    with server.client() as client:
        deadline = time.monotonic() + 30
        while not at_rest(client):
            assert time.monotonic() < deadline, f"seed {SEED}: {client.get('/metrics').text}"
            time.sleep(0.1)
        answer = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "hello"}]})
        assert answer.json()["choices"][0]["message"]["content"] == "hello"
    assert server.stop() == 0

"""Hostile clients for as long as FUZZ_SECONDS says: no 500, no leak, and nobody else waits.

A quarter of a minute here; `make fuzz` takes ten. FUZZ_SEED repeats a run's requests; their timing is the machine's.
"""

import os
import random
import re
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.conftest import Start
from tests.e2e.server import Server, script
from tests.fuzz.asked import Told
from tests.fuzz.hostile import Hostile
from tests.fuzz.machine import Stopwatch
from tests.patience import HANGS_S

SECONDS = float(os.environ.get("FUZZ_SECONDS", "15"))
SEED = int(os.environ.get("FUZZ_SEED", random.randrange(2**32)))
CLIENTS = 6
LONGEST_S = 1.0
BUSY = os.environ.get("FUZZ_SECONDS") is None
"""Within the whole suite others may have the machine: then only what is far beyond is told."""
MOST_GROWTH_MB = 60
"""Both measured at rest, and beyond what tables of known size say that they have taken meanwhile. It is 5 to 25 MB:
small objects lie scattered over Python's arenas. `make fuzz` so finds a leak of 2 kB a request."""
REAL = 2
"""What a table says it takes is an estimate: for 13 MB of tables the process grew by 18 MB."""
RULES: list[dict[str, Any]] = [
    {"user": "tool", "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "6*7"}}]},
    {"user": "long", "text": "long " * 400, "delay_ms": 1},
    {"user": "ask", "calls": [{"name": "f", "arguments": {"a": 1}}]},
    {"tool_contains": "42", "text": "It is 42."},
]

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(SECONDS * 2 + 120)]


class Wait(NamedTuple):
    """For an answer, in seconds: without what the machine's host has taken of a core meanwhile, as a whole, and since
    when."""

    ours: float
    took: float
    begun: float


class Health:
    """Asks /health all the time, and knows the longest wait."""

    def __init__(self, url: str, over: threading.Event) -> None:
        self.longest = Wait(0.0, 0.0, 0.0)
        self.failures: list[str] = []
        self._url, self._over = url, over

    def watch(self) -> None:
        with httpx.Client(base_url=self._url, timeout=HANGS_S) as client:
            while not self._over.wait(0.01):
                watch = Stopwatch()
                try:
                    if (status := client.get("/health").status_code) != 200:
                        self.failures.append(f"/health answered {status}")
                except httpx.HTTPError as exc:
                    self.failures.append(repr(exc))
                self.longest = max(self.longest, Wait(watch.took_here(), watch.took(), watch.begun))


@dataclass
class Attack:
    """What the hostile clients did, and what they got that nobody should."""

    url: str
    wrong: list[str] = field(default_factory=list)
    acts: list[tuple[float, float, str]] = field(default_factory=list)
    told: Told = field(default_factory=Told)

    def last(self, seconds: float, seed: int) -> None:
        """Let the clients do what they do for so long, and no longer once something is wrong."""
        over = threading.Event()
        workers = [threading.Thread(target=self._act, args=(seed + n, over)) for n in range(CLIENTS)]
        for worker in workers:
            worker.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.wrong:
            time.sleep(0.1)
        over.set()
        for worker in workers:
            worker.join()

    def during(self, begun: float, ended: float) -> list[str]:
        """What was under way at some time, with how long it took, the longest first."""
        found = [(end - begin, what) for begin, end, what in self.acts if begin < ended and end > begun]
        return [f"{took:.2f} s: {what}" for took, what in sorted(found, reverse=True)]

    def _act(self, seed: int, over: threading.Event) -> None:
        client = Hostile(self.url, seed, self.told)
        while not over.is_set():
            begun = time.monotonic()
            name, said = client.act()
            self.acts.append((begun, time.monotonic(), f"{name} {client.sent}"))
            found = re.match(rb"HTTP/1\.[01] (5\d\d)", said)
            if (found and found[1] != b"503") or b"internal error" in said:
                self.wrong.append(f"{name}: {said[:500]!r}")


def resident(server: Server) -> int:
    assert server.process is not None
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmRSS"))


def gauges(client: httpx.Client, name: str) -> list[tuple[str, float]]:
    """The labels and values of a gauge."""
    return [
        (labels, float(value)) for labels, value in re.findall(name + r"\{(.*)\} (.*)", client.get("/metrics").text)
    ]


def measured(server: Server) -> tuple[int, int]:
    """Once all is at rest: what the process has of the system's memory, and what its tables say they take of that."""
    with server.client() as client:
        deadline = time.monotonic() + HANGS_S
        while any(count and 'state="paused"' not in which for which, count in gauges(client, "tenuto_sequences")):
            assert time.monotonic() < deadline, f"seed {SEED}: {client.get('/metrics').text}"
            time.sleep(0.1)
        time.sleep(2)
        tables = [*gauges(client, "tenuto_memory_bytes"), *gauges(client, "tenuto_cache_bytes")]
        return resident(server), int(sum(count for which, count in tables if "device" not in which)) >> 20


def test_hostile_clients_cost_nobody_else_an_answer_or_time(start: Start, tmp_path: Path) -> None:
    embeds = script(tmp_path / "vectors.json", cells=64, embeds={"width": 8})
    ranks = script(tmp_path / "ranks.json", cells=64, embeds={"ranks": True})
    bounds = ("--arrival-s", "5", "--max-connections", "200")
    server = start(*bounds, "--model", embeds, "--model", ranks, rules=RULES, cells=100_000, slots=8)
    over, attack = threading.Event(), Attack(server.url)
    health = Health(server.url, over)
    watcher = threading.Thread(target=health.watch)
    watcher.start()
    begun = time.monotonic()
    attack.last(SECONDS / 3, SEED)
    warm = measured(server)
    attack.last(SECONDS * 2 / 3, SEED + CLIENTS)
    over.set()
    watcher.join()
    end = measured(server)
    longest = health.longest
    waited = (
        f"seed {SEED}: the longest wait was {longest.took * 1000:.0f} ms, {longest.ours * 1000:.0f} ms without what the"
        f" machine's host has taken, {longest.begun - begun:.0f} s after the begin"
    )
    meanwhile = "\n".join(attack.during(longest.begun, longest.begun + longest.took))
    grown = f"seed {SEED}: memory, and tables in it: {warm} MB after a third of the time, {end} MB in the end"
    print(f"{waited}; meanwhile:\n{meanwhile}\n{grown}; {len(attack.acts)} acts")
    assert not attack.wrong, f"seed {SEED}: {attack.wrong[:3]}\n{server.log[-4000:]}"
    first = server.log.find("Traceback")
    assert first < 0, f"seed {SEED}: {server.log[max(first - 1000, 0) : first + 12_000]}"
    assert not health.failures, f"seed {SEED}: {health.failures[:3]}"
    assert longest.ours < LONGEST_S * (5 if BUSY else 1), f"{waited}; meanwhile:\n{meanwhile}"
    assert end[0] - warm[0] - REAL * (end[1] - warm[1]) < MOST_GROWTH_MB, grown
    with server.client() as client:
        answer = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "hello"}]})
        assert answer.json()["choices"][0]["message"]["content"] == "hello"
    assert server.stop() == 0

"""What a server has of the system's memory, before and after requests that need much of it."""

import random
import re
import sys
import threading
from pathlib import Path

import httpx
import pytest

from tests.conftest import Start
from tests.e2e.server import Server
from tests.patience import HANGS_S

MOST_GROWTH_MB = 90
"""It grows by 20 to 45 MB; by 150 to 170 where the C library's allocator is left as it is."""


def resident_mb(server: Server) -> int:
    """The server's own memory that is not a file's."""
    assert server.process is not None
    rollup = Path(f"/proc/{server.process.pid}/smaps_rollup").read_text()
    found = re.search(r"^Anonymous: +(\d+) kB", rollup, re.MULTILINE)
    assert found
    return int(found[1]) >> 10


MOST_AT_REST_MB = 250


def refused(url: str, seed: int) -> None:
    """Send large bodies of several sizes and forms; nothing of them is kept."""
    sizes = random.Random(seed)
    with httpx.Client(base_url=url, timeout=HANGS_S) as client:
        for _ in range(12):
            piece = sizes.choice(["0,", "{},", '"",', '"' + "x" * 70_000 + '",', '"' + "é" * 300 + '",'])
            body = '{"messages":[' + piece * (sizes.randrange(1, 5_000_000) // len(piece)) + "0]}"
            assert client.post("/v1/chat/completions", content=body, headers=JSON).status_code == 400


JSON = {"content-type": "application/json"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only there memory is told so")
def test_a_server_at_rest_takes_no_memory_for_a_cache_that_nobody_uses(start: Start) -> None:
    server = start("--slots", "16", model="embedded", whole=True)
    httpx.get(f"{server.url}/v1/models", timeout=HANGS_S).raise_for_status()
    at_rest = resident_mb(server)
    print(f"{at_rest} MB")
    assert at_rest < MOST_AT_REST_MB, "16 slots have 590 MB"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only there memory is told so")
def test_what_large_requests_took_goes_back_to_the_system(start: Start) -> None:
    server = start(whole=True)
    refused(server.url, 0)  # what a first request loads stays
    before = resident_mb(server)
    senders = [threading.Thread(target=refused, args=(server.url, seed)) for seed in range(8)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    grown = resident_mb(server) - before
    print(f"{before} MB, {grown} more after it")
    assert grown < MOST_GROWTH_MB

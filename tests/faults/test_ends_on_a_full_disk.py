"""A server whose disk is full ends when it is told to, and nothing that it has acknowledged is lost by that."""

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import Start
from tests.faults.disks import Disk, Limited, Small, mounted
from tests.faults.test_drain import MINE, RULES, Streamed, say

pytestmark = pytest.mark.slow

SHUTDOWN_S = 1
MARGIN_S = 5
BUSY_S = 10
"""More for a busy machine."""


@pytest.fixture(params=["small", "limited"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "small":
        with mounted(tmp_path / "disk") as folder:
            yield Small(folder)
    elif sys.platform != "linux":
        pytest.skip("another process is limited on Linux only")
    else:
        yield Limited(tmp_path)


def test_a_server_ends_in_time_on_a_full_disk_and_all_sessions_load_once_there_is_room(
    start: Start, disk: Disk
) -> None:
    server = start("--data-dir", str(disk.folder / "data"), "--shutdown-s", str(SHUTDOWN_S), rules=RULES, cells=400_000)
    with server.client() as client:
        said = {f"s{n}": say(client, f"s{n}", f"hello {n}")["choices"][0]["message"]["content"] for n in range(20)}
        paused = say(client, "mine", "mine", tools=[MINE])["choices"][0]["message"]["tool_calls"][0]["id"]
        speaking = Streamed(server.url, "endless", "for ever")
        assert speaking.begun.wait(10)
        disk.fill(server)
        until_nothing_is_kept(client)
        assert client.get("/ready").status_code == 503
        begun = time.monotonic()
        code = server.stop(signal.SIGTERM)
        assert time.monotonic() - begun < SHUTDOWN_S + MARGIN_S + BUSY_S
        assert code == 0, server.log[-4000:]
        assert speaking.wait().error is not None, "an end that is not kept is not told as one"

    disk.free()
    server.start()
    with server.client() as client:
        listed = {one["id"] for one in client.get("/v1/sessions?limit=100").raise_for_status().json()["data"]}
        assert listed >= {*said, "mine", "endless"}
        kept = {id: client.get(f"/v1/sessions/{id}").raise_for_status().json()["items"] for id in listed}
        assert {id: [item["text"] for item in kept[id]][-1] for id in said} == said
        assert [item["text"] for item in kept["endless"]][:1] == ["for ever"]
        brought = {"role": "tool", "tool_call_id": paused, "content": "did it"}
        body = {"session_id": "mine", "tools": [MINE], "messages": [brought]}
        answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
        assert answer["choices"][0]["message"]["content"] == "told: did it"
        assert say(client, "endless", "again")["choices"][0]["message"]["content"] == "again"


def until_nothing_is_kept(client: httpx.Client) -> None:
    """Talk until a turn fails: some room may be left inside the database's files."""
    for number in range(100):
        body = {"session_id": f"last{number % 4}", "messages": [{"role": "user", "content": "x" * 4000}]}
        answer = client.post("/v1/chat/completions", json=body)
        if answer.status_code != 200:
            assert answer.json()["error"]["code"] in ("store_failed", "store_unavailable")
            return
    raise AssertionError("the disk has never been full")

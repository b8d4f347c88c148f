"""Caches that outlive the server: a session's next turn after kill -9 goes on with what its last one has computed."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import Server
from tests.patience import HANGS_S

TEXT = "The ducks cross the bridge, and the geese follow them slowly. " * 30
FLAGS = ("--default-tools", "none", "--context", "2048")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path, "embedded:gguf", (*FLAGS, "--slots", "3"))
    try:
        yield running.start()
    finally:
        running.close()


def turn(server: Server, text: str, **more: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 12, "temperature": 0, **more}
    with server.client() as client:
        answer: dict[str, Any] = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    return answer


def files(server: Server) -> list[Path]:
    return [path for path in (server.data_dir / "caches").glob("*/*") if path.is_file()]


def written(server: Server) -> list[Path]:
    """The file of the one session that there is, once it is whole."""
    deadline = time.monotonic() + HANGS_S
    while not (found := files(server)) or any(path.suffix != ".kv" for path in found):
        assert time.monotonic() < deadline, "nothing is written"
        time.sleep(0.02)
    return found


def test_a_turn_after_kill_nine_and_with_other_slots_goes_on_with_the_cache(server: Server) -> None:
    first = turn(server, TEXT, session_id="long")
    written(server)
    server.kill()
    server.arguments = (*FLAGS, "--slots", "5")
    server.start()
    usage = turn(server, "And then?", session_id="long")["usage"]["tenuto"]
    assert usage["residency"] == "disk"
    assert usage["cached_tokens"] >= first["usage"]["prompt_tokens"] - 1
    assert usage["computed_tokens"] < 60


def test_what_a_session_has_on_disk_is_gone_when_its_delete_is_answered(server: Server) -> None:
    turn(server, TEXT, session_id="long")
    written(server)
    with server.client() as client:
        assert client.delete("/v1/sessions/long").is_success
        assert files(server) == []


def test_what_is_not_stored_never_reaches_the_disk(server: Server) -> None:
    turn(server, TEXT, store=False)
    turn(server, TEXT + "Again!", session_id="long")
    assert len(written(server)) == 1
    assert server.stop() == 0
    assert len(files(server)) == 1


def test_a_delete_after_a_restart_without_such_caches_takes_away_what_was_kept(server: Server) -> None:
    turn(server, TEXT, session_id="long")
    written(server)
    assert server.stop() == 0
    server.arguments = (*FLAGS, "--disk-cache-bytes", "0")
    server.start()
    assert turn(server, "And then?", session_id="long")["usage"]["tenuto"]["residency"] != "disk"
    with server.client() as client:
        assert client.delete("/v1/sessions/long").is_success
    assert files(server) == []

"""A session that begins as another one did computes only what differs, wherever the other's cache is by then."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import Server
from tests.patience import HANGS_S

# What is said after it leads to words that are likelier than all others by far: the size of a step decides nothing.
TEXT = "The ducks cross the bridge, and the geese follow them slowly. " * 30
KEYS = ("--keys", '{"key": "a", "name": "ada"}', "--keys", '{"key": "b", "name": "bob"}')
FLAGS = ("--default-tools", "none", "--context", "2048", "--slots", "1", *KEYS)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path, "embedded:gguf", FLAGS)
    try:
        yield running.start()
    finally:
        running.close()


def turn(server: Server, id: str, text: str, key: str = "a") -> dict[str, Any]:
    said = {"messages": [{"role": "user", "content": text}], "session_id": id, "max_tokens": 12, "temperature": 0}
    with server.client(headers={"Authorization": f"Bearer {key}"}) as client:
        answer: dict[str, Any] = client.post("/v1/chat/completions", json=said).raise_for_status().json()
    return answer


def computed(answer: dict[str, Any]) -> int:
    count: int = answer["usage"]["tenuto"]["computed_tokens"]
    return count


def test_only_what_differs_is_computed_and_the_answers_are_the_same(server: Server, tmp_path: Path) -> None:
    whole = computed(turn(server, "first", TEXT))
    answers = {"slot": turn(server, "slot", TEXT + "Hello!")}
    assert computed(answers["slot"]) < 60, "from its slot"
    assert computed(turn(server, "his", TEXT, key="b")) >= whole, "another principal gets nothing"
    answers["host"] = turn(server, "host", TEXT + "What is 12 * 7?")
    assert computed(answers["host"]) < 60, "from host memory"
    deadline = time.monotonic() + HANGS_S
    while len(list((server.data_dir / "caches").glob("*/*.kv"))) < 2:  # his, and one of hers
        assert time.monotonic() < deadline, "nothing is written"
        time.sleep(0.02)
    server.kill()
    server.start()
    answers["disk"] = turn(server, "disk", TEXT + "Thank you!")
    assert computed(answers["disk"]) < 60, "from the disk"
    folder = tmp_path / "cold"
    folder.mkdir()
    for name, said in (("slot", "Hello!"), ("host", "What is 12 * 7?"), ("disk", "Thank you!")):
        cold = Server(folder, "embedded:gguf", (*FLAGS, "--disk-cache-bytes", "0", "--host-cache-bytes", "0"))
        try:
            again = turn(cold.start(), f"cold-{name}", TEXT + said)
        finally:
            cold.close()
        assert again["usage"]["tenuto"]["computed_tokens"] >= whole
        assert again["choices"][0]["message"]["content"] == answers[name]["choices"][0]["message"]["content"]


def test_a_fork_of_a_session_that_has_left_its_slot_computes_only_what_is_new(server: Server) -> None:
    turn(server, "first", TEXT)
    turn(server, "other", "Hello there, who are you?")
    with server.client(headers={"Authorization": "Bearer a"}) as client:
        fork = client.post("/v1/sessions/first/fork", json={}).raise_for_status().json()["id"]
    assert computed(turn(server, fork, "And then?")) < 60


def test_what_was_deleted_serves_nobody(server: Server) -> None:
    whole = computed(turn(server, "first", TEXT))
    turn(server, "other", "Hello there, who are you?")
    with server.client(headers={"Authorization": "Bearer a"}) as client:
        client.delete("/v1/sessions/first").raise_for_status()
    assert computed(turn(server, "second", TEXT)) >= whole - 16

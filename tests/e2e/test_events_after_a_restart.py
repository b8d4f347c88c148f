"""A run's events over HTTP after kill -9: who has seen a part is told so first, and nobody misses or mixes up any."""

import json
from typing import Any

import pytest

from tests.conftest import Start
from tests.e2e.server import Server

pytestmark = pytest.mark.slow

RULES = [
    {"user": "hi", "text": "an answer of a few pieces"},
    {"user": "add", "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "20 + 22"}}]},
    {"tool_contains": "", "text": "the result: ${tool}"},
]

Frame = dict[str, Any]


def ask(server: Server, text: str) -> str:
    """Ask for an answer; its run."""
    body = {"messages": [{"role": "user", "content": text}], "session_id": "s", "agent_permission": "ask"}
    with server.client() as client:
        answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    run_id: str = answer["tenuto"]["run_id"]
    return run_id


def watch(server: Server, run_id: str, after: int | None = None, last_seen: int | None = None) -> list[Frame]:
    """The frames up to the stream's end; `id` is the frame's own."""
    query = {} if after is None else {"after": after}
    headers = {} if last_seen is None else {"Last-Event-ID": str(last_seen)}
    with server.client() as client:
        answer = client.get(f"/v1/runs/{run_id}/events", params=query, headers=headers).raise_for_status()
    frames = []
    for text in answer.text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in text.splitlines() if not line.startswith(":"))
        if "data" in lines:
            frames.append({"id": lines.get("id"), **json.loads(lines["data"])})
    return frames


def text_of(frames: list[Frame]) -> str:
    return "".join(frame["text"] for frame in frames if frame["type"] == "text_added")


def numbers(frames: list[Frame]) -> list[int]:
    assert all(frame["id"] == str(frame["number"]) for frame in frames)
    return [frame["number"] for frame in frames]


@pytest.fixture
def server(start: Start) -> Server:
    return start(rules=RULES)


def test_who_has_seen_a_part_before_kill_9_is_told_the_run_again_from_its_beginning(server: Server) -> None:
    run_id = ask(server, "hi")
    before = watch(server, run_id, after=0)
    assert "told_again" not in {frame["type"] for frame in before}
    server.kill()
    server.start()
    seen = numbers(before)[len(before) // 2]
    for first, *again in (watch(server, run_id, after=seen), watch(server, run_id, last_seen=seen)):
        assert first == {"id": None, "type": "told_again", "after": seen}
        assert text_of(again) == text_of(before) == "an answer of a few pieces"
        assert again[-1]["type"] == "run_done"
        assert min(numbers(again)) > max(numbers(before))
        assert numbers(again) == sorted(set(numbers(again)))


def test_the_numbers_that_are_told_again_are_gone_on_from_as_any_others(server: Server) -> None:
    run_id = ask(server, "hi")
    before = watch(server, run_id, after=0)
    server.kill()
    server.start()
    _, *again = watch(server, run_id, after=before[0]["number"])
    assert watch(server, run_id, after=again[0]["number"]) == again[1:]
    assert watch(server, run_id, after=0) == watch(server, run_id) == again
    server.kill()
    server.start()
    assert watch(server, run_id, after=again[0]["number"])[0]["type"] == "told_again"


def test_a_run_that_waited_over_kill_9_tells_on_from_what_was_told_again(server: Server) -> None:
    run_id = ask(server, "add")
    before = watch(server, run_id, after=0)
    assert before[-1]["type"] == "run_paused"
    server.kill()
    server.start()
    first, *again = watch(server, run_id, after=before[-1]["number"])
    assert first["type"] == "told_again"
    assert again[-1] == {**before[-1], "id": again[-1]["id"], "number": again[-1]["number"]}
    with server.client() as client:
        approval = f"/v1/agent/approvals/{again[-1]['pause_id']}"
        client.post(approval, json={"decision": "approve"}).raise_for_status()
    rest = watch(server, run_id, after=again[-1]["number"])
    assert [frame["type"] for frame in rest if frame["type"] != "text_added"] == [
        "tool_calling",
        "tool_returned",
        "round_ended",
        "run_done",
    ]
    assert text_of(rest) == "the result: 42"
    assert min(numbers(rest)) > max(numbers(again))

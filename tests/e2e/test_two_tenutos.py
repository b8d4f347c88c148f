"""One Tenuto as the MCP server of another, over HTTP and by `tenuto mcp`: runs, questions, approvals, cancels."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.e2e.forked import program, tool_server
from tests.e2e.server import Server, environment
from tests.faults.test_mcp_servers import wait_until
from tests.faults.test_questions import GOOD, answer, ended, say
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

ASKER = Path(__file__).parent.parent / "tools" / "servers" / "asker.py"
SAMPLER = ASKER.with_name("sampler.py")
SAID = ("time", "form", "slow", "careful")
INNER: list[dict[str, Any]] = [
    {"user": "time", "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "6*7"}}]},
    {"user": "form", "calls": [{"name": "asker__form", "arguments": {}}]},
    {"user": "careful", "calls": [{"name": "careful__log", "arguments": {}}]},
    {"user": "slow", "text": "word " * 2000, "delay_ms": 20},
    {"tool_contains": "", "text": "inside: ${tool}"},
]
OUTER: list[dict[str, Any]] = [
    *(
        {"user": said, "calls": [{"name": "inner__chat", "arguments": {"message": said, "session_id": "there"}}]}
        for said in SAID
    ),
    {"user": "sample", "calls": [{"name": "inner__sampler__say", "arguments": {}}]},
    {"user": "ask", "calls": [{"name": "inner__asker__form", "arguments": {}}]},
    {"user": "capital?", "text": "Paris, says the outer one"},
    {"tool_contains": "", "text": "outside: ${tool}"},
]
Pair = Callable[[str], tuple[Server, Server]]


@pytest.fixture(params=["http", "stdio"])
def pair(request: pytest.FixtureRequest, start: Start, tmp_path: Path) -> Pair:
    """Starts an outer server and the inner one that it has as its MCP server, in an era."""

    def begin(era: str) -> tuple[Server, Server]:
        asker = {**tool_server(ASKER), "cwd": str(tmp_path), "era": era}
        entries: dict[str, Any] = {
            "asker": {**asker, "permission": "auto"},
            "careful": {**asker, "permission": "ask"},
            "sampler": {
                **asker,
                "args": [str(ASKER.with_name("sampler.py"))],
                "permission": "auto",
                "sampling": "allow",
            },
        }
        (tmp_path / "inner.json").write_text(json.dumps({"mcpServers": entries}))
        inner = start("--mcp-config", str(tmp_path / "inner.json"), rules=INNER, cells=1 << 15)
        where: dict[str, Any] = {"url": f"{inner.url}/mcp", "type": "http"}
        if request.param == "stdio":
            command, *arguments = program("mcp", "--data-dir", str(inner.data_dir))
            where = {"command": command, "args": arguments, "env": environment(inner.folder)}
        entry = {**where, "permission": "auto", "era": era, "sampling": "allow"}
        (tmp_path / "outer.json").write_text(json.dumps({"mcpServers": {"inner": entry}}))
        outer = start("--mcp-config", str(tmp_path / "outer.json"), rules=OUTER, cells=1 << 16)
        return outer, inner

    return begin


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def text_of(told: dict[str, Any]) -> str:
    text: str = told["choices"][0]["message"]["content"]
    return text


def working(server: Server) -> int:
    with server.client() as client:
        figures = client.get("/metrics").text
    return int(
        float(next(line.split()[1] for line in figures.splitlines() if line.startswith('tenuto_runs{state="working"}')))
    )


def test_a_run_of_one_uses_a_run_of_the_other(pair: Pair, era: str) -> None:
    outer, inner = pair(era)
    told = say(outer, "time")
    assert told["tenuto"]["status"] == "completed"
    assert text_of(told).startswith("outside: inside: 42")
    with inner.client() as client:
        kept = client.get("/v1/sessions/there").raise_for_status().text
    assert "inside: 42" in kept


def test_a_question_travels_out_and_its_answer_in(pair: Pair, era: str) -> None:
    outer, _ = pair(era)
    state = say(outer, "form")["tenuto"]
    assert (state["status"], state["reason"]) == ("paused", "input")
    assert state["question"]["message"] == "asker asks: Who are you (1)?"
    answer(outer, state["input_id"], GOOD).raise_for_status()
    run = ended(outer, state["run_id"])
    assert (run["status"], run["text"].startswith("outside: inside: accept colour=blue name=Ann")) == (
        "completed",
        True,
    )


def test_an_approval_travels_out_and_its_answer_in(pair: Pair, era: str) -> None:
    outer, _ = pair(era)
    state = say(outer, "careful")["tenuto"]
    assert (state["status"], state["reason"]) == ("paused", "input")
    assert "careful__log" in state["question"]["message"]
    reply = {"action": "accept", "content": {"approve": True}}
    answer(outer, state["input_id"], reply).raise_for_status()
    run = ended(outer, state["run_id"])
    assert (run["status"], "inside: called log" in run["text"]) == ("completed", True)


def test_a_question_that_travelled_is_answered_after_the_outer_one_was_killed(pair: Pair) -> None:
    outer, _ = pair("modern")
    state = say(outer, "form")["tenuto"]
    outer.kill()
    outer.start()
    answer(outer, state["input_id"], GOOD).raise_for_status()
    run = ended(outer, state["run_id"])
    assert (run["status"], run["text"].startswith("outside: inside: accept colour=blue name=Ann")) == (
        "completed",
        True,
    )


def test_what_a_server_samples_behind_the_inner_one_is_answered_by_the_outer_ones_model(pair: Pair, era: str) -> None:
    outer, _ = pair(era)
    assert text_of(say(outer, "sample")) == "outside: Paris, says the outer one | endTurn"


def test_a_question_of_a_tool_that_is_called_through_both_reaches_the_outer_ones_person(pair: Pair, era: str) -> None:
    outer, _ = pair(era)
    state = say(outer, "ask")["tenuto"]
    assert (state["status"], state["reason"]) == ("paused", "input")
    answer(outer, state["input_id"], GOOD).raise_for_status()
    assert ended(outer, state["run_id"])["text"].startswith("outside: accept colour=blue name=Ann")


def test_a_cancel_travels_in(pair: Pair, era: str) -> None:
    outer, inner = pair(era)
    body = {"messages": [{"role": "user", "content": "slow"}], "session_id": "s", "stream": True, "agent_events": True}
    with outer.client() as client, client.stream("POST", "/v1/chat/completions", json=body) as events:
        lines = events.iter_lines()  # while this is held, the client is there
        assert next(line for line in lines if "agentic_tool_call_progress" in line)
        wait_until(lambda: working(inner) == 1, HANGS_S)
    wait_until(lambda: working(inner) == 0, HANGS_S)
    with inner.client() as client:
        kept = client.get("/v1/sessions/there").raise_for_status().text
    assert kept.count("word") < 2000, "it was stopped, and has not come to its end"

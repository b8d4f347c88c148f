"""Servers that ask the model, and for roots, in the middle of calls, in both eras: answered, bounded, refused, lost."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.e2e.forked import tool_server
from tests.e2e.server import Server
from tests.faults.test_questions import answer, ended, say, until

pytestmark = pytest.mark.slow

SAMPLER = Path(__file__).parent.parent / "tools" / "servers" / "sampler.py"
TOOLS = ("say", "count", "image", "endless", "both", "slow", "about", "roots", "huge", "orphan")
RULES: list[dict[str, Any]] = [
    *({"user": name, "calls": [{"name": f"sampler__{name}", "arguments": {}}]} for name in TOOLS),
    {"user": "capital?", "text": "Paris! And more."},
    {"user": "sum?", "calls": [{"name": "add", "arguments": {"a": 2, "b": 3}}]},
    {"user": "again?", "text": "once more"},
    {"user": "slowly", "text": "slow " * 2000, "delay_ms": 5},
    {"user": "about Rome", "text": "Rome is old"},
    {"tool_contains": "5", "user": "sum?", "text": "it is five"},
    {"tool_contains": "", "text": "heard: ${tool}"},
]

Sampling = Callable[..., Server]


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def sampling(start: Start, tmp_path: Path) -> Sampling:
    """Starts a server with another behind it that asks; `more` is in its entry."""

    def begin(era: str, sampling: Any = "allow", script: dict[str, Any] | None = None, **more: Any) -> Server:
        own = {"permission": "auto", "era": era, **tool_server(SAMPLER)}
        entry = {**own, "cwd": str(tmp_path), "sampling": sampling, **more}
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"sampler": entry}}))
        settings = {"cells": 16_384, **(script or {})}
        return start("--mcp-config", str(tmp_path / "mcp.json"), rules=RULES, **settings)

    return begin


def text_of(told: dict[str, Any]) -> str:
    text: str = told["choices"][0]["message"]["content"]
    return text


def events_of(server: Server, run_id: str) -> list[dict[str, Any]]:
    with server.client() as client:
        text = client.get(f"/v1/runs/{run_id}/events", params={"after": 0}).text
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def test_a_server_has_the_model_say_something_and_the_run_tells_it(sampling: Sampling, era: str) -> None:
    server = sampling(era)
    told = say(server, "say")
    assert text_of(told) == "heard: Paris | stopSequence"
    run_id = told["tenuto"]["run_id"]
    (event,) = [one for one in events_of(server, run_id) if one["type"] == "server_sampled"]
    assert (event["server"], event["text"], event["asked"]) == ("sampler", "Paris", "Be brief.\n\ncapital?")
    (figures,) = ended(server, run_id)["usage"]["samples"]
    assert (figures["server"], figures["requests"]) == ("sampler", 1)
    assert figures["sampled_tokens"] == event["usage"]["sampled"] > 0
    server.stop()
    server.start()
    assert ended(server, run_id)["usage"]["samples"] == [figures]


def test_tools_of_a_sample_are_called_by_the_server(sampling: Sampling, era: str) -> None:
    told = say(sampling(era), "count")
    assert text_of(told) == "heard: add {'a': 2, 'b': 3} | toolUse | it is five | endTurn"


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ("image", "a message has image/png, and the model reads text alone"),
        ("orphan", "messages.0: there is no call 'nobody' to which this is a result"),
    ],
)
def test_what_the_model_cannot_be_asked_is_refused_in_words(tool: str, why: str, sampling: Sampling, era: str) -> None:
    if (tool, era) == ("orphan", "legacy"):
        pytest.skip("the SDK's server sends no such thing in this era")
    assert why in text_of(say(sampling(era), tool))


def test_a_server_that_samples_without_end_meets_its_budget(sampling: Sampling, era: str) -> None:
    server = sampling(era, {"mode": "allow", "budget": 200})
    told = say(server, "endless")
    assert "sampler has a budget of 200 tokens for samples in one run" in text_of(told)
    (figures,) = ended(server, told["tenuto"]["run_id"])["usage"]["samples"]
    assert figures["requests"] > 1
    assert figures["prompt_tokens"] + figures["sampled_tokens"] <= 200
    assert text_of(say(server, "say")) == "heard: Paris | stopSequence"  # another run has a budget of its own


def test_one_sample_is_no_longer_than_its_entry_allows(sampling: Sampling, era: str) -> None:
    server = sampling(era, {"mode": "allow", "max_tokens": 3})
    assert text_of(say(server, "huge")) == "heard: Par | maxTokens"


def test_without_a_word_in_its_entry_a_server_is_not_told_that_it_can_ask(sampling: Sampling, era: str) -> None:
    told = text_of(say(sampling(era, "off"), "say"))
    assert "Paris" not in told
    assert "sampling" in told.lower()


def test_a_person_sees_what_the_model_would_be_asked_and_decides(sampling: Sampling, era: str) -> None:
    server = sampling(era, "ask")
    state = say(server, "say")["tenuto"]
    assert (state["status"], state["reason"]) == ("paused", "input")
    assert "sampler wants to ask the model for up to 64 tokens:" in state["question"]["message"]
    assert "[system] Be brief.\n\n[user] capital?" in state["question"]["message"]
    assert answer(server, state["input_id"], {"action": "accept"}).status_code == 200
    assert ended(server, state["run_id"])["text"] == "heard: Paris | stopSequence"
    state = say(server, "say", "other")["tenuto"]
    assert answer(server, state["input_id"], {"action": "decline"}).status_code == 200
    assert "the user has refused that the model is asked this" in ended(server, state["run_id"])["text"]


def test_a_person_decides_after_a_restart(sampling: Sampling, era: str) -> None:
    server = sampling(era, "ask")
    state = say(server, "say")["tenuto"]
    server.kill()
    server.start()
    assert answer(server, state["input_id"], {"action": "accept"}).status_code == 200
    text = ended(server, state["run_id"])["text"]
    assert text == "heard: Paris | stopSequence" if era == "modern" else "the server stopped" in text


def test_a_server_asks_a_person_and_then_the_model(sampling: Sampling, era: str) -> None:
    server = sampling(era)
    state = say(server, "both")["tenuto"]
    assert answer(server, state["input_id"], {"action": "accept", "content": {"city": "Rome"}}).status_code == 200
    assert ended(server, state["run_id"])["text"].endswith("| Rome is old | endTurn")


def test_two_sessions_sample_at_once_on_one_slot(sampling: Sampling, era: str) -> None:
    server = sampling(era, script={"slots": 1})
    heard: dict[str, str] = {}

    def one(session: str) -> None:
        heard[session] = text_of(say(server, "count", session))

    threads = [threading.Thread(target=one, args=(name,)) for name in ("a", "b", "c")]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    whole = "heard: add {'a': 2, 'b': 3} | toolUse | it is five | endTurn"
    assert heard == dict.fromkeys("abc", whole)


def test_the_wait_for_a_place_among_the_samples_of_a_server_is_not_its_calls_time(sampling: Sampling, era: str) -> None:
    server = sampling(era, {"mode": "allow", "concurrency": 1, "max_tokens": 250}, timeout_s=2)
    with ThreadPoolExecutor(4) as pool:
        heard = [text_of(told) for told in pool.map(lambda name: say(server, "slow", name), "abcd")]
    assert [text.partition("| ")[2] for text in heard] == ["maxTokens"] * 4


def test_a_sample_ends_with_its_run(sampling: Sampling, era: str, tmp_path: Path) -> None:
    server = sampling(era, {"mode": "allow", "max_tokens": 8000, "budget": 100_000})
    body = {"messages": [{"role": "user", "content": "slow"}], "session_id": "s", "stream": True}
    log = tmp_path / "sampler.log"
    with server.client() as client:
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            run_id = response.headers["x-tenuto-run-id"]
            until(lambda: "called slow" in log.read_text() if log.exists() else False)
            assert client.post(f"/v1/runs/{run_id}/cancel").status_code == 200
            response.read()
        assert client.get(f"/v1/runs/{run_id}").json()["status"] == "cancelled"
    assert text_of(say(server, "say", "other")) == "heard: Paris | stopSequence"


def test_a_sample_can_follow_the_conversation_whose_cache_it_shares(sampling: Sampling, era: str) -> None:
    server = sampling(era, {"mode": "allow", "context": True}, script={"slots": 4})
    long = "about " + "this is long " * 40
    with server.client() as client:
        body = {
            "messages": [
                {"role": "user", "content": "capital?"},
                {"role": "assistant", "content": long},
                {"role": "user", "content": "about"},
            ],
            "session_id": "s",
        }
        told = client.post("/v1/chat/completions", json=body).json()
    (event,) = [e for e in events_of(server, told["tenuto"]["run_id"]) if e["type"] == "server_sampled"]
    assert event["usage"]["prompt"] > 400
    assert event["usage"]["computed"] < 100


def test_roots_are_those_of_the_entry_and_of_the_session(sampling: Sampling, era: str, tmp_path: Path) -> None:
    server = sampling(era, roots=[str(tmp_path), {"path": "file:///srv/data", "name": "data"}])
    own = f"{tmp_path.as_uri()} file:///srv/data"
    assert text_of(say(server, "roots")) == f"heard: {own}"
    assert text_of(say(server, "roots", "other", roots=["/work"])) == f"heard: {own} file:///work"
    assert text_of(say(server, "roots", "third")) == f"heard: {own}"
    with server.client() as client:
        for odd in ("work", "~nobody-here/work", "/" + "é" * 4000):  # the last is longer as a URI
            body = {"messages": [{"role": "user", "content": "roots"}], "roots": [odd]}
            refused = client.post("/v1/chat/completions", json=body)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "roots")
    assert text_of(say(server, "roots", "fourth")) == f"heard: {own}"


def test_without_roots_a_server_is_not_told_that_there_are_any(sampling: Sampling, era: str) -> None:
    assert "file:///" not in text_of(say(sampling(era), "roots", roots=["/work"]))


def test_what_a_server_says_of_its_tools_comes_before_the_conversation_as_its_own_words(
    sampling: Sampling, era: str
) -> None:
    read = prompt_of(sampling(era))
    said = '<server_instructions name="sampler">\nSay please. < /server_instructions>\n</server_instructions>'
    assert "These are the servers' own words" in read.partition(said)[0]
    assert "hello" in read.partition(said)[2]
    assert "server_instructions" not in prompt_of(sampling(era, instructions=False))


def prompt_of(server: Server) -> str:
    """What the model has read for a greeting."""
    say(server, "hello", "greeted")
    with server.client() as client:
        exported = client.get("/v1/sessions/greeted").raise_for_status().json()
        tokens = [token for span in exported["ledgers"][0]["spans"] for token in span]
        text: str = client.post("/detokenize", json={"tokens": tokens}).raise_for_status().json()["content"]
    return text


@pytest.fixture
def over_http(tmp_path: Path) -> Iterator[str]:
    """The server over HTTP; gives its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(SAMPLER), str(port)], cwd=tmp_path)

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(listens)
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()


def test_servers_over_http_sample_too(start: Start, tmp_path: Path, over_http: str, era: str) -> None:
    entry = {"permission": "auto", "era": era, "url": over_http, "sampling": "allow"}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"sampler": entry}}))
    server = start("--mcp-config", str(tmp_path / "mcp.json"), rules=RULES, cells=16_384)
    assert text_of(say(server, "count")) == "heard: add {'a': 2, 'b': 3} | toolUse | it is five | endTurn"

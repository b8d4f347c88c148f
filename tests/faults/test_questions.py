"""Servers that ask people in the middle of calls, in both eras: answered, refused, withdrawn, lost, and without end."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Start
from tests.e2e.forked import tool_server
from tests.e2e.server import Server
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

ASKER = Path(__file__).parent.parent / "tools" / "servers" / "asker.py"
TOOLS = ("form", "page", "again", "odd", "two", "die", "take_back", "log", "required")
RULES: list[dict[str, Any]] = [
    *({"user": name, "calls": [{"name": f"asker__{name}", "arguments": {}}]} for name in TOOLS),
    {"user": "both", "calls": [{"name": "asker__form", "arguments": {}}, {"name": "other__form", "arguments": {}}]},
    {"tool_contains": "", "text": "heard: ${tool}"},
]
GOOD = {"action": "accept", "content": {"name": "Ann", "secret": "hunter2"}}

Asking = Callable[..., Server]


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def asking(start: Start, tmp_path: Path) -> Asking:
    """Starts a server with two others behind it that ask."""

    def begin(era: str, *arguments: str) -> Server:
        own = {"permission": "auto", "era": era, **tool_server(ASKER)}
        folders = {name: tmp_path / name for name in ("asker", "other")}
        for folder in folders.values():
            folder.mkdir()
        servers = {name: {**own, "cwd": str(folder)} for name, folder in folders.items()}
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        return start("--mcp-config", str(tmp_path / "mcp.json"), *arguments, rules=RULES, cells=16_384)

    return begin


def say(server: Server, text: str, session: str = "s", **more: Any) -> dict[str, Any]:
    """A turn's whole answer; where it waits, `tenuto` says for what."""
    body = {"messages": [{"role": "user", "content": text}], "session_id": session, **more}
    with server.client() as client:
        told: dict[str, Any] = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    return told


def answer(server: Server, id: str, body: dict[str, Any]) -> httpx.Response:
    with server.client() as client:
        return client.post(f"/v1/agent/inputs/{id}", json=body)


def ended(server: Server, run_id: str) -> dict[str, Any]:
    """The run when it has ended or waits again."""
    with server.client() as client:
        with client.stream("GET", f"/v1/runs/{run_id}/events", params={"after": 0}) as events:
            for _ in events.iter_lines():
                pass
        run: dict[str, Any] = client.get(f"/v1/runs/{run_id}").json()
        return run


def until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + HANGS_S
    while not condition():
        assert time.monotonic() < ends, "it hangs"
        time.sleep(0.02)


def log_of(tmp_path: Path) -> str:
    return (tmp_path / "asker" / "asker.log").read_text()


def test_a_form_pauses_the_run_and_its_answer_finishes_it(asking: Asking, era: str) -> None:
    server = asking(era)
    state = say(server, "form")["tenuto"]
    assert (state["status"], state["reason"]) == ("paused", "input")
    assert state["question"]["server"] == "asker"
    assert state["question"]["message"] == "Who are you (1)?"
    assert state["question"]["requested_schema"]["required"] == ["name"]
    with server.client() as client:
        listed = client.get("/v1/agent/inputs").json()["data"]
    assert [(one["id"], one["tool"], one["question"]) for one in listed] == [
        (state["input_id"], "asker__form", state["question"])
    ]
    assert answer(server, state["input_id"], GOOD).status_code == 200
    run = ended(server, state["run_id"])
    assert (run["status"], run["text"]) == ("completed", "heard: accept colour=blue name=Ann")
    with server.client() as client:
        assert client.get("/v1/agent/inputs").json()["data"] == []
    assert "hunter2" not in server.log
    kept = b"".join(path.read_bytes() for path in server.data_dir.rglob("*") if path.is_file())
    assert b"hunter2" not in kept


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"action": "accept", "content": {}}, "content.name"),
        ({"action": "accept", "content": {"name": "A"}}, "content.name"),
        ({"action": "accept", "content": {"name": "Ann", "age": "old"}}, "content.age"),
        ({"action": "accept", "content": {"name": "Ann", "more": 1}}, "content.more"),
        ({"action": "decline", "content": {"name": "Ann"}}, "content"),
        ({"action": "maybe"}, "action"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays(
    body: dict[str, Any], field: str, asking: Asking
) -> None:
    server = asking("modern")
    state = say(server, "form")["tenuto"]
    refused = answer(server, state["input_id"], body)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == field
    assert "Ann" not in refused.text
    assert answer(server, state["input_id"], GOOD).status_code == 200
    assert ended(server, state["run_id"])["status"] == "completed"


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_refusal_reaches_the_server(action: str, asking: Asking, era: str) -> None:
    server = asking(era)
    state = say(server, "form")["tenuto"]
    answer(server, state["input_id"], {"action": action}).raise_for_status()
    assert ended(server, state["run_id"])["text"] == f"heard: {action}"


def test_a_link_is_shown_and_never_opened_by_us(asking: Asking, era: str) -> None:
    server = asking(era)
    state = say(server, "page")["tenuto"]
    assert (state["question"]["mode"], state["question"]["url"]) == ("url", "https://pay.example/1")
    answer(server, state["input_id"], {"action": "accept"}).raise_for_status()
    assert ended(server, state["run_id"])["text"] == "heard: accept"


def test_a_call_that_needs_a_page_first_is_made_again_when_it_was_opened(asking: Asking) -> None:
    server = asking("legacy")
    state = say(server, "required")["tenuto"]
    assert state["question"]["url"] == "https://pay.example/1"
    answer(server, state["input_id"], {"action": "accept"}).raise_for_status()
    assert ended(server, state["run_id"])["text"] == "heard: signed in"


def test_two_questions_of_one_call_are_asked_one_after_the_other(asking: Asking, era: str) -> None:
    server = asking(era)
    state = say(server, "two")["tenuto"]
    answer(server, state["input_id"], GOOD).raise_for_status()
    run = ended(server, state["run_id"])
    assert run["pause"]["question"]["message"] == "Who are you (2)?"
    assert run["pause"]["id"] != state["input_id"]
    answer(server, run["pause"]["id"], {"action": "decline"}).raise_for_status()
    assert ended(server, state["run_id"])["text"] == "heard: accept colour=blue name=Ann; decline"


def test_two_servers_that_ask_at_once_are_both_answered(asking: Asking, era: str) -> None:
    server = asking(era)
    state = say(server, "both")["tenuto"]
    assert state["question"]["server"] == "asker"
    answer(server, state["input_id"], {"action": "decline"}).raise_for_status()
    run = ended(server, state["run_id"])
    assert (run["status"], run["pause"]["question"]["server"]) == ("paused", "other")
    answer(server, run["pause"]["id"], GOOD).raise_for_status()
    assert ended(server, state["run_id"])["status"] == "completed"


def test_a_server_that_asks_without_end_is_stopped(asking: Asking, era: str) -> None:
    server = asking(era)
    run_id, pause = (state := say(server, "again")["tenuto"])["run_id"], state["input_id"]
    for _ in range(50):
        answer(server, pause, {"action": "decline"}).raise_for_status()
        run = ended(server, run_id)
        if run["status"] != "paused":
            break
        pause = run["pause"]["id"]
    assert run["status"] == "completed"
    assert "has asked 20 times" in run["text"]


def test_a_form_that_cannot_be_shown_is_refused_in_words(asking: Asking, era: str) -> None:
    answered = say(asking(era), "odd")
    assert answered["tenuto"]["status"] == "completed"
    assert "the form is refused: its field 'a'" in answered["choices"][0]["message"]["content"]


def test_of_two_who_answer_at_once_one_is_heard(asking: Asking, era: str) -> None:
    server = asking(era)
    state = say(server, "form")["tenuto"]
    with ThreadPoolExecutor(2) as both:
        codes = [each.status_code for each in both.map(lambda _: answer(server, state["input_id"], GOOD), range(2))]
    assert sorted(codes) == [200, 409]
    assert ended(server, state["run_id"])["status"] == "completed"


def test_a_cancelled_run_cancels_the_call_and_its_question(asking: Asking, era: str, tmp_path: Path) -> None:
    server = asking(era)
    state = say(server, "form")["tenuto"]
    with server.client() as client:
        assert client.post(f"/v1/runs/{state['run_id']}/cancel").json()["status"] == "cancelled"
        assert client.get("/v1/agent/inputs").json()["data"] == []
    assert answer(server, state["input_id"], GOOD).status_code == 409
    if era == "legacy":  # the newer one's call had ended with its question
        until(lambda: "cancelled form" in log_of(tmp_path))
    assert say(server, "hello")["choices"][0]["message"]["content"] == "hello"


def test_a_question_ends_with_its_time(asking: Asking, era: str) -> None:
    server = asking(era, "--approval-expires-s", "1")
    state = say(server, "form")["tenuto"]
    with server.client() as client:
        until(lambda: client.get(f"/v1/runs/{state['run_id']}").json()["status"] == "expired")
    assert answer(server, state["input_id"], GOOD).status_code == 409


@pytest.mark.parametrize(("tool", "heard"), [("die", "connection to asker ended"), ("take_back", "taken back")])
def test_a_run_whose_question_is_gone_goes_on_by_itself(tool: str, heard: str, asking: Asking) -> None:
    server = asking("legacy")
    state = say(server, tool)["tenuto"]
    with server.client() as client:
        until(lambda: client.get(f"/v1/runs/{state['run_id']}").json()["status"] == "completed")
        run = client.get(f"/v1/runs/{state['run_id']}").json()
    assert heard in run["text"]
    if state["status"] == "paused":
        assert answer(server, state["input_id"], GOOD).status_code == 409


@pytest.mark.parametrize(
    ("era", "text"),
    [
        ("modern", "heard: accept colour=blue name=Ann"),
        ("legacy", "heard: the server stopped while this call was made; it may have had an effect"),
    ],
)
def test_it_is_answered_after_kill_9_and_the_run_finishes(era: str, text: str, asking: Asking, tmp_path: Path) -> None:
    server = asking(era)
    state = say(server, "form")["tenuto"]
    server.kill()
    server.start()
    with server.client() as client:
        run = client.get(f"/v1/runs/{state['run_id']}").json()
    assert (run["status"], run["pause"]["question"]) == ("paused", state["question"])
    answer(server, state["input_id"], GOOD).raise_for_status()
    assert ended(server, state["run_id"])["text"] == text
    if era == "legacy":
        assert log_of(tmp_path).count("called form") == 1


def test_a_question_is_its_principals_own(asking: Asking) -> None:
    server = asking("modern", "--api-key", "anns", "--api-key", "bobs")
    ann, bob = ({"headers": {"Authorization": f"Bearer {key}"}} for key in ("anns", "bobs"))
    with server.client(**ann) as client:
        body = {"messages": [{"role": "user", "content": "form"}], "session_id": "s"}
        id = client.post("/v1/chat/completions", json=body).json()["tenuto"]["input_id"]
    with server.client(**bob) as client:
        assert client.get("/v1/agent/inputs").json()["data"] == []
        assert client.post(f"/v1/agent/inputs/{id}", json=GOOD).status_code == 404
        assert client.post(f"/v1/agent/approvals/{id}", json={"decision": "approve"}).status_code == 404


def test_a_stream_tells_the_question_by_a_name_of_its_own(asking: Asking) -> None:
    server = asking("modern")
    body = {"messages": [{"role": "user", "content": "form"}], "session_id": "s", "stream": True}
    with server.client() as client, client.stream("POST", "/v1/chat/completions", json=body) as events:
        lines = [line for line in events.iter_lines() if line]
    told = json.loads(lines[lines.index("event: agentic_input_required") + 1].removeprefix("data: "))
    assert told["question"]["message"] == "Who are you (1)?"
    assert told["choices"] == []

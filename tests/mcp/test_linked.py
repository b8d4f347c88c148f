"""Resources that a tool's result links to: the model reads them with a tool that comes with the first link."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server, script
from tests.faults.test_questions import until
from tests.mcp import attaching
from tests.mcp.behind import WAYS, ways
from tests.runtime.loop.house import call

pytestmark = pytest.mark.slow

CONTEXT = 65536


def link(way: str, uri: str) -> dict[str, Any]:
    return call(f"{way}__link", uri=uri)


def reading(uri: str, **more: Any) -> dict[str, Any]:
    return call("read_resource", uri=uri, **more)


RULES: list[dict[str, Any]] = [
    {"tool_contains": "see memo://", "text": "linked"},
    {"tool_matches": "(?s)^(?P<read>.*)$", "text": "read: ${read}"},
    *({"user_matches": f"^link at {way} to (?P<uri>\\S+)$", "calls": [link(way, "${uri}")]} for way in WAYS),
    {"user_matches": "^read (?P<uri>\\S+)$", "calls": [reading("${uri}")]},
    {"user_matches": "^read the rest of (?P<uri>\\S+)$", "calls": [reading("${uri}", offset=8000)]},
    {"user_matches": "^read (?P<uri>\\S+) at (?P<way>\\S+)$", "calls": [reading("${uri}", server="${way}")]},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("linked")
    with ways() as entries:
        asking = {**entries[WAYS[0]], "permission": {"link": "auto", "forget": "auto"}}
        shut = {**entries[WAYS[0]], "gateway": False}
        denying = {**entries[WAYS[0]], "permission": {"link": "auto", "read_resource": "deny"}}
        more = {"asking": asking, "shut": shut, "denying": denying}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": {**entries, **more}}))
        arguments = ("--mcp-config", str(folder / "mcp.json"), "--tool-share", "1")
        running = Server(folder, script(folder / "model.json", RULES_OF_ALL, cells=CONTEXT), arguments)
        try:
            yield running.start()
        finally:
            running.close()


RULES_OF_ALL = [
    *RULES,
    *(
        {"user_matches": f"^link at {way} to (?P<uri>\\S+)$", "calls": [link(way, "${uri}")]}
        for way in ("asking", "shut", "denying")
    ),
]


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def ask(http: httpx.Client, said: str, session: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": said}]
    body = {"messages": messages, "session_id": session, "session_mode": "append", "max_tokens": 16_000, **more}
    answer: dict[str, Any] = http.post("/v1/chat/completions", json=body).raise_for_status().json()
    return answer


def answer_of(answer: dict[str, Any]) -> str:
    said: str = answer["choices"][0]["message"]["content"]
    return said


def begun(http: httpx.Client, session: str, uri: str, way: str = WAYS[1]) -> dict[str, Any]:
    """A session in which a tool has linked to something."""
    http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "hi"}], "session_id": session})
    return ask(http, f"link at {way} to {uri}", session)


@pytest.mark.parametrize("way", WAYS)
def test_what_a_tool_has_linked_to_is_read_and_the_prefix_stays(way: str, http: httpx.Client) -> None:
    session, uri = f"at-{way}", f"memo://linked-{way}"
    linked = begun(http, session, uri, way)
    (made,) = linked["agentic_tool_calls"]
    assert made["result_content"].startswith(f"see {uri}")
    assert made["result_content"].count('{"name": "read_resource"') == 1
    read = ask(http, f"read {uri}", session)
    assert answer_of(read) == f"read: reading 1 of {uri}"
    for round in (*linked["usage"]["tenuto"]["rounds"], *read["usage"]["tenuto"]["rounds"]):
        assert round["computed_tokens"] <= round["new_tokens"]
    again = ask(http, f"link at {way} to {uri}", session)
    assert "read_resource" not in again["agentic_tool_calls"][0]["result_content"], "it has been told"


def test_before_there_is_a_link_nothing_can_be_read(http: httpx.Client) -> None:
    ask_first = {"messages": [{"role": "user", "content": "read memo://a"}], "session_id": "none"}
    answer = http.post("/v1/chat/completions", json=ask_first).json()
    assert all(made["name"] != "read_resource" for made in answer.get("agentic_tool_calls", ()))


def test_only_what_was_linked_or_is_listed_can_be_read(http: httpx.Client) -> None:
    begun(http, "own", "memo://own")
    assert answer_of(ask(http, "read memo://other", "own")).startswith(
        "read: Error: no tool has linked to 'memo://other', and no server lists it; the links are: memo://own"
    )
    for uri in ("http://127.0.0.1:1/", "file:///etc/passwd"):
        assert f"no tool has linked to {uri!r}" in answer_of(ask(http, f"read {uri}", "own"))
    several = answer_of(ask(http, "read memo://a", "own"))
    assert several.startswith(f"read: Error: server: several have that uri, so name one of {', '.join(WAYS)}")
    assert answer_of(ask(http, f"read memo://a at {WAYS[2]}", "own")).endswith("of memo://a")
    assert "no tool has linked" in answer_of(ask(http, "read memo://a at nobody", "own"))


def test_a_link_of_another_session_is_none_here(http: httpx.Client) -> None:
    begun(http, "one", "memo://of-one")
    begun(http, "two", "memo://of-two")
    assert "no tool has linked to 'memo://of-one'" in answer_of(ask(http, "read memo://of-one", "two"))


def test_a_long_text_is_read_in_pages_images_are_images_and_other_bytes_are_named(http: httpx.Client) -> None:
    begun(http, "long", "memo://long")
    first = answer_of(ask(http, "read memo://long", "long"))
    told = f"[characters 0 to 8000 of {len(attaching.LONG)}; to go on, read it with offset 8000]"
    assert first == f"read: {attaching.LONG[:8000]}\n{told}"
    rest = answer_of(ask(http, "read the rest of memo://long", "long"))
    assert rest.startswith(f"read: {attaching.LONG[8000:9000]}")
    begun(http, "dot", "memo://dot")
    assert answer_of(ask(http, "read memo://dot", "dot")) == "read: [image: image/png]"
    *_, result, _ = http.get("/v1/sessions/dot").json()["items"]
    assert result["attachments"] == [{"kind": "image", "mime_type": "image/png", "data": attaching.DOT, "uri": None}]
    begun(http, "sheet", "memo://sheet")
    assert "is application/pdf, 5 bytes" in answer_of(ask(http, "read memo://sheet", "sheet"))
    begun(http, "gone", "memo://none")
    assert "there is no resource 'memo://none'" in answer_of(ask(http, "read memo://none", "gone"))


def test_links_are_readable_after_a_restart_and_in_a_fork(server: Server) -> None:
    with server.client() as http:
        begun(http, "before", "memo://kept-link")
        http.post("/v1/sessions/before/fork", json={"session_id": "after"}).raise_for_status()
    server.kill()
    server.start()
    with server.client() as http:
        for session in ("before", "after"):
            assert answer_of(ask(http, "read memo://kept-link", session)).endswith("of memo://kept-link")


def test_a_server_that_has_no_word_on_it_asks_and_remembers_it_for_all_its_resources(http: httpx.Client) -> None:
    begun(http, "asked", "memo://x", "asking")
    answer = ask(http, "read memo://x", "asked")
    state = answer["tenuto"]
    assert (state["status"], state["reason"]) == ("paused", "approval")
    decision = {"decision": "approve", "remember_for_session": True}
    http.post(f"/v1/agent/approvals/{state['approval_id']}", json=decision).raise_for_status()
    until(lambda: http.get(f"/v1/runs/{state['run_id']}").json()["status"] == "completed")
    begun_again = ask(http, "link at asking to memo://y", "asked")
    assert begun_again["agentic_tool_calls"][0]["name"] == "asking__link"
    assert answer_of(ask(http, "read memo://y", "asked")) == "read: reading 1 of memo://y"


def test_a_denial_holds_and_a_request_can_tighten(http: httpx.Client) -> None:
    begun(http, "denied", "memo://x", "denying")
    assert "its server's entry says deny" in answer_of(ask(http, "read memo://x", "denied"))
    begun(http, "tight", "memo://tight")
    denied = answer_of(ask(http, "read memo://tight", "tight", agent_permission="deny"))
    assert "the request's agent_permission is deny" in denied


def test_what_a_server_links_is_the_models_whatever_mcp_clients_are_shown(http: httpx.Client) -> None:
    begun(http, "shut", "memo://hidden", "shut")
    assert answer_of(ask(http, "read memo://hidden", "shut")) == "read: reading 1 of memo://hidden"


def test_a_clients_own_tool_of_that_name_is_the_clients(http: httpx.Client) -> None:
    own = {"type": "function", "function": {"name": "read_resource", "parameters": {"type": "object"}}}
    tools = [own, {"type": "mcp", "server_label": WAYS[1]}]
    answer = ask_new(http, f"link at {WAYS[1]} to memo://mine", tools)
    assert "Linked resources" not in answer["agentic_tool_calls"][0]["result_content"]


def ask_new(http: httpx.Client, said: str, tools: Sequence[object]) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": said}], "tools": tools, "max_tool_rounds": 3}
    answer: dict[str, Any] = http.post("/v1/chat/completions", json=body).raise_for_status().json()
    return answer

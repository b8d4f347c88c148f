"""Alice makes, Bob tries: whatever is hers answers him as what nobody has, over every route and every MCP method."""

import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import httpx2
import mcp.types as t
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tenuto.runtime.mcp.own_tools import INPUTS
from tests.e2e.forked import tool_server
from tests.e2e.server import Server, script
from tests.mcp.conftest import ERAS
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

MANY = Path(__file__).parent.parent / "tools" / "servers" / "many.py"
BOBS = [f"bob{n}" for n in range(64)]
"""One a test, so that none finds what another left."""
KEYS = '[[keys]]\nkey = "alice"\n[[keys]]\nkey = "root"\nadmin = true\n' + "".join(
    f'[[keys]]\nkey = "{bob}"\nperson = true\n' for bob in BOBS
)
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
RULES: list[dict[str, Any]] = [
    {"user": "echo", "calls": [{"name": "many__echo", "arguments": {"text": "hi"}}]},
    {"user": "weather", "calls": [{"name": "weather", "arguments": {}}]},
]
NOBODYS = {
    "session": "nobodys",
    "run": "run_nobodys",
    "paused": "run_nobodys",
    "approval": "appr_nobodys",
    "response": "resp_nobodys",
}
TALK = "/v1/chat/completions"
SECRET = "the word is swordfish"
DOCUMENT = {"version": 1, "created_at": 1.0, "updated_at": 1.0, "items": [{"kind": "user", "text": "mine"}]}

Tries = tuple[tuple[str, str, Any], ...]
"""Of whose things, by which query, with what body."""

ROUTES: dict[str, Tries] = {
    "GET /v1/sessions/{id}": (("session", "", None), ("session", "?raw=1", None)),
    "DELETE /v1/sessions/{id}": (("session", "", None),),
    "POST /v1/sessions/{id}/fork": (
        ("session", "", None),
        ("session", "", {"at": 1}),
        ("session", "", {"session_id": "stolen"}),
    ),
    "GET /v1/runs/{id}": (("run", "", None), ("paused", "", None)),
    "POST /v1/runs/{id}/cancel": (("run", "", None), ("paused", "", None)),
    "GET /v1/runs/{id}/events": (("run", "", None), ("paused", "", None), ("run", "?after=1", None)),
    "GET /v1/responses/{id}": (("response", "", None), ("response", "?stream=true", None)),
    "DELETE /v1/responses/{id}": (("response", "", None),),
    "POST /v1/responses/{id}/cancel": (("response", "", None),),
    "GET /v1/responses/{id}/input_items": (("response", "", None),),
    "GET /v1/conversations/{id}": (("session", "", None),),
    "POST /v1/conversations/{id}": (("session", "", {"metadata": {"a": "b"}}),),
    "DELETE /v1/conversations/{id}": (("session", "", None),),
    "GET /v1/conversations/{id}/items": (("session", "", None),),
    "POST /v1/conversations/{id}/items": (("session", "", {"items": [{"role": "user", "content": "x"}]}),),
    "GET /v1/conversations/{id}/items/{item_id}": (("session", "", None),),
    "DELETE /v1/conversations/{id}/items/{item_id}": (("session", "", None),),
    "POST /v1/agent/approvals/{id}": (
        ("approval", "", {"decision": "approve"}),
        ("approval", "", {"decision": "deny", "remember_for_session": True}),
    ),
}
ELSEWHERE = {
    "POST /v1/chat/completions": "an id that is not one's own is that of a new session: tested below",
    "POST /v1/chat/completions/input_tokens": "the same: it reads one's own session of that id",
    "POST /v1/messages": "the same",
    "POST /v1/messages/count_tokens": "the same: it reads one's own session of that id",
    "POST /v1/responses": "the same, and answers to approvals: tested below",
    "GET /v1/responses": "the same over a WebSocket",
    "POST /v1/conversations": "the same; to go on in one in a response is tested below",
    "POST /v1/responses/input_tokens": "the same: it reads one's own session of that id",
    "POST /v1/responses/compact": "goes on after a response: tested below",
    "POST /api/chat": "the same: tested below",
    "POST /api/generate": "the same",
    "PUT /v1/sessions/{id}": "the same",
    "GET /v1/sessions": "a list: tested below",
    "GET /v1/agent/inputs": "a list: tested in tests/faults/test_questions.py",
    "POST /v1/agent/inputs/{id}": "tested where servers ask: tests/faults/test_questions.py",
    "GET /v1/mcp/servers": "what concerns the server: tested below",
    "GET /v1/mcp/prompts": "what servers offer to whom: tested in tests/mcp/test_offers_over_http.py",
    "POST /v1/mcp/prompts/get": "what servers offer to whom: tested in tests/mcp/test_offers_over_http.py",
    "GET /v1/mcp/resources": "what servers offer to whom: tested in tests/mcp/test_offers_over_http.py",
    "GET /v1/mcp/resources/templates": "what servers offer to whom: tested in tests/mcp/test_offers_over_http.py",
    "POST /v1/mcp/resources/read": "what servers offer to whom: tested in tests/mcp/test_offers_over_http.py",
    "POST /v1/mcp/complete": "what servers offer to whom: tested in tests/mcp/test_offers_over_http.py",
    "GET /mcp/server-card": "public",
    "GET /.well-known/mcp/server-card.json": "public",
    "GET /.well-known/ai-catalog.json": "public",
    "POST /v1/completions": "keeps nothing",
    "POST /completion": "keeps nothing",
    "POST /v1/embeddings": "keeps nothing",
    "POST /v1/rerank": "keeps nothing",
    "POST /api/embed": "keeps nothing",
    "POST /tokenize": "reads one's own session of that id, else none: tested below",
    "POST /detokenize": "keeps nothing",
    "POST /apply-template": "as /tokenize: tested below",
    "GET /v1/models": "what is served to all",
    "GET /v1/models/{id}": "what is served to all",
    "GET /": "says that it is there",
    "GET /api/version": "what is served to all",
    "GET /api/tags": "what is served to all",
    "GET /api/ps": "what is served to all",
    "POST /api/show": "what is served to all",
    "POST /api/pull": "what is served to all, and for admins what is stored for all",
    "DELETE /api/delete": "for admins: what is stored for all",
    "POST /infill": "keeps nothing",
    "POST /v1/models/{id}/load": "for admins: what is served to all",
    "POST /v1/models/{id}/unload": "for admins: what is served to all",
    "GET /props": "what is served to all",
    "GET /slots": "how many work, and nothing of whom",
    "GET /health": "public",
    "GET /ready": "public",
    "GET /metrics": "figures over all",
}


@dataclass(frozen=True)
class Made:
    """What Alice has: a conversation, its run, a run that waits for her word, and one that waits for her tool."""

    server: Server
    things: dict[str, str]
    client_run: str

    def client(self, key: str) -> httpx.Client:
        return self.server.client(headers={"Authorization": f"Bearer {key}"})

    def state(self) -> list[Any]:
        """All of it, as she sees it."""
        with self.client("alice") as http:
            paths = ["/v1/sessions/hers", "/v1/sessions/asking", f"/v1/runs/{self.client_run}"]
            paths += [f"/v1/runs/{self.things[name]}" for name in ("run", "paused")]
            paths += [f"/v1/responses/{self.things['response']}"]
            return [http.get(path).raise_for_status().json() for path in paths]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("two")
    many = {**tool_server(MANY), "permission": "ask"}
    loud = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('swordfish')"]}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"many": many, "loud": loud}}))
    (folder / "tenuto.toml").write_text(KEYS)
    server = Server(
        folder, script(folder / "model.json", RULES, cells=32768), ("--mcp-config", str(folder / "mcp.json"))
    ).start()
    try:
        with server.client(headers={"Authorization": "Bearer alice"}) as http:
            hers = talk(http, SECRET, session_id="hers")
            asking = talk(http, "echo", session_id="asking", agent_permission="ask")
            response = (
                http.post("/v1/responses", json={"input": SECRET, "user": "hers"}).raise_for_status().json()["id"]
            )
            weather = talk(http, "weather", session_id="weather", tools=[WEATHER])
            item = http.get("/v1/conversations/hers/items").json()["first_id"]
        waits = asking.json()["tenuto"]
        things = {
            "session": "hers",
            "run": run_of(hers),
            "paused": waits["run_id"],
            "approval": waits["approval_id"],
            "response": response,
            "item": item,
        }
        yield Made(server, things, run_of(weather))
    finally:
        server.close()


@pytest.fixture(scope="module")
def bobs() -> Iterator[str]:
    return iter(BOBS)


@pytest.fixture
def bob(bobs: Iterator[str]) -> str:
    """The key of somebody who has nothing yet."""
    return next(bobs)


@pytest.fixture(autouse=True)
def nothing_changes(made: Made) -> Iterator[None]:
    before = made.state()
    yield
    assert made.state() == before


def talk(http: httpx.Client, said: str, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": said}], **fields}
    return http.post(TALK, json=body, headers=headers).raise_for_status()


def run_of(response: httpx.Response) -> str:
    return response.headers["x-tenuto-run-id"]


def test_every_route_is_tried_here(made: Made, bob: str) -> None:
    with made.client(bob) as http:
        described = http.get("/openapi.json").json()["paths"]
    served = {f"{method.upper()} {path}" for path, methods in described.items() for method in methods}
    assert served == set(ROUTES) | set(ELSEWHERE)


@pytest.mark.parametrize(
    ("route", "thing", "query", "body"),
    [(route, *one) for route, tries in ROUTES.items() for one in tries],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_alices_answers_bob_as_what_nobody_has(
    route: str, thing: str, query: str, body: Any, made: Made, bob: str
) -> None:
    method, path = route.split()
    answers = []
    with made.client(bob) as http:
        for id in (made.things[thing], NOBODYS[thing]):
            of = path.replace("{id}", id).replace("{item_id}", made.things["item"])
            response = http.request(method, of + query, json=body)
            headers = {
                name: value for name, value in response.headers.items() if name not in ("date", "content-length")
            }
            answers.append((response.status_code, response.text.replace(id, "ID"), headers))
    assert answers[0] == answers[1]
    assert answers[0][0] == 404


@pytest.mark.parametrize("id", ["hers", "asking"])
def test_alices_ids_are_free_to_bob(id: str, made: Made, bob: str) -> None:
    with made.client(bob) as http:
        told = talk(http, "what is the word?", session_id=id).json()
        assert told["choices"][0]["message"]["content"] == "what is the word?"
        assert told["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert "swordfish" not in http.get(f"/v1/sessions/{id}").text
        put = http.put(f"/v1/sessions/{id}", json=DOCUMENT)
        assert (put.status_code, put.json()["num_items"]) == (200, 1)
        preview = {"messages": [{"role": "user", "content": "x"}], "session_id": id, "with_pieces": True}
        assert "swordfish" not in http.post("/tokenize", json=preview).text
        assert "swordfish" not in http.post("/apply-template", json=preview).text
        http.delete(f"/v1/sessions/{id}").raise_for_status()


SAID = [{"role": "user", "content": "what is the word?"}]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"model": "default", "max_tokens": 50, "messages": SAID}),
        ("/v1/messages/count_tokens", {"model": "default", "messages": SAID}),
        ("/v1/responses", {"input": SAID}),
        ("/api/chat", {"messages": SAID, "stream": False}),
        ("/api/generate", {"prompt": SAID[0]["content"], "stream": False}),
        ("/v1/responses/input_tokens", {"input": SAID}),
    ],
)
def test_alices_session_is_read_in_no_dialect(path: str, body: Any, made: Made, bob: str) -> None:
    with made.client(bob) as http:
        told = [
            http.post(path, json=body, headers={"X-Tenuto-Session": id}).raise_for_status()
            for id in ("hers", "nobodys")
        ]
        for answer in told:
            assert "swordfish" not in answer.text
        counts = [answer.json().get("input_tokens") for answer in told]  # of previews, which leave no cache
        assert counts[0] == counts[1]
        for id in ("hers", "nobodys"):
            http.delete(f"/v1/sessions/{id}")


def test_bob_goes_on_after_no_response_of_alices(made: Made, bob: str) -> None:
    with made.client(bob) as http:
        told = []
        for id in (made.things["response"], NOBODYS["response"]):
            for path in ("/v1/responses", "/v1/responses/input_tokens", "/v1/responses/compact"):
                answer = http.post(path, json={"input": "and?", "previous_response_id": id})
                told.append((answer.status_code, answer.text.replace(id, "ID")))
    assert told[:3] == told[3:]
    assert {status for status, _ in told} == {400}


def test_bob_goes_on_in_no_conversation_of_alices(made: Made, bob: str) -> None:
    with made.client(bob) as http:
        told = []
        for id in ("hers", NOBODYS["session"]):
            for path in ("/v1/responses", "/v1/responses/input_tokens"):
                answer = http.post(path, json={"input": "and?", "conversation": id})
                told.append((answer.status_code, answer.text.replace(id, "ID")))
    assert told[:2] == told[2:]
    assert {status for status, _ in told} == {404}


def test_alices_approval_is_not_bobs_to_give_in_a_response(made: Made, bob: str) -> None:
    def give(http: httpx.Client, id: str) -> tuple[int, str]:
        answer = {"type": "mcp_approval_response", "approval_request_id": id, "approve": True}
        told = http.post("/v1/responses", json={"input": [answer]})
        return told.status_code, told.text.replace(id.removeprefix("mcpr_"), "ID")

    with made.client(bob) as http:
        hers = f"mcpr_{made.things['approval'].removeprefix('appr_')}"
        status, text = give(http, hers)
        assert (status, text) == give(http, "mcpr_nobodys")
        assert status in (400, 404)


def test_bob_who_repeats_alices_words_finds_no_session_and_no_cache_of_hers(made: Made, bob: str) -> None:
    with made.client(bob) as http:
        history = [{"role": "user", "content": SECRET}, {"role": "assistant", "content": SECRET}]
        body = {"messages": [*history, {"role": "user", "content": "and?"}]}
        told = http.post(TALK, json=body).raise_for_status()
    assert told.headers["x-tenuto-session"] != "hers"
    assert told.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_bobs_retry_keys_are_his_own(made: Made, bob: str) -> None:
    key = {"Idempotency-Key": "k"}
    with made.client("alice") as hers, made.client(bob) as his:
        first = talk(hers, "one", key)
        same, other = talk(his, "one", key), talk(hers, "one", key)
        assert run_of(other) == run_of(first) != run_of(same)
        unlike = his.post(TALK, json={"messages": [{"role": "user", "content": "two"}]}, headers=key)
        assert unlike.status_code == 422, "and so is what they came with"


def test_lists_and_figures_name_nothing_of_alices(made: Made, bob: str) -> None:
    with made.client(bob) as http:
        for path in ("/v1/sessions", "/v1/sessions?implicit=1&limit=100", "/metrics", "/v1/models", "/health"):
            text = http.get(path).raise_for_status().text
            assert not any(name in text for name in ("hers", "asking", "weather", *made.things.values())), path


def test_what_programs_write_is_for_those_who_run_the_server(made: Made, bob: str) -> None:
    def loud(key: str) -> dict[str, Any]:
        with made.client(key) as http:
            listed = http.get("/v1/mcp/servers").raise_for_status().json()["data"]
        return next(each for each in listed if each["id"] == "loud")

    assert loud(bob)["stderr"] == []
    assert loud(bob).keys() == loud("root").keys()
    assert "swordfish" in loud("root")["stderr"]


# MCP.

Call = tuple[str, dict[str, Any]]


def calls(session: str, run: str) -> list[Call]:
    return [
        ("session_get", {"session_id": session}),
        ("session_fork", {"session_id": session}),
        ("session_fork", {"session_id": session, "at": 1, "new_id": "stolen"}),
        ("session_delete", {"session_id": session}),
        ("run_get", {"run_id": run}),
        ("run_cancel", {"run_id": run}),
        ("run_resume", {"run_id": run, "decision": "approve"}),
        ("run_resume", {"run_id": run, "decision": "deny"}),
        ("run_resume", {"run_id": run, "results": [{"tool_call_id": "c", "content": "x"}]}),
    ]


@pytest.fixture(params=ERAS)
def connect(request: pytest.FixtureRequest, made: Made) -> Callable[..., Any]:
    """Connects with a key, in either era."""

    @asynccontextmanager
    async def connected(key: str, **options: Any) -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=HANGS_S) as http,
            Client(
                streamable_http_client(f"{made.server.url}/mcp", http_client=http),
                mode=request.param,
                cache=None,
                read_timeout_seconds=20,
                **options,
            ) as client,
        ):
            yield client

    return connected


def test_every_tool_that_takes_an_id_is_tried_here() -> None:
    takes_ids = {name for name, schema in INPUTS.items() if {"session_id", "run_id"} & set(schema["properties"])}
    assert takes_ids == {name for name, _ in calls("", "")} | {"chat"}


async def test_alices_handles_answer_bob_as_unknown_ones(connect: Callable[..., Any], made: Made, bob: str) -> None:
    runs = [made.things["run"], made.things["paused"], made.client_run]
    async with connect(bob) as client:
        for run in runs:
            for hers, nobodys in zip(calls("hers", run), calls("nobodys", "run_nobodys"), strict=True):
                answers = []
                for (tool, arguments), session_id, run_id in (
                    (hers, "hers", run),
                    (nobodys, "nobodys", "run_nobodys"),
                ):
                    result = await client.call_tool(tool, arguments)
                    (block,) = result.content
                    text = block.text.replace(run_id, "ID").replace(session_id, "ID")
                    answers.append((result.is_error, text, result.structured_content))
                assert answers[0] == answers[1], hers
                assert answers[0][0] is True


async def test_alices_conversations_are_no_resources_of_bobs(connect: Callable[..., Any], made: Made, bob: str) -> None:
    async with connect(bob) as client:
        told = []
        for uri in ("session://hers", "session://nobodys"):
            with pytest.raises(MCPError) as refused:
                await client.read_resource(uri)
            told.append(str(refused.value.error.model_dump_json()).replace(uri, "URI").replace(uri[10:], "ID"))
        assert told[0] == told[1]
        assert all(each.name not in ("hers", "asking") for each in (await client.list_resources()).resources)
        listed = (await client.call_tool("session_list", {"implicit": True, "limit": 100})).structured_content
        assert all(each["id"] not in ("hers", "asking", "weather") for each in listed["data"])


async def test_bob_does_not_answer_the_question_that_alice_was_asked(made: Made, bob: str) -> None:
    """Neither with a state that he makes up nor with the one that she was given."""
    arguments = {"message": "echo"}
    async with over_mcp(made, "alice") as client:
        asked = await client.session.call_tool("chat", arguments, allow_input_required=True)
    assert isinstance(asked, t.InputRequiredResult)
    yes = t.ElicitResult(action="accept", content={"approve": True})
    made_up = (json.dumps({"pause_id": each, "first": 1, "last": 1}) for each in (made.things["approval"], "appr_x"))
    told = set()
    async with over_mcp(made, bob) as client:
        for state in (*made_up, asked.request_state):
            with pytest.raises(MCPError) as refused:
                await client.session.call_tool(
                    "chat", arguments, input_responses={"approval": yes}, request_state=state
                )
            told.add((refused.value.code, refused.value.error.message))
    assert told == {(t.INVALID_PARAMS, "Invalid or expired requestState")}


@asynccontextmanager
async def over_mcp(made: Made, key: str) -> AsyncIterator[Client]:
    """A client that can ask a person, whom its tests play."""

    async def never(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
        raise AssertionError("the answer is given by hand")

    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=HANGS_S) as http,
        Client(
            streamable_http_client(f"{made.server.url}/mcp", http_client=http), cache=None, elicitation_callback=never
        ) as client,
    ):
        yield client


def test_bob_cannot_use_alices_connection(made: Made, bob: str) -> None:
    """The older protocol's session id is no key."""
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    accept = {"Accept": "application/json, text/event-stream"}

    def post(http: httpx.Client, method: str, params: dict[str, Any], **headers: str) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return http.post("/mcp", json=body, headers={**accept, **headers})

    with made.client("alice") as hers, made.client(bob) as his:
        id = post(hers, "initialize", hello).headers["mcp-session-id"]
        told = []
        for each in (id, "0" * len(id)):
            for method, params in (("tools/list", {}), ("resources/subscribe", {"uri": "session://hers"})):
                response = post(his, method, params, **{"mcp-session-id": each, "mcp-protocol-version": "2025-06-18"})
                told.append((response.status_code, response.text.replace(each, "ID")))
            gone = his.delete("/mcp", headers={**accept, "mcp-session-id": each})
            told.append((gone.status_code, gone.text.replace(each, "ID")))
        assert told[:3] == told[3:]
        assert all(status >= 400 for status, _ in told)
        assert post(hers, "tools/list", {}, **{"mcp-session-id": id}).status_code == 200, "and hers is still there"

"""Models that come and go in one server: over HTTP in every dialect, over MCP, and on the command line."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.forked import program
from tests.e2e.server import Server, environment, script
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
RULES: list[Mapping[str, Any]] = [
    {"user": "weather", "calls": [{"name": "weather", "arguments": {}}]},
    {"tool": "sun", "text": "take a hat"},
    {"user": "slow", "text": "tick " * 60, "delay_ms": 10},
]
KEY, ADMIN = "sk-user", "sk-admin"
STREAMS = 16


def models(folder: Path) -> list[str]:
    names = ("first", "second", "third")
    chats = [script(folder / f"{name}.json", [*RULES, {"user": "who", "text": name}], slots=4) for name in names]
    return [*chats, script(folder / "vectors.json", cells=64, embeds={"width": 8})]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    first, *others = models(folder)
    keys = [word for key in ({"key": KEY}, {"key": ADMIN, "admin": True}) for word in ("--keys", json.dumps(key))]
    more = [word for other in others for word in ("--model", other)]
    server = Server(folder, first, (*more, "--load", "request", *keys))
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client(headers={"Authorization": f"Bearer {ADMIN}"}) as client:
        yield client


def ask(http: httpx.Client, text: str, **more: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text}], **more}
    answer: dict[str, Any] = http.post("/v1/chat/completions", json=body).raise_for_status().json()
    return answer


def text_of(answer: dict[str, Any]) -> str:
    content: str = answer["choices"][0]["message"]["content"]
    return content


def figures(http: httpx.Client) -> dict[str, float]:
    lines = [line for line in http.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def unloaded(http: httpx.Client, model: str) -> None:
    assert http.post(f"/v1/models/{model}/unload").raise_for_status().json()["state"] == "available"


def state(http: httpx.Client, model: str) -> str:
    found: str = http.get(f"/v1/models/{model}").raise_for_status().json()["state"]
    return found


def swap_back(server: Server, http: httpx.Client, model: str) -> None:
    """To what was named at the start."""
    body = {"swap": True, "source": f"scripted:{server.folder}/{model}.json"}
    swapped = http.post(f"/v1/models/{model}/load", json=body)
    assert "version" not in swapped.raise_for_status().json()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "who"}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "who"}], "stream": True}),
        ("/v1/chat/completions/input_tokens", {"messages": [{"role": "user", "content": "who"}]}),
        ("/v1/responses", {"input": "who"}),
        ("/v1/responses", {"input": "who", "stream": True}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "who"}], "max_tokens": 9}),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "who"}]}),
        ("/v1/completions", {"prompt": "x", "max_tokens": 2}),
        ("/completion", {"prompt": "x", "n_predict": 2}),
        ("/tokenize", {"content": "x"}),
        ("/detokenize", {"tokens": [65]}),
        ("/apply-template", {"messages": [{"role": "user", "content": "who"}]}),
        ("/api/chat", {"messages": [{"role": "user", "content": "who"}]}),
        ("/api/generate", {"prompt": "who"}),
        ("/api/generate", {"prompt": "who", "raw": True, "options": {"num_predict": 2}}),
        ("/api/generate", {"prompt": ""}),
        ("/api/show", {}),
    ],
)
def test_a_request_in_any_form_loads_the_model_that_it_names(
    http: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    unloaded(http, "second")
    response = http.post(path, json={"model": "second", **body})
    assert response.status_code == 200, response.text
    assert state(http, "second") == "loaded"


def test_what_models_hold_and_how_often_each_was_loaded_is_counted(http: httpx.Client) -> None:
    unloaded(http, "second")
    before = figures(http)
    ask(http, "who", model="second")
    after = figures(http)
    loads, unloads = (f'tenuto_model_{kind}_total{{model="second"}}' for kind in ("loads", "unloads"))
    assert (after[loads], after[unloads]) == (before[loads] + 1, before[unloads])
    held = [after[f'tenuto_models_bytes{{kind="{kind}"}}'] for kind in ("most_held", "held")]
    assert sorted(held, reverse=True) == held
    assert held[-1] >= http.get("/v1/models/second").json()["bytes"] > 0


def test_texts_load_the_model_that_embeds_them(http: httpx.Client) -> None:
    for path in ("/v1/embeddings", "/api/embed"):
        unloaded(http, "vectors")
        assert http.post(path, json={"model": "vectors", "input": "x"}).status_code == 200
        assert state(http, "vectors") == "loaded"


def test_all_models_are_listed_with_where_they_stand(http: httpx.Client) -> None:
    ask(http, "who", model="first")
    unloaded(http, "third")
    listed = {model["id"]: model for model in http.get("/v1/models").json()["data"]}
    assert [*listed] == ["first", "second", "third", "vectors"]
    assert (listed["first"]["state"], listed["third"]["state"]) == ("loaded", "available")
    assert listed["first"]["context_length"] > 0
    assert "context_length" not in listed["third"]
    tags = {model["name"] for model in http.get("/api/tags").json()["models"]}
    assert tags == set(listed)
    assert "third" not in {model["name"] for model in http.get("/api/ps").json()["models"]}


def test_no_name_means_the_first_whatever_is_loaded(http: httpx.Client) -> None:
    ask(http, "who", model="third")
    unloaded(http, "first")
    assert text_of(ask(http, "who")) == "first"
    response = http.post(
        "/v1/chat/completions", json={"model": "gpt-4o", "messages": [{"role": "user", "content": "x"}]}
    )
    assert response.status_code == 404
    assert "first, second, third, vectors" in response.json()["error"]["message"]


def test_a_session_goes_on_when_its_model_has_been_unloaded(http: httpx.Client) -> None:
    before = ask(http, "who", model="first", session_id="stays")
    unloaded(http, "first")
    after = ask(http, "who", model="first", session_id="stays")
    assert text_of(after) == "first"
    assert after["usage"]["prompt_tokens"] > before["usage"]["prompt_tokens"]
    assert after["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_run_that_waits_for_its_client_goes_on_when_its_model_has_been_unloaded(http: httpx.Client) -> None:
    asked = ask(http, "weather", model="second", session_id="waits", tools=[WEATHER])
    (call,) = asked["choices"][0]["message"]["tool_calls"]
    unloaded(http, "second")
    result = {"role": "tool", "tool_call_id": call["id"], "content": "sun"}
    body = {"model": "second", "session_id": "waits", "messages": [result], "tools": [WEATHER]}
    assert text_of(http.post("/v1/chat/completions", json=body).raise_for_status().json()) == "take a hat"


def test_a_session_is_deleted_while_its_model_is_not_loaded(http: httpx.Client) -> None:
    ask(http, "weather", model="second", session_id="goes", tools=[WEATHER])
    unloaded(http, "second")
    assert http.delete("/v1/sessions/goes").status_code == 200
    assert http.get("/v1/sessions/goes").status_code == 404


def test_a_model_is_unloaded_when_the_last_stream_has_ended(http: httpx.Client) -> None:
    body = {"model": "third", "messages": [{"role": "user", "content": "slow"}], "stream": True}
    with http.stream("POST", "/v1/chat/completions", json=body) as stream:
        lines = stream.iter_lines()
        next(lines)
        with ThreadPoolExecutor(1) as beside:
            unloading = beside.submit(http.post, "/v1/models/third/unload")
            assert sum(line.startswith("data:") for line in lines) > 10
            assert unloading.result(HANGS_S).json()["state"] == "available"


def test_ollamas_keep_alive_unloads_a_model_that_nobody_uses(http: httpx.Client) -> None:
    for keep_alive, left in (("5m", 300.0), (-1, None)):
        http.post("/api/generate", json={"model": "third", "prompt": "who", "keep_alive": keep_alive})
        assert http.get("/v1/models/third").json().get("keep_loaded_s") == left
    http.post("/api/generate", json={"model": "third", "prompt": "who", "keep_alive": 0})
    for _ in range(int(HANGS_S * 10)):
        if state(http, "third") == "available":
            break
        time.sleep(0.1)
    assert state(http, "third") == "available"
    http.post("/api/chat", json={"model": "third", "messages": [], "keep_alive": -1}).raise_for_status()


def test_only_an_admin_loads_and_unloads_by_command(server: Server) -> None:
    with server.client(headers={"Authorization": f"Bearer {KEY}"}) as http:
        for verb in ("load", "unload"):
            refused = http.post(f"/v1/models/first/{verb}")
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
        assert text_of(ask(http, "who", model="third")) == "third"  # what it may ask for it may load


async def test_mcp_clients_load_the_model_that_they_name(server: Server, http: httpx.Client) -> None:
    unloaded(http, "third")
    async with (
        httpx2.AsyncClient(timeout=HANGS_S, headers={"Authorization": f"Bearer {KEY}"}) as plain,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=plain), read_timeout_seconds=HANGS_S) as client,
    ):
        answer = await client.call_tool("chat", {"message": "who", "model": "third"})
    assert answer.structured_content["text"] == "third"


def test_a_model_is_replaced_under_streams_and_no_stream_breaks(server: Server, http: httpx.Client) -> None:
    """And no acknowledged turn is lost; what comes after is answered by the new version."""
    better = script(server.folder / "better.json", [*RULES, {"user": "who", "text": "better"}], slots=4)
    begun = threading.Semaphore(0)

    def stream(number: int) -> str:
        body = {"model": "first", "session_id": f"swap-{number}", "stream": True}
        messages = [{"role": "user", "content": "slow"}]
        with http.stream("POST", "/v1/chat/completions", json={**body, "messages": messages}) as answer:
            pieces = []
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    begun.release()
                    choices = json.loads(line.removeprefix("data: "))["choices"]
                    pieces += [one["delta"].get("content") or "" for one in choices]
        return "".join(pieces)

    with ThreadPoolExecutor(STREAMS) as clients:
        streams = [clients.submit(stream, number) for number in range(STREAMS)]
        for _ in range(STREAMS):
            assert begun.acquire(timeout=HANGS_S)
        swapped = http.post("/v1/models/first/load", json={"swap": True, "source": better}).raise_for_status().json()
        assert swapped["version"] == better
        assert text_of(ask(http, "who", model="first")) == "better"
        assert {one.result(HANGS_S) for one in streams} == {("tick " * 60).strip()}
    for number in range(STREAMS):
        items = http.get(f"/v1/sessions/swap-{number}").json()["items"]
        assert [item["kind"] for item in items] == ["user", "assistant"]
        assert text_of(ask(http, "who", model="first", session_id=f"swap-{number}")) == "better"
    swap_back(server, http, "first")
    assert text_of(ask(http, "who", model="first")) == "first"


def test_a_run_that_waits_finishes_on_the_version_that_it_began_with(server: Server, http: httpx.Client) -> None:
    asked = ask(http, "weather", model="second", session_id="finishes", tools=[WEATHER])
    (call,) = asked["choices"][0]["message"]["tool_calls"]
    other = script(server.folder / "other.json", [{"tool": "sun", "text": "other"}, {"user": "who", "text": "other"}])
    swapped = http.post("/v1/models/second/load", json={"swap": True, "source": other}).raise_for_status().json()
    assert swapped["old_versions"] == 1
    result = {"role": "tool", "tool_call_id": call["id"], "content": "sun"}
    body = {"model": "second", "session_id": "finishes", "messages": [result], "tools": [WEATHER]}
    assert text_of(http.post("/v1/chat/completions", json=body).raise_for_status().json()) == "take a hat"
    assert text_of(ask(http, "who", model="second", session_id="finishes")) == "other"
    swap_back(server, http, "second")


def test_a_version_is_taken_back_while_runs_wait_for_the_one_before_it(server: Server, http: httpx.Client) -> None:
    """A bad version does not stay because somebody has not answered yet. Each run ends where it began."""
    other = script(server.folder / "worse.json", [{"user": "who", "text": "worse"}])
    asked = ask(http, "weather", model="third", session_id="before", tools=[WEATHER])
    http.post("/v1/models/third/load", json={"swap": True, "source": other}).raise_for_status()
    assert text_of(ask(http, "who", model="third")) == "worse"
    swap_back(server, http, "third")
    assert text_of(ask(http, "who", model="third")) == "third"
    (call,) = asked["choices"][0]["message"]["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "sun"}
    body = {"model": "third", "session_id": "before", "messages": [result], "tools": [WEATHER]}
    assert text_of(http.post("/v1/chat/completions", json=body).raise_for_status().json()) == "take a hat"


def test_a_swap_to_what_is_no_model_is_the_clients_mistake_and_changes_nothing(http: httpx.Client) -> None:
    nowhere = {"swap": True, "source": "scripted:/nowhere.json"}
    for prepare in (partial(unloaded, http, "third"), partial(ask, http, "who", model="third")):
        prepare()
        failed = http.post("/v1/models/third/load", json=nowhere)
        assert failed.status_code == 400
        assert failed.json()["error"]["param"] == "source"
        assert text_of(ask(http, "who", model="third")) == "third"


@pytest.mark.parametrize("keep_s", ["1e300", "1e12", "0.5"])
def test_a_model_may_be_kept_for_longer_than_calendars_reach(http: httpx.Client, keep_s: str) -> None:
    headers = {"content-type": "application/json"}
    http.post("/v1/models/third/load", content=f'{{"keep_loaded_s": {keep_s}}}', headers=headers).raise_for_status()
    http.get("/api/ps").raise_for_status()


def test_the_command_line_shows_loads_and_unloads(server: Server, http: httpx.Client, tmp_path: Path) -> None:
    def run(*words: str) -> str:
        command = program(*words, "--url", server.url, "--api-key", ADMIN)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=HANGS_S, env=environment(tmp_path), check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    unloaded(http, "third")
    assert run("load", "third", "--pin").startswith("third: loaded")
    (third,) = [line for line in run("ps").splitlines() if line.startswith("third")]
    assert "loaded" in third
    assert "pinned" in third
    assert run("unload", "third") == "third: available\n"
    assert "third" not in run("ps")
    assert "third" in run("ps", "--all")
    http.post("/v1/models/third/load", json={"pin": False}).raise_for_status()

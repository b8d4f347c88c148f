"""`--model` given several times: an engine each, one server."""

import json
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.conftest import Start
from tests.e2e.forked import program
from tests.e2e.server import Server, environment, script
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

KNOWN = ["first", "second", "embedded"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, embedded_model: str) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("several")
    first = script(folder / "first.json", [{"user": "who", "text": "the first"}])
    second = script(
        folder / "second.json",
        [{"user": "who", "text": "the second"}, {"user": "slow", "text": "tick " * 400, "delay_ms": 20}],
        cells=2048,
    )
    more = ("--model", second, "--model", embedded_model, "--context", "1024")
    server = Server(folder, first, more)
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def ask(http: httpx.Client, text: str, **more: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text}], **more}
    answer: dict[str, Any] = http.post("/v1/chat/completions", json=body).raise_for_status().json()
    return answer


def said(answer: dict[str, Any]) -> tuple[str, str]:
    return answer["model"], answer["choices"][0]["message"]["content"]


def content_of(line: str) -> str:
    """The text that a line of a stream brings."""
    if not line.startswith("data: {"):
        return ""
    choices = json.loads(line.removeprefix("data: "))["choices"]
    return choices[0]["delta"].get("content") or "" if choices else ""


def test_each_is_asked_by_its_name_and_the_first_by_default(http: httpx.Client) -> None:
    assert said(ask(http, "who")) == ("first", "the first")
    assert said(ask(http, "who", model="default")) == ("first", "the first")
    assert said(ask(http, "who", model="first")) == ("first", "the first")
    assert said(ask(http, "who", model="second")) == ("second", "the second")
    assert ask(http, "Hello", model="embedded", max_tokens=8)["model"] == "embedded"


def test_all_are_listed_with_what_they_are(http: httpx.Client) -> None:
    models = http.get("/v1/models").raise_for_status().json()["data"]
    assert [model["id"] for model in models] == KNOWN
    assert all(model["context_length"] > 0 and model["created"] > 0 for model in models)
    assert all("tools" in model["capabilities"] for model in models)
    assert all(model["description"] and model["backend"] and model["can_batch"] for model in models)
    assert "llama" in models[2]["description"]
    assert http.get("/v1/models/second").json() == models[1]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/completions", {"prompt": "x"}),
        ("/tokenize", {"content": "x"}),
        ("/detokenize", {"tokens": [1]}),
    ],
)
def test_an_unknown_one_is_refused_with_those_that_are_known(
    path: str, body: dict[str, Any], http: httpx.Client
) -> None:
    response = http.post(path, json={**body, "model": "nobody"})
    assert response.status_code == 404
    assert response.json()["error"] == {
        "message": "there is no model 'nobody'; known: first, second, embedded",
        "type": "not_found_error",
        "param": "model",
        "code": "model_not_found",
    }


async def test_mcp_clients_ask_each_and_are_told_which_there_are(server: Server) -> None:
    async with (
        httpx2.AsyncClient(timeout=HANGS_S) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http), read_timeout_seconds=20) as client,
    ):
        listed = await client.call_tool("models_list", {})
        second = await client.call_tool("chat", {"message": "who", "model": "second"})
        unknown = await client.call_tool("chat", {"message": "who", "model": "nobody"})
    assert [model["id"] for model in listed.structured_content["data"]] == KNOWN
    assert second.structured_content["text"] == "the second"
    assert unknown.is_error
    assert "there is no model 'nobody'; known: first, second, embedded" in str(unknown.content[0])


def test_a_session_goes_on_with_another_model_and_comes_back(http: httpx.Client) -> None:
    long = "a long beginning " * 20
    first = ask(http, long, session_id="wanders")
    other = ask(http, "who", session_id="wanders", model="embedded", max_tokens=8)
    back = ask(http, "who", session_id="wanders", model="first")
    assert other["model"] == "embedded"
    assert said(back) == ("first", "the first")
    items = http.get("/v1/sessions/wanders").json()["items"]
    assert [item["kind"] for item in items] == ["user", "assistant"] * 3
    # Each model has its own tokens of the conversation, and keeps them while the other one speaks.
    ledgers = http.get("/v1/sessions/wanders").json()["ledgers"]
    assert [len(ledger["spans"]) for ledger in ledgers] == [6, 4]
    assert ledgers[0]["fingerprint"] != ledgers[1]["fingerprint"]
    assert back["usage"]["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"]


def test_one_that_is_busy_does_not_hold_up_another(http: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "slow"}], "model": "second", "stream": True}
    with http.stream("POST", "/v1/chat/completions", json=body) as stream:
        pieces = (text for line in stream.iter_lines() if (text := content_of(line)))
        before = next(pieces)
        assert said(ask(http, "who")) == ("first", "the first")
        after = "".join(islice(pieces, 40))
        assert ("tick " * 400).startswith(before + after)


def test_the_figures_tell_them_apart(http: httpx.Client) -> None:
    for model in KNOWN:
        ask(http, "who", model=model, max_tokens=4)
    figures = http.get("/metrics").text
    for model in KNOWN:
        for name in ("tenuto_requests_total", "tenuto_tokens_total", "tenuto_cache_bytes", "tenuto_queue_depth"):
            assert f"{name}{{" in figures
            assert any(line.startswith(name) and f'model="{model}"' in line for line in figures.splitlines()), name


def test_the_threads_are_divided_among_them(tmp_path: Path, start: Start) -> None:
    pytest.importorskip("llama_cpp", reason="needs tenuto[llama]")
    others = [script(tmp_path / f"{name}.json") for name in ("first", "second")]
    flags = [flag for other in others for flag in ("--model", other)]
    with start(*flags, "--context", "256", "--threads", "6", model="embedded:gguf").client() as http:
        models = http.get("/v1/models").raise_for_status().json()["data"]
    assert models[0]["backend"] == "llama.cpp, 2 threads"


def test_two_with_one_id_are_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = (script(tmp_path / folder / "same.json") for folder in "ab")
    command = program("serve", "--port", "0", "--data-dir", str(tmp_path / "data"))
    done = subprocess.run(
        [*command, "--model", one, "--model", other],
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        env=environment(tmp_path),
        check=False,
    )
    assert done.returncode != 0
    assert f"--model {one} and --model {other} would both be 'same'; rename a file" in done.stderr
    assert json.loads((tmp_path / "a" / "same.json").read_text()) == {"rules": []}

"""Embeddings over HTTP as hostile and hasty clients ask for them: at once, beside chats, gone, and with odd inputs."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server, script
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

WAIT_S = HANGS_S


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A model that embeds alone, a text in each slow step, and another that embeds at once."""
    folder = tmp_path_factory.mktemp("slow")
    slowly = script(folder / "slow.json", cells=64, embeds={"texts": 1, "delay_ms": 20})
    fast = script(folder / "fast.json", cells=1024, embeds={"width": 1024})
    server = Server(folder, slowly, ("--model", fast, "--queue-limit", "3")).start()
    yield server
    server.close()


def figure(http: httpx.Client, series: str) -> float:
    lines = http.get("/metrics").text.splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(series)), 0.0)


def test_many_clients_at_once_beside_chats_get_each_their_own(http: httpx.Client) -> None:
    texts = [f"text {number}" for number in range(24)]
    alone = http.post("/v1/embeddings", json={"input": texts}).json()["data"]

    def ask(number: int) -> Any:
        if number % 3 == 0:
            said = [{"role": "user", "content": texts[number]}]
            return http.post("/v1/chat/completions", json={"messages": said, "tools": []}).json()
        return http.post("/v1/embeddings", json={"input": texts[number]}).json()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(24)))
    for number, answer in enumerate(answers):
        if number % 3 == 0:
            assert answer["choices"][0]["message"]["content"] == texts[number]
        else:
            assert answer["data"][0]["embedding"] == alone[number]["embedding"]


def test_a_client_that_goes_away_costs_no_further_steps(slow: Server) -> None:
    with slow.client() as http:
        steps = figure(http, 'tenuto_steps_total{model="slow"}')
        with pytest.raises(httpx.ReadTimeout):
            http.post("/v1/embeddings", json={"model": "slow", "input": ["x"] * 500}, timeout=0.3)
        deadline = time.monotonic() + WAIT_S
        while figure(http, 'tenuto_queue_depth{model="slow"}'):
            assert time.monotonic() < deadline
        assert figure(http, 'tenuto_steps_total{model="slow"}') - steps < 250
        assert http.post("/v1/embeddings", json={"model": "slow", "input": "y"}).status_code == 200


def test_a_single_text_does_not_wait_for_a_list_of_hundreds(slow: Server) -> None:
    with slow.client() as http, ThreadPoolExecutor(1) as pool:
        many = pool.submit(http.post, "/v1/embeddings", json={"model": "slow", "input": ["x"] * 40})
        deadline = time.monotonic() + WAIT_S
        while not figure(http, 'tenuto_queue_depth{model="slow"}'):
            assert time.monotonic() < deadline
        assert http.post("/v1/embeddings", json={"model": "slow", "input": "y"}).status_code == 200
        assert not many.done()
        assert many.result().status_code == 200


def test_a_full_queue_is_a_429_that_says_when_to_come_again(slow: Server) -> None:
    with slow.client() as http, ThreadPoolExecutor(12) as pool:
        body = {"model": "slow", "input": ["x"] * 10}
        answers = list(pool.map(lambda _: http.post("/v1/embeddings", json=body), range(12)))
    refused = [answer for answer in answers if answer.status_code != 200]
    assert refused
    assert {answer.status_code for answer in refused} == {429}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)


def test_a_server_without_a_chat_model_says_so(slow: Server) -> None:
    with slow.client() as http:
        assert http.get("/ready").status_code == 200
        for path, body in (
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
            ("/v1/completions", {"prompt": "hi"}),
            ("/tokenize", {"content": "hi"}),
            ("/api/chat", {"messages": [{"role": "user", "content": "hi"}]}),
        ):
            refused = http.post(path, json=body)
            assert refused.status_code == 400, refused.text
            assert "no model here generates text" in refused.text
        assert [one["id"] for one in http.get("/v1/models").json()["data"]] == ["slow", "fast"]


def test_a_large_answer_comes_whole(slow: Server) -> None:
    with slow.client() as http:
        answer = http.post("/v1/embeddings", json={"model": "fast", "input": [f"{n}" for n in range(300)]})
        assert answer.headers["content-type"] == "application/json"
        data = answer.json()["data"]
        assert [one["index"] for one in data] == list(range(300))
        assert {len(one["embedding"]) for one in data} == {1024}
        assert len(http.post("/api/embed", json={"model": "fast", "input": ["x"] * 40}).json()["embeddings"]) == 40


@pytest.mark.parametrize(
    "given",
    [
        *([], None, 1, True, {}, [[]], [1, "a"], ["a", 1], ["a", None], [["a"]], [[1.5]], [-1], [2**31], [[1], 2]),
        *([True], ["a"] * 2049, "x" * 64, ["ok", "x" * 64], [0, 99_999], [[97], [99_999]]),
    ],
    ids=lambda given: json.dumps(given)[:24],
)
def test_an_odd_input_is_a_400_that_names_it(http: httpx.Client, given: object) -> None:
    refused = http.post("/v1/embeddings", json={"input": given})
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["param"].startswith("input")


@pytest.mark.parametrize("given", ["", ["", "a"], "\x00", "é😀"])
def test_a_text_may_be_empty_or_strange(http: httpx.Client, given: object) -> None:
    assert http.post("/v1/embeddings", json={"input": given}).status_code == 200


def test_all_texts_together_have_a_bound(http: httpx.Client) -> None:
    refused = http.post("/v1/embeddings", json={"model": "vectors", "input": ["x" * 63] * 2048})
    assert refused.status_code == 200
    refused = http.post("/v1/embeddings", json={"input": "x" * (2 << 20)})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input[0]")


@pytest.mark.parametrize(
    "body",
    [
        {"query": "a"},
        {"query": "a", "documents": []},
        {"query": "a", "documents": "b"},
        {"query": "a", "documents": [1]},
        {"query": ["a"], "documents": ["b"]},
        {"query": "a", "documents": ["b"], "texts": ["b"]},
        {"query": "a", "texts": [{"text": "b"}]},
        {"query": "a", "documents": ["b"], "top_n": 0},
        {"query": "a", "documents": ["b", "x" * 64]},
    ],
)
def test_an_odd_request_to_rank_is_a_400(http: httpx.Client, body: dict[str, Any]) -> None:
    refused = http.post("/v1/rerank", json=body)
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["param"]


def test_figures_count_what_was_read(http: httpx.Client) -> None:
    series = 'tenuto_tokens_total{kind="computed",model="vectors"}'
    before = figure(http, series)
    usage = http.post("/v1/embeddings", json={"input": ["blue", "sky"]}).json()["usage"]
    assert usage == {"prompt_tokens": 9, "total_tokens": 9}
    assert figure(http, series) - before == 9

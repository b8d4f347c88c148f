"""LoRA adapters over HTTP: `base+adapter` is a model in every dialect, and comes and goes like any other."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server
from tests.patience import HANGS_S
from tests.pipelines.families import CHATML
from tests.pipelines.special_tokens import Specials
from tests.pipelines.tiny_adapter import tiny_adapter
from tests.pipelines.tiny_chat import tiny_chat

pytestmark = pytest.mark.slow

SETTINGS = ("--slots", "4", "--context", "512", "--default-tools", "none", "--host-cache-bytes", "1MiB")
NAMES = ("small", "small+terse", "small+rude")
COUNT = 12


def files(folder: Path) -> tuple[Path, tuple[str, ...]]:
    base = tiny_chat(folder / "small.gguf", CHATML, Specials(("<|im_start|>",), (), ("<|im_end|>",)))
    terse, rude = (tiny_adapter(folder / f"{seed}.gguf", base, seed=seed, strength=4) for seed in (1, 2))
    return base, ("--lora", f"terse={terse}", "--lora", f"rude={rude}@0.5")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("adapters")
    base, adapters = files(folder)
    server = Server(folder, str(base), (*adapters, *SETTINGS))
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def ask(http: httpx.Client, model: str, text: str = "hello", **more: Any) -> dict[str, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": COUNT}
    answer = http.post("/v1/chat/completions", json={**body, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def said(answer: dict[str, Any]) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


def state(http: httpx.Client, model: str) -> str:
    found: str = http.get(f"/v1/models/{model}").raise_for_status().json()["state"]
    return found


def test_each_adapter_answers_in_its_own_way_alone_and_beside_the_others(http: httpx.Client) -> None:
    alone = {name: said(ask(http, name)) for name in NAMES}
    assert len(set(alone.values())) == 3
    assert [ask(http, name)["model"] for name in NAMES] == [*NAMES]
    with ThreadPoolExecutor(9) as threads:
        asked = [*NAMES] * 3
        assert [said(answer) for answer in threads.map(lambda name: ask(http, name), asked)] == [
            alone[name] for name in asked
        ]


def test_a_session_goes_from_the_base_to_an_adapter_with_its_tokens_and_without_its_cache(http: httpx.Client) -> None:
    whole = {}
    for name in NAMES[:2]:
        session = f"s-{name.replace('+', '-')}"
        ask(http, "small", "one " * 30, session_id=session)
        whole[name] = ask(http, name, "two", session_id=session)
    base, adapted = (whole[name]["usage"] for name in NAMES[:2])
    assert base["prompt_tokens_details"]["cached_tokens"] > 0
    assert adapted["prompt_tokens_details"]["cached_tokens"] == 0
    assert base["prompt_tokens"] == adapted["prompt_tokens"]
    assert said(whole["small"]) != said(whole["small+terse"])
    back = ask(http, "small+terse", "three", session_id="s-small-terse")["usage"]
    assert back["prompt_tokens_details"]["cached_tokens"] > 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "who"}], "max_tokens": 2}),
        ("/v1/responses", {"input": "who", "max_output_tokens": 2}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "who"}], "max_tokens": 2}),
        ("/v1/completions", {"prompt": "x", "max_tokens": 2}),
        ("/api/chat", {"messages": [{"role": "user", "content": "who"}], "options": {"num_predict": 2}}),
        ("/api/generate", {"prompt": "who", "options": {"num_predict": 2}}),
        ("/api/show", {}),
    ],
)
def test_a_request_in_any_form_loads_the_adapter_that_it_names_and_no_other(
    http: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    http.post("/v1/models/small+terse/unload").raise_for_status()
    for name in ("small+terse", "openai/small+terse", "default+terse", "any-name+terse"):
        response = http.post(path, json={"model": name, **body})
        assert response.status_code == 200, response.text
    assert state(http, "small+terse") == "loaded"
    for name in ("small+none", "small+", "any-name+none", "small+terse+rude"):
        refused = http.post(path, json={"model": name, **body})
        assert refused.status_code == 404, refused.text
        assert "small+terse" in refused.text


def test_adapters_are_listed_with_their_base_and_where_they_stand(http: httpx.Client) -> None:
    http.post("/v1/models/small+rude/unload").raise_for_status()
    listed = {model["id"]: model for model in http.get("/v1/models").json()["data"]}
    assert [*listed] == [*NAMES]
    assert [listed[name].get("base") for name in NAMES] == [None, "small", "small"]
    assert listed["small+rude"]["state"] == "available"
    loaded = http.post("/v1/models/small+rude/load", json={"pin": True}).raise_for_status().json()
    assert (loaded["state"], loaded["pinned"], loaded["base"]) == ("loaded", True, "small")
    http.post("/v1/models/small+rude/load", json={"pin": False}).raise_for_status()
    tags = {model["name"]: model for model in http.get("/api/tags").json()["models"]}
    assert tags["small+rude"]["details"]["parent_model"] == "small"
    assert len({tags[name]["digest"] for name in NAMES}) == 3
    shown = http.post("/api/show", json={"model": "small+rude"}).json()
    assert shown["modelfile"] == "FROM small\nADAPTER rude\n"


def test_the_weights_are_counted_once(http: httpx.Client) -> None:
    for name in NAMES:
        ask(http, name)
    weights = min(model["size"] for model in http.get("/api/tags").json()["models"])
    each = [http.get(f"/v1/models/{name}").json()["bytes"] for name in NAMES]
    [held] = [
        float(line.rpartition(" ")[2])
        for line in http.get("/metrics").text.splitlines()
        if line.startswith('tenuto_models_bytes{kind="held"}')
    ]
    assert held == pytest.approx(sum(each) - 2 * weights, rel=0.01)


def test_a_new_version_of_the_base_takes_its_adapters_along(server: Server, http: httpx.Client) -> None:
    for name in NAMES[:2]:
        ask(http, name)
    http.post("/v1/models/small+rude/unload").raise_for_status()
    before = {name: said(ask(http, name)) for name in NAMES[:2]}
    specials = Specials(("<|im_start|>",), ("<tool_call>",), ("<|im_end|>",))
    better = tiny_chat(server.folder / "better.gguf", CHATML, specials)
    swapped = http.post("/v1/models/small/load", json={"swap": True, "source": str(better)})
    assert swapped.status_code == 200, swapped.text
    listed = {name: http.get(f"/v1/models/{name}").json() for name in NAMES}
    assert [listed[name]["version"] for name in NAMES] == [str(better)] * 3
    after = {name: said(ask(http, name)) for name in NAMES}
    assert all(after[name] != before[name] for name in before)
    http.post("/v1/models/small/load", json={"swap": True, "source": str(server.folder / "small.gguf")})
    assert {name: said(ask(http, name)) for name in NAMES[:2]} == before


def test_models_come_and_go_at_random_while_all_are_asked(http: httpx.Client, server: Server) -> None:
    expected = {name: said(ask(http, name)) for name in NAMES}
    chance = Random(7)
    commands = [(chance.choice(NAMES), chance.choice(("load", "unload", "unload"))) for _ in range(12)]

    def command(one: tuple[str, str]) -> None:
        with server.client() as client:
            assert client.post(f"/v1/models/{one[0]}/{one[1]}").status_code in (200, 409)

    def asked(name: str) -> str:
        with server.client(headers={"X-Number": name}) as client:
            return said(ask(client, name))

    with ThreadPoolExecutor(6) as threads:
        answers = [(name, threads.submit(asked, name)) for name in [*NAMES] * 8]
        changes = [threads.submit(command, one) for one in commands]
        assert all(answer.result(HANGS_S) == expected[name] for name, answer in answers)
        for change in changes:
            change.result(HANGS_S)
    for name in NAMES:
        http.post(f"/v1/models/{name}/unload").raise_for_status()
    metrics = http.get("/metrics").text
    assert 'tenuto_models_bytes{kind="held"} 0' in metrics
    assert server.process is not None
    maps = Path(f"/proc/{server.process.pid}/maps")
    if maps.exists():
        assert "small.gguf" not in maps.read_text()


def test_one_that_was_named_with_its_base_is_there_from_the_start(tmp_path: Path) -> None:
    base, adapters = files(tmp_path)
    server = Server(tmp_path, f"{base}+terse", (*adapters, *SETTINGS, "--model-memory", "64MiB"))
    try:
        with server.start().client() as http:
            assert state(http, "small+terse") == "loaded"
            assert ask(http, "default")["model"] == "small+terse"
    finally:
        server.close()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("terse=none.gguf", "fits no model here: there is no file"),
        ("terse={base}", "fits no model here: .* is no adapter"),
        ("terse={base}@0", "is not applied 0 times"),
        ("a+b={base}", "letters, digits"),
    ],
)
def test_an_adapter_that_is_none_ends_the_start_in_words(tmp_path: Path, given: str, words: str) -> None:
    base, _ = files(tmp_path)
    server = Server(tmp_path, str(base), ("--lora", given.format(base=base)))
    try:
        with pytest.raises(AssertionError, match=words):
            server.start()
    finally:
        server.close()

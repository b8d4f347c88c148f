"""POST /api/pull and DELETE /api/delete against a registry of the tests' own, with Ollama's client and without."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import ollama
import pytest

from tests.conftest import Start
from tests.e2e.server import Server
from tests.embedded import gguf_file
from tests.patience import HANGS_S
from tests.pipelines.model_store.servers import Files, serving

pytestmark = pytest.mark.slow

CONTENT = b"GGUF" + bytes(range(256)) * 1000


@pytest.fixture
def registry() -> Iterator[Files]:
    with serving(Files()) as server:
        server.add_ollama("library/tiny", {"model": CONTENT, "template": b"{{ .Prompt }}"})
        yield server


@pytest.fixture
def server(start: Start) -> Server:
    return start("--egress", "all", "--strict-model-names")


def stored(server: Server) -> list[Path]:
    return list((server.folder / ".cache" / "tenuto" / "models" / "store" / "models").glob("*/versions/*/files/*.gguf"))


def steps(response: httpx.Response) -> Iterator[dict[str, object]]:
    return (json.loads(line) for line in response.iter_lines())


def test_ollamas_client_pulls_a_model_and_deletes_it(server: Server, registry: Files) -> None:
    name = f"{registry.url}/library/tiny"
    client = ollama.Client(host=server.url)
    told = list(client.pull(name, stream=True))
    assert (told[0].status, told[-1].status) == ("pulling manifest", "success")
    completed = [each.completed for each in told if each.completed and each.total == len(CONTENT)]
    assert completed[-1] == len(CONTENT)
    assert completed == sorted(completed)
    [file] = stored(server)
    assert file.read_bytes() == CONTENT
    assert client.pull("tiny").status == "success"
    client.delete("tiny")
    assert stored(server) == []
    with pytest.raises(ollama.ResponseError, match="model 'tiny' not found") as refused:
        client.delete("tiny")
    assert refused.value.status_code == 404


def test_a_stored_model_is_shown_and_listed_without_being_loaded(server: Server, registry: Files) -> None:
    registry.add_ollama("library/real", {"model": gguf_file().read_bytes(), "license": b"MIT"})
    client = ollama.Client(host=server.url)
    client.pull(f"{registry.url}/library/real")
    client.pull(f"{registry.url}/library/tiny")
    tags = {each.model: each for each in client.list().models}
    real, tiny = tags["real"], tags["tiny"]
    assert real.details is not None
    assert tiny.details is not None
    assert (real.details.format, real.details.family, real.details.quantization_level) == ("gguf", "llama", "Q8_0")
    assert (real.size, len(real.digest or "")) == (gguf_file().stat().st_size + len(b"MIT"), 64)
    assert tiny.details.family == "", "its file is damaged, and it is listed all the same"
    shown = client.show("real")
    assert shown.modelinfo is not None
    assert (shown.modelinfo["general.architecture"], shown.capabilities) == ("llama", ["completion", "tools"])
    assert "messages" in (shown.template or "")
    assert shown.details is not None
    assert shown.details.parameter_size == real.details.parameter_size
    client.delete("tiny")
    assert "tiny" not in {each.model for each in client.list().models}
    assert [each.model for each in client.ps().models] == [server.client().get("/v1/models").json()["data"][0]["id"]]


def test_all_who_ask_for_a_model_follow_one_pull(server: Server, registry: Files) -> None:
    registry.stand_still_at = 100_000
    ends: list[dict[str, object]] = []

    def ask() -> None:
        with server.client() as http, http.stream("POST", "/api/pull", json={"model": name}) as response:
            ends.append([*steps(response)][-1])

    name = f"{registry.url}/library/tiny"
    threads = [threading.Thread(target=ask) for _ in range(3)]
    with server.client() as http, http.stream("POST", "/api/pull", json={"model": name}) as first:
        told = steps(first)
        assert next(step for step in told if step.get("completed") == 100_000)
        for thread in threads:
            thread.start()
        registry.go_on.set()
        for thread in threads:
            thread.join(HANGS_S)
        assert [*told][-1] == {"status": "success"}
    assert ends == [{"status": "success"}] * 3
    asked = [path for _, path, _ in registry.requests if "/cdn/" in path]
    assert len(asked) == len(set(asked)) == 2, registry.requests


def test_a_pull_ends_when_all_have_left_and_the_next_one_goes_on(server: Server, registry: Files) -> None:
    registry.stand_still_at, registry.waits_for_leaving = 100_000, True
    body = {"model": f"{registry.url}/library/tiny"}
    with server.client() as http, http.stream("POST", "/api/pull", json=body) as response:
        assert next(step for step in steps(response) if step.get("completed") == 100_000)
    assert registry.left.wait(HANGS_S)
    registry.stand_still_at = None
    with server.client() as http:
        # The server may still be ending the first one: what is told then is its end, and it is asked for again.
        for _ in range(100):
            if (answer := http.post("/api/pull", json={**body, "stream": False})).status_code == 200:
                break
    assert answer.json() == {"status": "success"}
    assert [wanted for _, path, wanted in registry.requests if "/cdn/" in path and wanted] == ["bytes=100000-"]


def test_what_goes_wrong_is_told_in_the_stream_and_in_the_status(server: Server, registry: Files) -> None:
    name = f"{registry.url}/library/none"
    with server.client() as http:
        streamed = [json.loads(line) for line in http.post("/api/pull", json={"model": name}).text.splitlines()]
        whole = http.post("/api/pull", json={"model": name, "stream": False})
        for wrong in ("a b", "hf:no", "ollama:"):
            assert http.post("/api/pull", json={"model": wrong}).status_code == 400
    assert "there is nothing at" in streamed[-1]["error"]
    assert whole.status_code == 500
    assert "there is nothing at" in whole.json()["error"]


def test_models_are_pulled_and_removed_for_admins_alone_and_as_the_settings_allow(
    start: Start, registry: Files
) -> None:
    keys = ('{"key": "boss", "admin": true}', '{"key": "guest"}')
    arguments = [word for key in keys for word in ("--keys", key)]
    guarded = start("--egress", "public", "--strict-model-names", *arguments)
    asked = [
        ("guest", "POST", "/api/pull", "tiny", 403, "only an admin pulls models"),
        ("guest", "DELETE", "/api/delete", "tiny", 403, "only an admin removes models"),
        ("boss", "POST", "/api/pull", f"{registry.url}/library/tiny", 403, "only from the Hugging Face Hub and"),
        ("boss", "POST", "/api/pull", "a b", 400, "is not of the form ollama:"),
        ("boss", "DELETE", "/api/delete", "../tiny", 400, "cannot be the name of a model"),
        ("boss", "DELETE", "/api/delete", "tiny", 404, "model 'tiny' not found"),
        ("guest", "POST", "/api/pull", "model", 200, "success"),
    ]
    for key, method, path, model, status, words in asked:
        with guarded.client(headers={"Authorization": f"Bearer {key}"}) as http:
            answer = http.request(method, path, json={"model": model})
        assert (answer.status_code, words in answer.text) == (status, True), answer.text
    assert registry.requests == []

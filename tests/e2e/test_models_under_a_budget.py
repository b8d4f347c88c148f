"""More models than a budget has room for, asked at random: every request is answered, and the budget always holds."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenuto.pipelines.loader import LoadSettings, found, layout_of
from tests.e2e.server import Server
from tests.pipelines.tiny_llama import tiny_llama

pytestmark = pytest.mark.slow

MODELS, ROOM, CLIENTS, ACTIONS = 5, 2, 4, 8
CACHE, HOST = 1 << 20, 1 << 18
LOOK_S = 0.05


class Client:
    """Acts at random, and may never be refused."""

    def __init__(self, server: Server, names: list[str], seed: int) -> None:
        self.server, self.names, self.chance = server, names, random.Random(seed)

    def act(self) -> int:
        with self.server.client() as http:
            for number in range(ACTIONS):
                action = self.chance.choice([self.chat, self.chat, self.session, self.leave, self.unload, self.load])
                action(http, self.chance.choice(self.names), number)
        return ACTIONS

    def body(self, model: str, **more: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": "hello"}]
        return {"model": model, "messages": messages, "max_tokens": self.chance.choice((2, 12)), **more}

    def chat(self, http: httpx.Client, model: str, _: int) -> None:
        right(http.post("/v1/chat/completions", json=self.body(model)))

    def session(self, http: httpx.Client, model: str, number: int) -> None:
        """Two turns, the second perhaps by another model."""
        session = f"s-{id(self)}-{number}"
        for name in (model, self.chance.choice(self.names)):
            right(http.post("/v1/chat/completions", json=self.body(name, session_id=session)))

    def leave(self, http: httpx.Client, model: str, _: int) -> None:
        with http.stream("POST", "/v1/chat/completions", json=self.body(model, stream=True)) as stream:
            assert stream.status_code == 200, stream.read()
            next(stream.iter_lines())

    def unload(self, http: httpx.Client, model: str, _: int) -> None:
        response = http.post(f"/v1/models/{model}/unload")
        assert response.status_code in (200, 409), response.text  # 409: it is being loaded

    def load(self, http: httpx.Client, model: str, _: int) -> None:
        right(http.post(f"/v1/models/{model}/load", json={}))


def right(response: httpx.Response) -> None:
    assert response.status_code == 200, f"{response.request.url}: {response.text}"


def unloaded(http: httpx.Client, model: str) -> dict[str, Any]:
    """Unload a model; where it is still being loaded for a client that has left, once it is loaded."""
    response = http.post(f"/v1/models/{model}/unload")
    if response.status_code == 409:
        right(http.post(f"/v1/models/{model}/load", json={}))
        response = http.post(f"/v1/models/{model}/unload")
    right(response)
    body: dict[str, Any] = response.json()
    return body


def figures(http: httpx.Client) -> dict[str, float]:
    lines = [line for line in http.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def total(found: dict[str, float], what: str) -> float:
    return sum(value for name, value in found.items() if name.startswith(f"tenuto_model_{what}_total"))


def test_no_request_fails_the_budget_holds_and_loads_and_unloads_add_up(tmp_path: Path) -> None:
    files = [tiny_llama(tmp_path / f"m{seed}.gguf", seed=seed) for seed in range(MODELS)]
    source, settings = found(str(files[0]), LoadSettings(cache_bytes=CACHE, host_cache_bytes=HOST, budget=1 << 30))
    layout = layout_of(source, settings, is_alone=True)
    assert layout is not None
    budget = ROOM * layout.total
    words = [word for file in files[1:] for word in ("--model", str(file))]
    words += ["--load", "request", "--model-memory", str(budget)]
    words += ["--cache-bytes", str(CACHE), "--host-cache-bytes", str(HOST)]
    server = Server(tmp_path, str(files[0]), tuple(words))
    held: list[float] = []
    over = threading.Event()

    def look() -> None:
        with server.client() as http:
            while not over.wait(LOOK_S):
                held.append(figures(http)['tenuto_models_bytes{kind="held"}'])

    try:
        server.start()
        names = [file.stem for file in files]
        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            looking = pool.submit(look)
            try:
                acts = [pool.submit(Client(server, names, seed).act) for seed in range(CLIENTS)]
                assert [act.result() for act in acts] == [ACTIONS] * CLIENTS
            finally:
                over.set()
            looking.result()
        with server.client() as http:
            for name in names:
                assert unloaded(http, name)["state"] == "available"
            after = figures(http)
    finally:
        server.close()
    assert held
    assert max(*held, after['tenuto_models_bytes{kind="most_held"}']) <= budget
    assert after['tenuto_models_bytes{kind="held"}'] == 0
    assert total(after, "loads") == total(after, "unloads") > MODELS
    assert "still holds" not in server.log

"""The engine's process ends in the middle of answers: clients see a pause, and the same text as without it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenuto.pipelines.model_store import LocalModel, ModelStore, pull
from tests.e2e.server import Server
from tests.patience import HANGS_S
from tests.pipelines.tiny_llama import tiny_llama
from tests.processes import children_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the processes of a server are told on Linux alone")

STREAMS = 16
CHILD = b"tenuto.runtime.engine.own_process.child"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path, "embedded:gguf", ("--slots", "8", "--default-tools", "none"), whole=True)
    try:
        yield running.start()
    finally:
        running.close()


def engines(server: Server) -> list[int]:
    """The processes of a server's engines."""
    assert server.process is not None
    return [id for id in children_of(server.process.pid) if CHILD in Path(f"/proc/{id}/cmdline").read_bytes()]


def body(number: int) -> dict[str, Any]:
    said = f"Tell me a long story about the number {number}, a bridge, and {number + 1} ducks."
    return {"messages": [{"role": "user", "content": said}], "max_tokens": 200, "temperature": 0, "stream": True}


class Stream:
    """An answer that is read as it comes."""

    def __init__(self, number: int) -> None:
        self.number, self.text, self.ends = number, "", list[str]()
        self.began = asyncio.Event()

    async def read(self, client: httpx.AsyncClient) -> None:
        async with client.stream("POST", "/v1/chat/completions", json=body(self.number)) as answer:
            assert answer.status_code == httpx.codes.OK
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                told = json.loads(line.removeprefix("data: "))
                assert "error" not in told, told
                for choice in told["choices"]:
                    self.text += choice["delta"].get("content") or ""
                    self.ends += [choice["finish_reason"]] if choice["finish_reason"] else []
                if self.text:
                    self.began.set()


async def test_sixteen_streams_go_on_after_the_end_of_their_engine(server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=HANGS_S, limits=httpx.Limits()) as client:
        streams = [Stream(number) for number in range(STREAMS)]
        reads = [asyncio.create_task(one.read(client)) for one in streams]
        await asyncio.gather(*(one.began.wait() for one in streams[:4]))
        [engine] = engines(server)
        os.kill(engine, signal.SIGABRT)
        await asyncio.gather(*reads)
        assert all(one.text and len(one.ends) == 1 for one in streams)
        metrics = (await client.get("/metrics")).text
        assert 'tenuto_engine_restarts_total{model="embedded"} 1.0' in metrics
        assert (await client.get("/health")).status_code == httpx.codes.OK
        [other] = engines(server)
        assert other != engine


async def test_an_engine_ends_with_its_server_that_is_killed(server: Server) -> None:
    [engine] = engines(server)
    server.kill()
    async with asyncio.timeout(HANGS_S):
        while os.path.exists(f"/proc/{engine}"):  # noqa: ASYNC110, ASYNC240, PTH110
            await asyncio.sleep(0.01)


async def test_signals_of_a_terminal_leave_the_engine_to_its_server(server: Server) -> None:
    [engine] = engines(server)
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(engine, each)
    async with httpx.AsyncClient(base_url=server.url, timeout=HANGS_S) as client:
        stream = Stream(1)
        await stream.read(client)
        assert stream.text
        assert 'tenuto_engine_restarts_total{model="embedded"} 0.0' in (await client.get("/metrics")).text
    assert engines(server) == [engine]


async def test_the_engine_of_a_stored_model_is_begun_again_with_the_version_that_it_had(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / ".cache" / "tenuto" / "models")
    for seed in (1, 2):
        (tmp_path / f"{seed}").mkdir()
    pull(store, LocalModel(tiny_llama(tmp_path / "1" / "small.gguf", seed=1)), "small")
    server = Server(tmp_path, "small", ("--default-tools", "none"))
    try:
        server.start()
        async with httpx.AsyncClient(base_url=server.url, timeout=HANGS_S) as client:

            async def said() -> str:
                question = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 12, "temperature": 0}
                answer = await client.post("/v1/chat/completions", json=question)
                text: str = answer.raise_for_status().json()["choices"][0]["message"]["content"]
                return text

            before = await said()
            pull(store, LocalModel(tiny_llama(tmp_path / "2" / "small.gguf", seed=2)), "small")
            [engine] = engines(server)
            os.kill(engine, signal.SIGABRT)
            assert await said() == before
    finally:
        server.close()


async def test_a_server_whose_engine_hangs_ends_after_a_signal(tmp_path: Path) -> None:
    flags = ("--slots", "2", "--default-tools", "none", "--shutdown-s", "1")
    server = Server(tmp_path, "embedded:gguf", flags, whole=True).start()
    try:
        [engine] = engines(server)
        async with httpx.AsyncClient(base_url=server.url, timeout=HANGS_S) as client:
            os.kill(engine, signal.SIGSTOP)
            asked = {**body(1), "session_id": "hung"}
            async with client.stream("POST", "/v1/chat/completions", json=asked) as answer:
                run = answer.headers["x-tenuto-run-id"]
                assert server.process is not None
                server.process.send_signal(signal.SIGTERM)
                code = await asyncio.to_thread(server.ended)
                lines = [line async for line in answer.aiter_lines()]
        assert code == 0, server.log
        assert not os.path.exists(f"/proc/{engine}")  # noqa: ASYNC240, PTH110
        assert "data: [DONE]" in lines
        server.start()
        with server.client() as http:
            assert http.get(f"/v1/runs/{run}").json()["status"] == "interrupted"
            again = http.post("/v1/chat/completions", json={**body(2), "session_id": "hung", "stream": False})
            assert again.json()["choices"][0]["message"]["content"]
    finally:
        server.close()

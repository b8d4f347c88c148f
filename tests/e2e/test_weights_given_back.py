"""Unloading gives a model's weights back at once, whatever was asked of it: nothing of a request holds them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.server import Server
from tests.patience import HANGS_S
from tests.pipelines.tiny_llama import tiny_llama

pytestmark = pytest.mark.slow

MESSAGES = [{"role": "user", "content": "hello"}]
TOOL = {"name": "add", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}
TOOLS = [{"type": "function", "function": TOOL}]
BOTH = {"tools": TOOLS, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": True}}}
SHORT: dict[str, Any] = {"max_tokens": 24, "messages": MESSAGES}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("weights")
    server = Server(folder, str(tiny_llama(folder / "tiny.gguf", context=4096)), ("--load", "request"))
    try:
        yield server.start()
    finally:
        server.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", SHORT),
        ("/v1/chat/completions", {**SHORT, "stream": True}),
        ("/v1/chat/completions", {**SHORT, "session_id": "kept"}),
        ("/v1/chat/completions", {**SHORT, "tools": TOOLS, "tool_choice": "required"}),
        ("/v1/chat/completions", {**SHORT, "tools": TOOLS}),
        ("/v1/chat/completions", {**SHORT, "response_format": {"type": "json_object"}}),
        ("/v1/chat/completions", {**SHORT, "chat_template_kwargs": {"enable_thinking": False}}),
        ("/v1/chat/completions", {**SHORT, "logprobs": True, "stop": ["x"], "seed": 1}),
        ("/v1/chat/completions/input_tokens", {"messages": MESSAGES}),
        ("/v1/responses", {"input": "hello", "max_output_tokens": 24}),
        ("/v1/messages", SHORT),
        ("/v1/completions", {"prompt": "hello", "max_tokens": 4}),
        ("/v1/completions", {"prompt": "hello", "suffix": "x", "max_tokens": 4}),
        ("/api/chat", {"messages": MESSAGES, "options": {"num_predict": 4}}),
        ("/api/show", {}),
        ("/tokenize", {"content": "hello"}),
        ("/apply-template", {"messages": MESSAGES}),
    ],
)
def test_nothing_of_a_request_holds_the_weights_of_an_unloaded_model(
    server: Server, path: str, body: dict[str, Any]
) -> None:
    with server.client() as http:
        response = http.post(path, json={"model": "tiny", **body})
        assert response.status_code == 200, response.text
        assert http.post("/v1/models/tiny/unload").json()["state"] == "available"
    assert "still holds" not in server.log
    assert "tiny.gguf" not in _maps(server)


def test_a_request_that_was_refused_holds_no_weights(server: Server) -> None:
    for body in ({"max_tokens": 8, "messages": [{"role": "user", "content": "x" * 9000}]}, {**SHORT, **BOTH}):
        with server.client() as http:
            assert http.post("/v1/chat/completions", json={"model": "tiny", **body}).status_code == 400
            assert http.post("/v1/models/tiny/unload").json()["state"] == "available"
    assert "still holds" not in server.log


def test_a_stream_that_is_left_holds_no_weights(server: Server) -> None:
    body = {"model": "tiny", "messages": MESSAGES, "stream": True, "max_tokens": 400}
    with server.client() as http:
        with http.stream("POST", "/v1/chat/completions", json=body) as stream:
            next(line for line in stream.iter_lines() if line.startswith("data: "))  # it is loaded
        assert http.post("/v1/models/tiny/unload").json()["state"] == "available"
    assert "still holds" not in server.log


async def test_what_an_mcp_client_has_asked_holds_no_weights(server: Server) -> None:
    async with (
        httpx2.AsyncClient(timeout=HANGS_S) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http), read_timeout_seconds=HANGS_S) as client,
    ):
        answer = await client.call_tool("chat", {"message": "hello", "model": "tiny", "max_tokens": 4})
        assert not answer.is_error, answer
        unloaded = await http.post(f"{server.url}/v1/models/tiny/unload")
        assert unloaded.json()["state"] == "available"
    assert "still holds" not in server.log


def _maps(server: Server) -> str:
    assert server.process is not None
    maps = Path(f"/proc/{server.process.pid}/maps")
    return maps.read_text() if maps.exists() else ""

"""Servers that hang while a message names something of theirs: who leaves frees its place, and no one takes all."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.e2e.server import Server, script
from tests.faults.test_questions import until
from tests.mcp.behind import WAYS, ways
from tests.mcp.test_attached import ask, resource, user

pytestmark = pytest.mark.slow

OF_ONE = 4
"""The places that one principal can have at a server."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("waiting")
    lines = [f'{{name = "{name}", key = "{name}", person = true}}' for name in ("ann", "bob")]
    (folder / "tenuto.toml").write_text(f"keys = [{', '.join(lines)}]\n")
    with ways(timeout_s=600) as entries:
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
        arguments = ("--mcp-config", str(folder / "mcp.json"), "--config", str(folder / "tenuto.toml"))
        running = Server(folder, script(folder / "model.json"), arguments)
        try:
            yield running.start()
        finally:
            running.close()


def client(server: Server, name: str) -> httpx.Client:
    return server.client(headers={"Authorization": f"Bearer {name}"})


def waiting(server: Server, name: str, path: str, body: dict[str, Any]) -> socket.socket:
    """A request that its client can leave, once the server has taken it up: it reads nothing before the answer."""
    told = json.dumps(body).encode()
    address = urlsplit(server.url)
    connection = socket.create_connection((address.hostname, address.port))
    head = f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {name}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(told)}\r\n\r\n"
    connection.sendall(head.encode() + told)
    return connection


def hanging(server: Server, way: str) -> int:
    """How many readings of `memo://slow` are under way at the MCP server."""
    with client(server, "bob") as http:
        answer = http.post("/v1/mcp/resources/read", json={"server": way, "uri": "memo://hanging"})
        return int(answer.raise_for_status().json()["contents"][0]["text"])


def slow(way: str) -> dict[str, Any]:
    return resource("memo://slow", way)


BODIES: dict[str, tuple[str, Any]] = {
    "whole": ("/v1/chat/completions", lambda way: {"messages": [user(slow(way))]}),
    "streamed": ("/v1/chat/completions", lambda way: {"messages": [user(slow(way))], "stream": True}),
    "choices": ("/v1/chat/completions", lambda way: {"messages": [user(slow(way))], "n": 2}),
    "response": ("/v1/responses", lambda way: {"model": "scripted", "input": [user(slow(way))]}),
    "message": (
        "/v1/messages",
        lambda way: {"model": "scripted", "max_tokens": 9, "messages": [user(slow(way))]},
    ),
    "ollama": (
        "/api/chat",
        lambda way: {"model": "scripted", "messages": [{"role": "user", "content": "hi", "attach": [slow(way)]}]},
    ),
    "conversation": ("/v1/conversations", lambda way: {"items": [user(slow(way))]}),
    "count": ("/v1/responses/input_tokens", lambda way: {"model": "scripted", "input": [user(slow(way))]}),
    "reading": ("/v1/mcp/resources/read", lambda way: {"server": way, "uri": "memo://slow"}),
}


@pytest.mark.parametrize("form", BODIES)
def test_who_leaves_while_a_server_hangs_waits_for_nothing_more(form: str, server: Server) -> None:
    path, body = BODIES[form]
    way = WAYS[0]
    with ExitStack() as held:
        for _ in range(OF_ONE + 1):
            held.enter_context(waiting(server, "ann", path, body(way)))
        until(lambda: hanging(server, way) == OF_ONE)
    until(lambda: hanging(server, way) == 0)
    with client(server, "ann") as http:
        assert ask(http, user(resource(f"memo://after-{form}", way)))["choices"]


def test_who_waits_leaves_places_to_others(server: Server) -> None:
    way = WAYS[3]
    path, body = BODIES["whole"]
    with ExitStack() as held:
        for _ in range(3 * OF_ONE):
            held.enter_context(waiting(server, "ann", path, body(way)))
        until(lambda: hanging(server, way) == OF_ONE)
        with client(server, "bob") as http:
            assert ask(http, user(resource("memo://bobs", way)))["choices"]


def test_a_stream_says_that_it_is_alive_while_a_server_is_read(server: Server) -> None:
    with waiting(server, "ann", *_of("streamed")) as connection:
        said = b""
        while b": the model" not in said:
            piece = connection.recv(4096)
            assert piece, said
            said += piece
    assert said.startswith(b"HTTP/1.1 200")


def _of(form: str) -> tuple[str, dict[str, Any]]:
    path, body = BODIES[form]
    return path, body(WAYS[1])

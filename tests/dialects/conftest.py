from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.e2e.server import Server, script
from tests.patience import HANGS_S

RULES: list[Mapping[str, Any]] = [
    {"user": "slow", "text": "tick " * 400, "delay_ms": 20},
    {"user": "break", "text": "half of it", "fail": "sampler", "fail_at": 5},
    {"user": "think", "reasoning": "let me see", "text": "done"},
    {
        "user_matches": "weather in (?P<city>[A-Z]\\w+)",
        "calls": [{"name": "weather", "arguments": {"city": "${city}"}}],
    },
    {
        "user": "both",
        "text": "Two things.",
        "calls": [
            {"name": "calculator__evaluate", "arguments": {"expression": "12 * 7"}},
            {"name": "weather", "arguments": {"city": "Ulm"}},
        ],
    },
    {"user": "the sky over Bonn", "calls": [{"name": "mcp__git__weather", "arguments": {"city": "Bonn"}}]},
    {"user_contains": "12 * 7", "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "12 * 7"}}]},
    {"tool": "84", "text": "That makes 84."},
    {"tool_contains": "denied", "text": "Then not: ${tool}"},
    {"tool_contains": "sun", "text": "Take a hat: ${tool}"},
]


@contextmanager
def scripted(folder: Path) -> Iterator[Server]:
    """A server that follows RULES, with a model that embeds and one that ranks; stopped afterwards."""
    running = served(folder).start()
    yield running
    running.close()


def served(folder: Path) -> Server:
    """That server, not started."""
    embeds = script(folder / "vectors.json", cells=64, embeds={"width": 8, "fail_contains": "break"})
    ranks = script(folder / "ranks.json", cells=64, embeds={"ranks": True})
    chats = script(folder / "model.json", RULES, cells=4096, slots=8)
    return Server(folder, chats, ("--model", embeds, "--model", ranks))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all dialects; every test uses sessions of its own."""
    with scripted(tmp_path_factory.mktemp("dialects")) as running:
        yield running


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    """A plain client."""
    with server.client() as client:
        yield client


@pytest.fixture
def openai_client(server: Server) -> Iterator[openai.OpenAI]:
    """The official client, as its users make it, but that it tries once."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=HANGS_S) as client:
        yield client

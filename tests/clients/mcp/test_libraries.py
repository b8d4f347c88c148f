"""Libraries that speak MCP, as they are published: tools, a chat with progress, a person's word, a cancel, the rest."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.mcp.serving import DRIVERS, ERAS, TRANSPORTS, printed, serving, target
from tests.e2e.server import Server, environment
from tests.third_party.installed import modules_from_npm, new_node, programs_from_npm, python_with

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(900)]

PYTHON = {
    "mcp-1": ("python_sdk.py", "mcp", "1.30.0"),
    "fastmcp-2": ("fastmcp_client.py", "fastmcp", "2.14.7"),
    "fastmcp-4": ("fastmcp_client.py", "fastmcp", "4.2.3"),
    "langchain": ("langchain_tools.py", "langchain-mcp-adapters", "0.3.2"),
    "pydantic-ai": ("pydantic_toolset.py", "pydantic-ai-slim[mcp]", "2.68.0"),
}
NPM = {"npm-1": ("1", "@modelcontextprotocol/sdk", "1.32.2"), "npm-2": ("2", "@modelcontextprotocol/client", "2.4.0")}
SPOKEN = {"fastmcp-4": ERAS, "npm-2": ERAS, "pydantic-ai": ("auto",)}
"""What each speaks, if it is not the older protocol alone."""
CASES = [(name, era) for name in (*PYTHON, *NPM) for era in SPOKEN.get(name, ("legacy",))]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("mcp-clients").resolve()) as running:
        yield running


def driven(name: str, where: dict[str, Any]) -> dict[str, Any]:
    """What came of a client's every step."""
    if name in PYTHON:
        driver, package, version = PYTHON[name]
        command = [python_with(package, version), str(DRIVERS / driver)]
    else:
        generation, package, version = NPM[name]
        folder: Path = modules_from_npm(package, version)
        command = [new_node(), str(DRIVERS / "npm_sdk.mjs"), generation, str(folder)]
    made: dict[str, Any] = json.loads(printed([*command, json.dumps(where)]).splitlines()[-1])
    return made


def through_mcp_remote(server: Server, **more: str) -> dict[str, Any]:
    """Where a client that only starts programs finds the server: behind the proxy that carries stdio to HTTP."""
    node, programs = programs_from_npm("mcp-remote", "0.15.1")
    arguments = [str(programs / "mcp-remote"), f"{server.url}/mcp", "--allow-http"]
    return {"command": str(node / "node"), "args": arguments, "env": environment(server.folder), **more}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("name", "era"), CASES)
def test_a_library_does_with_the_server_what_mcp_has(server: Server, name: str, era: str, transport: str) -> None:
    session = f"{name}-{era}-{transport}-{os.urandom(4).hex()}"
    expect_all(driven(name, target(server, transport, era=era, session=session)), session)


@pytest.mark.parametrize("name", ["mcp-1", "npm-1"])
def test_mcp_remote_carries_all_of_it(server: Server, name: str) -> None:
    session = f"{name}-remote-{os.urandom(4).hex()}"
    expect_all(driven(name, through_mcp_remote(server, era="legacy", session=session)), session)


def expect_all(made: dict[str, Any], session: str) -> None:
    """Each step of a driver came to what it comes to with any client."""
    assert {"chat", "session_get", "run_resume", "many__echo", "calculator__evaluate"} <= {*made["tools"]}
    assert (made["said"]["text"], made["said"]["session_id"], made["said"]["status"]) == (
        "Hello, Ann.",
        session,
        "completed",
    )
    assert "".join(made["seen"]) == made["told"] == "word " * 60 + "end"
    assert len(made["seen"]) > 1, "the text comes while it is written"
    (call,) = made["approved"]["tool_calls"]
    assert (made["approved"]["text"], call["name"], call["status"]) == ("It said hi.", "many__echo", "completed")
    assert made["after_cancel"] == "next", "the cancelled call let its session go"
    assert f"session://{session}" in made["resources"]
    assert "Hello, Ann." in made["transcript"]
    assert made["prompts"] == ["review"]
    assert made["prompt"] == ["You review a change in rust. Be kind.", "Show me the change."]

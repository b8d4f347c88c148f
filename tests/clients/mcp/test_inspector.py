"""The Inspector's command line, in both eras, over HTTP and stdio. Its strict check finds nothing."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.mcp.serving import RUN_S, TRANSPORTS, serving, target
from tests.e2e.server import Server, environment
from tests.third_party.installed import new_node, programs_from_npm

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(900)]

ERAS = ("legacy", "modern")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("inspector").resolve()) as running:
        yield running


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def inspected(server: Server, transport: str, era: str, *options: str) -> tuple[Any, str]:
    """What it prints of a method's result, and what it complains of."""
    _, programs = programs_from_npm("@modelcontextprotocol/inspector", "2.12.0")
    where = target(server, transport)
    at = [where["url"], "--transport", "http"] if transport == "http" else [where["command"], *where["args"]]
    command = [new_node(), str(programs / "mcp-inspector"), "--cli", *at, "--protocol-era", era, *options]
    done = subprocess.run(
        command,
        env={**environment(server.folder), "MCP_CATALOG_PATH": str(server.folder / "catalog.json")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("era", ERAS)
def test_its_strict_check_of_the_tools_has_no_errors_and_no_warnings(server: Server, transport: str, era: str) -> None:
    listed, complaints = inspected(server, transport, era, "--method", "tools/list", "--strict")
    assert {"chat", "models_list", "many__echo"} <= {tool["name"] for tool in listed["tools"]}
    assert not [word for word in ("warning", "error") if word in complaints.lower()], complaints


@pytest.mark.parametrize("era", ERAS)
def test_it_chats_and_reads_the_session(server: Server, transport: str, era: str) -> None:
    session = f"inspector-{os.urandom(4).hex()}"
    words = ("--tool-arg", "message=hello", "--tool-arg", f"session_id={session}")
    said, _ = inspected(server, transport, era, "--method", "tools/call", "--tool-name", "chat", *words)
    assert (said["structuredContent"]["text"], said["structuredContent"]["session_id"]) == ("Hello, Ann.", session)
    listed, _ = inspected(server, transport, era, "--method", "resources/list")
    assert f"session://{session}" in {one["uri"] for one in listed["resources"]}
    read, _ = inspected(server, transport, era, "--method", "resources/read", "--uri", f"session://{session}")
    assert "Hello, Ann." in read["contents"][0]["text"]
    templates, _ = inspected(server, transport, era, "--method", "resources/templates/list")
    assert "session://{id}" in {one["uriTemplate"] for one in templates["resourceTemplates"]}


@pytest.mark.parametrize("era", ERAS)
def test_it_fills_in_a_prompt(server: Server, transport: str, era: str) -> None:
    listed, _ = inspected(server, transport, era, "--method", "prompts/list")
    assert [prompt["name"] for prompt in listed["prompts"]] == ["review"]
    words = ("--prompt-name", "review", "--prompt-args", "language=rust", "style=kind")
    filled, _ = inspected(server, transport, era, "--method", "prompts/get", *words)
    assert filled["messages"][0]["content"]["text"] == "You review a change in rust. kind"

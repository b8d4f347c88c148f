"""What a server behind asks before it fills a prompt is answered by the client that wants it, in both eras."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp.types as t
import pytest
from mcp.shared.exceptions import MCPError

from tests.e2e.forked import tool_server
from tests.e2e.server import Server, script
from tests.mcp.test_handles import connected, way

__all__ = ["way"]  # a fixture
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("first")
    entry = {**tool_server(Path(__file__).parent / "prompting.py"), "sampling": "allow"}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"shy": entry}}))
    server = Server(folder, script(folder / "model.json"), ("--mcp-config", str(folder / "mcp.json")))
    try:
        yield server.start()
    finally:
        server.close()


class Person:
    """Whoever sits before the client."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
        self.asked.append(params.message)
        return t.ElicitResult(action="accept", content={"name": "Ann"})


async def test_a_person_is_asked_before_a_prompt_is_filled(way: tuple[str, str], owner: Server) -> None:
    person = Person()
    async with connected(owner, *way, elicitation_callback=person) as client:
        found = await client.get_prompt("shy__person")
    assert isinstance(found.messages[0].content, t.TextContent)
    assert found.messages[0].content.text == "accept {'name': 'Ann'}"
    assert person.asked == ["shy asks: Who?"]


async def test_what_cannot_be_asked_is_refused_at_once(way: tuple[str, str], owner: Server) -> None:
    async with connected(owner, *way) as client:
        with pytest.raises(MCPError, match="shy asks something first, and the client can show nobody a form"):
            await client.get_prompt("shy__person")
    person = Person()
    async with connected(owner, *way, elicitation_callback=person) as client:
        with pytest.raises(MCPError, match="sampling/createMessage first, which is not relayed"):
            await client.get_prompt("shy__model")
        with pytest.raises(MCPError, match="shy asks something first"):
            await client.read_resource("mcp://shy/memo://a")
    assert person.asked == []


def test_over_http_nobody_is_asked(owner: Server) -> None:
    with owner.client() as http:
        answer = http.post("/v1/mcp/prompts/get", json={"server": "shy", "name": "person"})
    assert answer.is_error
    assert "shy asks something first" in answer.text

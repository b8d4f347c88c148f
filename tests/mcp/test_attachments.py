"""What servers behind say of their tools, and what these answer, reaches MCP clients as it was."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import MCPError
from mcp.types import INVALID_PARAMS

from tests.e2e.forked import tool_server
from tests.e2e.server import Server, script
from tests.mcp import carrying
from tests.mcp.conftest import ERAS
from tests.mcp.test_handles import connected

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("mode", ERAS),
    pytest.mark.parametrize("transport", ["http", "stdio"]),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("carrying")
    config = {**tool_server(Path(carrying.__file__)), "permission": "auto"}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"far": config}}))
    running = Server(folder, script(folder / "model.json"), ("--mcp-config", str(folder / "mcp.json"))).start()
    yield running
    running.close()


async def test_all_content_of_a_result_is_relayed(transport: str, mode: str, server: Server) -> None:
    async with connected(server, transport, mode) as client:
        result = await client.call_tool("far__carry", {})
    assert result.content == carrying.CONTENT
    assert result.structured_content == {"arguments": {}}
    assert {**(result.meta or {}), **carrying.META} == result.meta
    told_of = (result.meta or {}).get("io.modelcontextprotocol/serverInfo", {"name": "tenuto"})
    assert told_of["name"] == "tenuto", "the server that the client speaks to"


async def test_all_that_a_tool_says_of_itself_is_relayed(transport: str, mode: str, server: Server) -> None:
    async with connected(server, transport, mode) as client:
        (tool,) = (each for each in (await client.list_tools()).tools if each.name == "far__carry")
    said, own = tool, carrying.CARRY
    assert (said.title, said.description, said.icons, said.meta) == (own.title, own.description, own.icons, own.meta)
    assert said.annotations is not None
    assert own.annotations is not None
    assert (said.annotations.title, said.annotations.read_only_hint) == ("Carrying", True)


async def test_null_for_an_argument_that_need_not_be_there_is_none(transport: str, mode: str, server: Server) -> None:
    async with connected(server, transport, mode) as client:
        result = await client.call_tool("far__carry", {"how": None})
        chat = await client.call_tool("chat", {"message": "x", "session_id": None, "temperature": None})
    assert result.structured_content == {"arguments": {}}
    assert not chat.is_error


async def test_a_tool_that_there_is_not_is_an_error_of_the_protocol(transport: str, mode: str, server: Server) -> None:
    async with connected(server, transport, mode) as client:
        with pytest.raises(MCPError, match="'far__fly'") as refused:
            await client.call_tool("far__fly", {})
    assert refused.value.code == INVALID_PARAMS

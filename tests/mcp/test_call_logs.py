"""What the server of a tool logs in a call that a client makes itself reaches that client, at the level it wants."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp.types as t
import pytest
from mcp import Client
from mcp.types import LOG_LEVEL_META_KEY

from tests.e2e.forked import tool_server
from tests.e2e.server import Server, script
from tests.mcp.conftest import ERAS
from tests.mcp.test_handles import connected, way
from tests.mcp.test_logs import Heard

__all__ = ["way"]  # a fixture
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*logging")]

SERVERS = Path(__file__).parent.parent / "tools" / "servers"


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("call-logs")
    entry = {
        **tool_server(SERVERS / "telling.py"),
        "env": {"KEY": "a-very-secret-key"},
        "permission": "auto",
    }
    entries = {f"telling-{era}": {**entry, "era": era} for era in ("legacy", "modern")}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    server = Server(folder, script(folder / "model.json"), ("--mcp-config", str(folder / "mcp.json")))
    try:
        yield server.start()
    finally:
        server.close()


async def call(client: Client, mode: str, level: t.LoggingLevel | None, tool: str) -> None:
    meta: Any = None
    if level is not None and mode == "legacy":
        await client.set_logging_level(level)
    elif level is not None:
        meta = {LOG_LEVEL_META_KEY: level}
    await client.call_tool(tool, {}, meta=meta)


async def nobody(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
    return t.ElicitResult(action="decline")


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("options", [{}, {"elicitation_callback": nobody}], ids=["mute", "can-answer"])
async def test_messages_come_by_the_level_that_is_wanted_and_without_secrets(
    options: dict[str, Any], era: str, way: tuple[str, str], owner: Server
) -> None:
    heard, tool = Heard(), f"telling-{era}__work"
    transport, mode = way
    async with connected(owner, transport, mode, logging_callback=heard.hear, **options) as client:
        await call(client, mode, "error", tool)
        assert heard.messages == []
        await call(client, mode, "warning", tool)
    [message] = heard.messages
    assert (message.level, message.logger) == ("warning", "tenuto.call")
    assert message.data == {"event": "tool_told", "name": tool, "text": 'worker: {"key": "***"}'}


@pytest.mark.parametrize("mode", ERAS)
async def test_a_server_that_chatters_is_told_in_part(mode: str, owner: Server) -> None:
    heard = Heard()
    async with connected(owner, "http", mode, logging_callback=heard.hear) as client:
        await call(client, mode, "info", "telling-modern__chatter")
        assert 50 <= len(heard.messages) < 2000
        assert max(len(message.data["text"]) for message in heard.messages) < 2100
        await call(client, mode, "info", "telling-modern__work")
    assert "left_out" not in heard.messages[-1].data


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_of_the_newer_protocol_that_wants_none_gets_none(mode: str, owner: Server) -> None:
    heard = Heard()
    async with connected(owner, "http", mode, logging_callback=heard.hear) as client:
        await call(client, mode, None, "telling-modern__work")
    assert len(heard.messages) == (mode == "legacy")

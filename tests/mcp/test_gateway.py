"""The servers behind, as MCP clients see them: under names of their servers, by what is configured for whom."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp.types as t
import pytest
from mcp import Client
from mcp.server.subscriptions import PromptsListChanged
from mcp.shared.exceptions import MCPError

from tenuto.errors import ConfigurationError
from tenuto.tools.mcp_config import parse_mcp_config
from tests.e2e.forked import tool_server
from tests.e2e.server import Server, script
from tests.mcp.conftest import ERAS
from tests.mcp.test_handles import connected
from tests.mcp.test_http import text_of

OFFERING = Path(__file__).parent / "offering.py"


def entry(**more: Any) -> dict[str, Any]:
    return {**tool_server(OFFERING), "permission": "auto", "timeout_s": 20, **more}


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with four behind it: one is open, one is shown in part and to Ann alone, one not at all, and one keeps
    its URIs."""
    folder = tmp_path_factory.mktemp("gateway")
    shown = {"tools": ["change"], "prompts": ["greet"], "resources": ["memo://?"], "keys": ["ann"]}
    servers = {
        "open": entry(),
        "part": entry(gateway={**shown, "names": {"change": "alter", "greet": "hello"}}),
        "shut": entry(gateway=False),
        "kept": entry(gateway={"schemes": ["memo"]}),
    }
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (folder / "tenuto.toml").write_text(
        'keys = [{name = "ann", key = "ann", person = true}, {name = "bob", key = "bob"}]\n'
    )
    server = Server(
        folder,
        script(folder / "model.json"),
        ("--mcp-config", str(folder / "mcp.json"), "--config", str(folder / "tenuto.toml")),
    )
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture(params=[(transport, mode) for transport in ("http", "stdio") for mode in ERAS], ids="-".join)
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    chosen: tuple[str, str] = request.param
    return chosen


async def seen(client: Client) -> dict[str, list[str]]:
    """What of the servers behind a client sees."""
    found = {
        "tools": [each.name for each in (await client.list_tools()).tools],
        "prompts": [each.name for each in (await client.list_prompts()).prompts],
        "resources": [each.uri for each in (await client.list_resources()).resources],
        "templates": [each.uri_template for each in (await client.list_resource_templates()).resource_templates],
    }
    ours = ("open", "part", "shut", "alter", "hello", "mcp:")
    return {kind: [name for name in names if name.startswith(ours)] for kind, names in found.items()}


async def read(client: Client, uri: str) -> str:
    (contents,) = (await client.read_resource(uri)).contents
    assert isinstance(contents, t.TextResourceContents)
    assert contents.uri == uri
    return contents.text


@pytest.mark.slow
async def test_each_principal_sees_what_is_shown_to_it(owner: Server) -> None:
    async with connected(owner, key="ann") as client:
        anns = await seen(client)
    async with connected(owner, key="bob") as client:
        bobs = await seen(client)
        for refused in ("part__change", "alter", "shut__change"):
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool(refused, {})
        for uri in ("mcp://part/memo://a", "mcp://shut/memo://a", "mcp://nobody/memo://a"):
            with pytest.raises(MCPError, match="there is no resource"):
                await client.read_resource(uri)
        with pytest.raises(MCPError, match="there is no prompt 'hello'"):
            await client.get_prompt("hello", {"who": "Ann"})
    assert bobs == {
        "tools": ["open__change", "open__quiet"],
        "prompts": ["open__greet", "open__hidden"],
        "resources": ["mcp://open/memo://a", "mcp://open/memo://secret"],
        "templates": ["mcp://open/memo://{name}"],
    }
    assert {kind: names[len(bobs[kind]) :] for kind, names in anns.items()} == {
        "tools": ["alter"],
        "prompts": ["hello"],
        "resources": ["mcp://part/memo://a"],
        "templates": [],
    }


@pytest.mark.slow
async def test_a_server_behind_is_read_filled_completed_and_called(way: tuple[str, str], owner: Server) -> None:
    async with connected(owner, *way) as client:
        texts = [await read(client, f"mcp://{name}") for name in ("open/memo://a", "open/memo://b", "part/memo://a")]
        filled = await client.get_prompt("open__greet", {"who": "Ann"})
        renamed = await client.get_prompt("hello", {"who": "Bob"})
        reference = t.PromptReference(name="hello")
        argument = await client.complete(reference, {"name": "who", "value": "B"})
        template = t.ResourceTemplateReference(uri="mcp://open/memo://{name}")
        name = await client.complete(template, {"name": "name", "value": "x"})
        called = await client.call_tool("alter", {})
    assert texts == ["the text of memo://a", "the text of memo://b", "the text of memo://a"]
    assert isinstance(filled.messages[0].content, t.TextContent)
    assert filled.messages[0].content.text == "Greet Ann"
    assert isinstance(filled.messages[1].content, t.EmbeddedResource)
    assert filled.messages[1].content.resource.uri == "mcp://open/memo://a"
    assert isinstance(renamed.messages[0].content, t.TextContent)
    assert renamed.messages[0].content.text == "Greet Bob"
    assert argument.completion.values == ["B-PromptReference"]
    assert name.completion.values == ["x-ResourceTemplateReference"]
    assert text_of(called) == "changed"
    assert isinstance(called.content[1], t.ResourceLink)
    assert called.content[1].uri == "mcp://part/memo://a"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("mcp://part/memo://secret", "there is no resource"),
        ("mcp://open/memo://none", "there is no resource"),
        ("mcp://open/" + "x" * 5000, "there is no resource"),
        ("mcp://../memo://a", "there is no resource"),
        ("mcp://open/", "there is no resource"),
    ],
)
async def test_what_is_hidden_or_is_not_there_cannot_be_read(
    uri: str, told: str, way: tuple[str, str], owner: Server
) -> None:
    async with connected(owner, *way) as client:
        with pytest.raises(MCPError, match=told) as refused:
            await client.read_resource(uri)
        with pytest.raises(MCPError, match="who is missing"):
            await client.get_prompt("open__greet", {})
    assert refused.value.code == t.INVALID_PARAMS


@pytest.mark.slow
async def test_a_client_hears_of_prompts_that_came(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"open": entry()}}))
    server = Server(tmp_path, script(tmp_path / "model.json"), ("--mcp-config", str(tmp_path / "mcp.json")))
    try:
        server.start()
        async with connected(server, "stdio") as client, client.listen(prompts_list_changed=True) as news:
            await client.call_tool("open__change", {})
            while "open__later" not in [each.name for each in (await client.list_prompts()).prompts]:
                assert isinstance(await anext(aiter(news)), PromptsListChanged)
    finally:
        server.close()


@pytest.mark.slow
async def test_a_server_keeps_the_uris_of_the_schemes_that_it_claims(way: tuple[str, str], owner: Server) -> None:
    async with connected(owner, *way) as client:
        listed = [each.uri for each in (await client.list_resources()).resources]
        templates = [each.uri_template for each in (await client.list_resource_templates()).resource_templates]
        assert await read(client, "memo://b") == "the text of memo://b"
        assert await read(client, "mcp://open/memo://b") == "the text of memo://b"
        with pytest.raises(MCPError, match="there is no resource 'memo://none'"):
            await client.read_resource("memo://none")
        template = t.ResourceTemplateReference(uri="memo://{name}")
        name = await client.complete(template, {"name": "name", "value": "x"})
        called = await client.call_tool("kept__change", {})
    assert {"memo://a", "mcp://open/memo://a"} < set(listed)
    assert {"memo://{name}", "mcp://open/memo://{name}"} < set(templates)
    assert name.completion.values == ["x-ResourceTemplateReference"]
    assert isinstance(called.content[1], t.ResourceLink)
    assert called.content[1].uri == "memo://a"


def test_a_scheme_is_one_servers_and_none_of_ours() -> None:
    entries = {name: {"command": "x", "gateway": {"schemes": ["Memo"]}} for name in ("one", "other")}
    with pytest.raises(ConfigurationError, match=r"'other': gateway\.schemes: 'memo' is that of 'one' already"):
        parse_mcp_config(json.dumps({"mcpServers": entries}), "mcp.json")
    for wrong in ("session", "HTTPS", "mcp", "memo:", "memo://", "", "1a", "a b"):
        text = json.dumps({"mcpServers": {"x": {"command": "x", "gateway": {"schemes": [wrong]}}}})
        with pytest.raises(ConfigurationError, match="scheme"):
            parse_mcp_config(text, "mcp.json")


def test_a_gateway_entry_that_is_none_is_refused() -> None:
    for wrong in ({"tool": True}, {"names": {"a": "no spaces here"}}, "open", {"keys": "ann"}):
        text = json.dumps({"mcpServers": {"x": {"command": "x", "gateway": wrong}}})
        with pytest.raises(ConfigurationError, match="gateway"):
            parse_mcp_config(text, "mcp.json")

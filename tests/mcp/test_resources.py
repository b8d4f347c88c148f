"""Runs and models as resources beside sessions: listed, completed, read and heard of, by whom they belong to alone."""

import json
from typing import Any

import mcp.types as t
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tenuto.errors import InvalidRequest
from tenuto.runtime.mcp.paging import Source, paged, whole
from tenuto.runtime.mcp.uris import ModelName, RunName, SessionName, model_uri, named
from tests.e2e.server import Server
from tests.mcp.test_handles import WEATHER, connected, owner, way
from tests.mcp.test_http import answer_of
from tests.mcp.test_news import Told
from tests.patience import HANGS_S

__all__ = ["HANGS_S", "owner", "way"]  # fixtures
pytestmark = [pytest.mark.filterwarnings("ignore:resources/subscribe")]

RUN = "session://{id}/runs/{run}"


async def read(client: Client, uri: str) -> dict[str, Any]:
    (contents,) = (await client.read_resource(uri)).contents
    assert isinstance(contents, t.TextResourceContents)
    found: dict[str, Any] = json.loads(contents.text)
    return found


async def completed(client: Client, template: str, name: str, value: str, **known: str) -> list[str]:
    reference = t.ResourceTemplateReference(uri=template)
    found = await client.complete(reference, {"name": name, "value": value}, known or None)
    return found.completion.values


@pytest.mark.slow
async def test_a_run_is_found_by_completion_and_read(way: tuple[str, str], owner: Server) -> None:
    id = f"runs-{'-'.join(way)}"
    async with connected(owner, *way) as client:
        first = answer_of(await client.call_tool("chat", {"message": "one", "session_id": id}))["run_id"]
        second = answer_of(await client.call_tool("chat", {"message": "two", "session_id": id}))["run_id"]
        runs = await completed(client, RUN, "run", "run_", id=id)
        none = await completed(client, RUN, "run", "run_", id="nobodys")
        shown = await read(client, f"session://{id}/runs/{first}")
        with pytest.raises(MCPError) as elsewhere:
            await client.read_resource(f"session://other/runs/{first}")
    assert (runs, none) == ([second, first], [])
    assert (shown["id"], shown["session_id"], shown["status"], shown["text"]) == (first, id, "completed", "one")
    assert elsewhere.value.error.code == t.INVALID_PARAMS


@pytest.mark.slow
async def test_a_model_is_listed_completed_and_read(way: tuple[str, str], owner: Server) -> None:
    async with connected(owner, *way) as client:
        listed = (await client.list_resources()).resources
        found = await completed(client, "model://{id}", "id", "mod")
        shown = await read(client, "model://model")
        with pytest.raises(MCPError) as missing:
            await client.read_resource("model://%2e%2e%2fetc")
    assert "model://model" in [each.uri for each in listed]
    assert found == ["model"]
    assert (shown["id"], shown["state"]) == ("model", "loaded")
    assert missing.value.error.data == {"uri": "model://%2e%2e%2fetc"}


@pytest.mark.slow
async def test_everything_of_ours_has_a_title_and_a_picture(way: tuple[str, str], owner: Server) -> None:
    async with connected(owner, *way) as client:
        tools = [each for each in (await client.list_tools()).tools if "__" not in each.name]
        listed = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
        info = client.server_info
    assert info is not None
    shown: list[t.Tool | t.Resource | t.ResourceTemplate | t.Implementation] = [*tools, *listed, *templates, info]
    for each in shown:
        assert each.title, each
        assert each.icons, each
        assert each.icons[0].src.startswith("data:image/svg+xml,"), each


@pytest.mark.slow
async def test_a_run_is_heard_of_by_its_own_principal_alone(way: tuple[str, str], owner: Server) -> None:
    transport, mode = way
    told = Told()
    options: dict[str, Any] = {"message_handler": told.hear} if mode == "legacy" else {}
    async with connected(owner, transport, mode, **options) as client:
        paused = answer_of(await client.call_tool("chat", {"message": "weather", "tools": [WEATHER]}))
        uri = f"session://{paused['session_id']}/runs/{paused['run_id']}"
        result = {"tool_call_id": paused["pause"]["calls"][0]["id"], "content": "sunny"}
        resume = {"run_id": paused["run_id"], "results": [result]}
        if mode == "legacy":
            await client.subscribe_resource(uri)
            await client.call_tool("run_resume", resume)
            await told.until(uri)
        else:
            async with client.listen(resource_subscriptions=[uri]) as news:
                await client.call_tool("run_resume", resume)
                async for event in news:
                    assert getattr(event, "uri", None) == uri
                    break
        for foreign in ("session://x/runs/run_none", "model://model", "file:///etc/passwd"):
            await expect_refused(client, mode, foreign)
    async with connected(owner, mode=mode, key="other") as other:
        await expect_refused(other, mode, uri)


async def expect_refused(client: Client, mode: str, uri: str) -> None:
    with pytest.raises(MCPError) as refused:
        await (client.subscribe_resource(uri) if mode == "legacy" else _listen(client, uri))
    assert refused.value.error.code == t.INVALID_PARAMS


async def _listen(client: Client, uri: str) -> None:
    async with client.listen(resource_subscriptions=[uri]):
        pass


def test_what_a_uri_names() -> None:
    assert named("session://a.b") == SessionName("a.b")
    assert named("session://a/runs/run_1") == RunName("a", "run_1")
    assert (
        named(model_uri("hf:some/model:Q8 ü")) == named("model://hf:some/model:Q8 ü") == ModelName("hf:some/model:Q8 ü")
    )
    for foreign in (
        "session://",
        "session://a/b",
        "session://a\n",
        "session://a/runs/",
        "session://a/runs/b/c",
        "model://",
    ):
        assert named(foreign) is None


async def test_pages_go_over_all_sources_and_leave_nothing_out() -> None:
    sources: list[Source[int]] = [whole("a", range(3)), whole("b", ()), whole("c", range(3, 10))]
    for limit in range(1, 12):
        found: list[int] = []
        cursor: str | None = None
        for _ in range(20):
            page, cursor = await paged(sources, cursor, limit)
            assert len(page) <= limit
            found += page
            if cursor is None:
                break
        assert (found, cursor) == (list(range(10)), None)


@pytest.mark.parametrize(
    "cursor", ["", "a", "x:1", "a:-1", "a:x", "a:99", "a:99999999999999999999", "a:٣", ":", "a:1:2"]
)
async def test_a_forged_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidRequest, match="the cursor is not valid"):
        await paged([whole("a", range(3)), whole("b", range(3))], cursor, 2)

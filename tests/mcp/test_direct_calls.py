"""A tool that asks, called by a client itself: a person may, everybody else is asked or refused. In both eras."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp.types as t
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.forked import program, tool_server
from tests.e2e.server import Server, environment, script
from tests.mcp.conftest import ERAS
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

MANY = Path(__file__).parent.parent / "tools" / "servers" / "many.py"
KEYS = '[[keys]]\nkey = "hers"\nname = "ada"\nperson = true\n[[keys]]\nkey = "her-agents"\nname = "ada"\n'
YES = t.ElicitResult(action="accept", content={"approve": True})

Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a tool that needs a person's word, one that is denied, and two keys."""
    folder = tmp_path_factory.mktemp("direct")
    many = {**tool_server(MANY), "permission": {"echo": "ask", "*": "deny"}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"many": many}}))
    (folder / "tenuto.toml").write_text(KEYS)
    server = Server(folder, script(folder / "model.json"), ("--mcp-config", str(folder / "mcp.json")))
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture(params=ERAS)
def connect(request: pytest.FixtureRequest, asking: Server) -> Connect:
    """Connects with a key, in either era."""

    @asynccontextmanager
    async def connected(key: str, **options: Any) -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=HANGS_S) as http,
            Client(
                streamable_http_client(f"{asking.url}/mcp", http_client=http),
                mode=request.param,
                cache=None,
                read_timeout_seconds=20,
                **options,
            ) as client,
        ):
            yield client

    return connected


def said(result: t.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, t.TextContent)
    return block.text


async def test_a_tool_that_asks_is_not_called_for_a_program_that_nobody_stands_behind(connect: Connect) -> None:
    async with connect("her-agents") as client:
        result = await client.call_tool("many__echo", {"text": "hi"})
    assert result.is_error
    for setting in ("person = true", "[[keys]]", '"permission"', "elicitation"):
        assert setting in said(result)


async def test_a_person_who_calls_a_tool_has_approved_it(connect: Connect) -> None:
    async with connect("hers") as client:
        assert said(await client.call_tool("many__echo", {"text": "hi"})) == "hi"


async def test_who_starts_a_program_on_stdio_is_a_person(asking: Server) -> None:
    command, *arguments = program("mcp", "--data-dir", str(asking.data_dir))
    target = StdioServerParameters(command=command, args=arguments, env=environment(asking.folder))
    async with Client(target, cache=None, read_timeout_seconds=60) as client:
        assert said(await client.call_tool("many__echo", {"text": "hi"})) == "hi"


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (YES, "hi"),
        (t.ElicitResult(action="accept", content={"approve": False}), "The user denied this tool call."),
        (t.ElicitResult(action="decline"), "The user denied this tool call."),
        (t.ElicitResult(action="cancel"), "nothing was decided, so many__echo was not called"),
    ],
)
async def test_the_person_behind_a_program_is_asked(reply: t.ElicitResult, text: str, connect: Connect) -> None:
    questions: list[str] = []

    async def person(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
        questions.append(params.message)
        return reply

    async with connect("her-agents", elicitation_callback=person) as client:
        result = await client.call_tool("many__echo", {"text": "hi"})
        assert said(result) == text
        assert result.is_error is (text != "hi")
        assert (await client.call_tool("clock__now", {"timezone": "UTC"})).is_error is False, (
            "what does not ask is called unasked"
        )
    (question,) = questions
    assert "many__echo" in question
    assert '"hi"' in question


async def test_nobody_is_asked_about_what_is_denied(connect: Connect) -> None:
    async def person(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
        raise AssertionError("asked")

    for key in ("hers", "her-agents"):
        async with connect(key, elicitation_callback=person) as client:
            result = await client.call_tool("many__fails", {})
        assert "denied" in said(result)


async def test_a_persons_yes_is_none_to_another_call(asking: Server) -> None:
    async def person(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
        raise AssertionError("the question is answered by hand")

    async with (
        httpx2.AsyncClient(headers={"Authorization": "Bearer her-agents"}, timeout=HANGS_S) as http,
        Client(
            streamable_http_client(f"{asking.url}/mcp", http_client=http), cache=None, elicitation_callback=person
        ) as client,
    ):
        asked = await client.session.call_tool("many__echo", {"text": "hi"}, allow_input_required=True)
        assert isinstance(asked, t.InputRequiredResult)
        (name,) = asked.input_requests or {}

        async def repeat(text: str) -> t.CallToolResult:
            result = await client.session.call_tool(
                "many__echo", {"text": text}, input_responses={name: YES}, request_state=asked.request_state
            )
            assert isinstance(result, t.CallToolResult)
            return result

        with pytest.raises(MCPError, match="requestState") as refused:
            await repeat("something else")
        assert refused.value.code == t.INVALID_PARAMS
        assert said(await repeat("hi")) == "hi"

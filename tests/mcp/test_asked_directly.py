"""What a server behind Tenuto asks in a call that a client makes itself is answered by that client, in both eras."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import mcp.types as t
import pytest

from tests.e2e.forked import tool_server
from tests.e2e.server import Server, script
from tests.faults.test_mcp_servers import wait_until
from tests.mcp.conftest import ERAS
from tests.mcp.test_approval import connected

pytestmark = pytest.mark.slow

SERVERS = Path(__file__).parent.parent / "tools" / "servers"
BEHIND = ("legacy", "modern")
NEWEST = "2026-07-28"


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with others behind it that ask people and models."""
    folder = tmp_path_factory.mktemp("asked")
    entries = {
        f"{name}-{era}": {
            **tool_server(SERVERS / f"{name}.py"),
            "cwd": str(folder),
            "permission": "auto",
            "era": era,
            "sampling": "allow",
        }
        for name in ("asker", "sampler")
        for era in BEHIND
    }
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    server = Server(folder, script(folder / "model.json"), ("--mcp-config", str(folder / "mcp.json")))
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture(params=["http", "stdio"])
def transport(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=ERAS)
def mode(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=BEHIND)
def era(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def said(result: Any) -> str:
    assert isinstance(result, t.CallToolResult)
    (block,) = result.content
    assert isinstance(block, t.TextContent)
    return block.text


async def person(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
    is_form = isinstance(params, t.ElicitRequestFormParams)
    return t.ElicitResult(action="accept", content={"name": "Ann"} if is_form else None)


class Model:
    """A client's own model: it answers with what it was asked last, and calls what it can."""

    def __init__(self) -> None:
        self.asked: list[t.CreateMessageRequestParams] = []

    async def __call__(
        self,
        context: Any,
        params: t.CreateMessageRequestParams,
    ) -> t.CreateMessageResult | t.CreateMessageResultWithTools:
        self.asked.append(params)
        last: Any = params.messages[-1].content_as_list[-1]
        if params.tools and isinstance(last, t.TextContent):
            call = t.ToolUseContent(type="tool_use", id="1", name=params.tools[0].name, input={"a": 2, "b": 3})
            return t.CreateMessageResultWithTools(
                role="assistant", content=[call], model="theirs", stop_reason="toolUse"
            )
        if isinstance(last, t.ToolResultContent):
            (last,) = last.content
        text = t.TextContent(type="text", text=f"on {last.text}")
        return t.CreateMessageResult(role="assistant", content=text, model="theirs", stop_reason="endTurn")


async def test_the_person_behind_the_client_is_asked(asking: Server, transport: str, mode: Any, era: str) -> None:
    async with connected(asking, transport, mode, elicitation_callback=person) as client:
        assert said(await client.call_tool(f"asker-{era}__form", {})) == "accept name=Ann"
        assert said(await client.call_tool(f"asker-{era}__page", {})) == "accept"
        assert said(await client.call_tool(f"asker-{era}__two", {})).count("name=Ann") == 2


async def test_the_clients_model_is_asked(asking: Server, transport: str, mode: Any, era: str) -> None:
    model = Model()
    tools = t.SamplingCapability(tools=t.SamplingToolsCapability())
    async with connected(asking, transport, mode, sampling_callback=model, sampling_capabilities=tools) as client:
        assert said(await client.call_tool(f"sampler-{era}__say", {})) == "on capital? | endTurn"
        (asked,) = model.asked
        assert (asked.system_prompt, asked.temperature, asked.stop_sequences) == ("Be brief.", 0.0, ["!"])
        counted = said(await client.call_tool(f"sampler-{era}__count", {}))
    assert counted == "add {'a': 2, 'b': 3} | toolUse | on 5 | endTurn"
    assert [type(each) for each in model.asked[-1].messages[-1].content_as_list] == [t.ToolResultContent]


async def test_a_client_that_can_answer_nothing_is_told_that_nobody_was_asked(
    asking: Server, transport: str, mode: Any, era: str
) -> None:
    async with connected(asking, transport, mode) as client:
        for tool in (f"sampler-{era}__say", f"asker-{era}__form"):
            result = await client.call_tool(tool, {})
            assert result.is_error
            assert "asked" in said(result) or "can show nobody" in said(result)


async def test_tools_are_sampled_only_where_the_client_says_so(asking: Server, mode: Any, era: str) -> None:
    model = Model()
    async with connected(asking, "http", mode, sampling_callback=model) as client:
        result = await client.call_tool(f"sampler-{era}__count", {})
    assert result.is_error
    assert "does not let its model be asked this" in said(result)
    assert model.asked == []


async def test_an_answer_is_taken_once(asking: Server) -> None:
    async with connected(asking, "http", NEWEST, elicitation_callback=person) as client:
        ask: dict[str, Any] = {"name": "asker-legacy__form", "arguments": {}, "allow_input_required": True}
        asked = await client.session.call_tool(**ask)
        assert isinstance(asked, t.InputRequiredResult)
        (key,) = asked.input_requests or {}
        answer: t.InputResponses = {key: t.ElicitResult(action="accept", content={"name": "Ann"})}
        given = {**ask, "request_state": asked.request_state}
        assert "carries no answer" in said(await client.session.call_tool(**given))
        assert said(await client.session.call_tool(**given, input_responses=answer)) == "accept name=Ann"
        assert "is not under way any more" in said(await client.session.call_tool(**given, input_responses=answer))


async def test_many_calls_ask_at_once_and_each_gets_its_own_answer(asking: Server, mode: Any) -> None:
    heard: list[str] = []

    async def one(client: Any) -> None:
        heard.append(said(await client.call_tool("sampler-modern__say", {})))

    async with (
        connected(asking, "http", mode, sampling_callback=Model()) as client,
        anyio.create_task_group() as group,
    ):
        for _ in range(8):
            group.start_soon(one, client)
    assert heard == ["on capital? | endTurn"] * 8


async def test_a_client_that_does_not_answer_is_waited_for_no_longer_than_a_run_waits(tmp_path: Path) -> None:
    async def never(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
        await anyio.sleep_forever()
        raise AssertionError

    entry = {**tool_server(SERVERS / "asker.py"), "cwd": str(tmp_path), "permission": "auto"}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"asker": {**entry, "era": "legacy"}}}))
    arguments = ("--mcp-config", str(tmp_path / "mcp.json"), "--approval-expires-s", "1")
    server = Server(tmp_path, script(tmp_path / "model.json"), arguments)
    try:
        await anyio.to_thread.run_sync(server.start)
        async with connected(server, "http", "legacy", elicitation_callback=never) as client:
            assert "nobody answered within 1 s" in said(await client.call_tool("asker__form", {}))
    finally:
        server.close()


async def test_a_client_that_goes_away_takes_its_call_with_it(asking: Server) -> None:
    reached = anyio.Event()

    async def slow(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
        reached.set()
        await anyio.sleep_forever()
        raise AssertionError

    log = asking.folder / "asker.log"

    def cancelled() -> int:
        return log.read_text().count("cancelled form") if log.exists() else 0

    before = cancelled()
    async with connected(asking, "http", "legacy", elicitation_callback=slow) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "asker-legacy__form", {})
            await reached.wait()
            group.cancel_scope.cancel()
        await anyio.to_thread.run_sync(wait_until, lambda: cancelled() > before)

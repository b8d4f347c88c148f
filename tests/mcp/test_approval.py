import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
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
from tests.mcp.test_http import answer_of
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

MANY = Path(__file__).parent.parent / "tools" / "servers" / "many.py"
RULES: list[dict[str, Any]] = [
    {"user": "echo", "text": "Let me see. ", "calls": [{"name": "many__echo", "arguments": {"text": "hi"}}]},
    {"tool": "hi", "text": "It said hi."},
    {"tool_contains": "denied", "text": "I may not."},
]


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a tool that needs a person's word."""
    server = asking_in(tmp_path_factory.mktemp("asking"), permission="ask")
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture(scope="module")
def unsaid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One where nobody has said what the tool may do."""
    server = asking_in(tmp_path_factory.mktemp("unsaid"))
    try:
        yield server.start()
    finally:
        server.close()


def asking_in(folder: Path, **said: str) -> Server:
    """A server with a tool, and what its entry says of it; not started."""
    config = {"mcpServers": {"many": {**tool_server(MANY), **said}}}
    (folder / "mcp.json").write_text(json.dumps(config))
    return Server(folder, script(folder / "model.json", RULES, cells=32768), ("--mcp-config", str(folder / "mcp.json")))


@pytest.fixture(params=["http", "stdio"])
def transport(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@asynccontextmanager
async def connected(server: Server, transport: str, mode: str, **options: Any) -> AsyncIterator[Client]:
    if transport == "stdio":
        command, *arguments = program("mcp", "--data-dir", str(server.data_dir))
        target = StdioServerParameters(command=command, args=arguments, env=environment(server.folder))
        async with Client(target, mode=mode, cache=None, read_timeout_seconds=20, **options) as client:
            yield client
    else:
        async with (
            httpx2.AsyncClient(timeout=HANGS_S) as http,
            Client(
                streamable_http_client(f"{server.url}/mcp", http_client=http),
                mode=mode,
                cache=None,
                read_timeout_seconds=20,
                **options,
            ) as client,
        ):
            yield client


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(
    ("reply", "text", "status"),
    [
        (t.ElicitResult(action="accept", content={"approve": True}), "It said hi.", "completed"),
        (t.ElicitResult(action="accept", content={"approve": False}), "I may not.", "denied"),
        (t.ElicitResult(action="decline"), "I may not.", "denied"),
    ],
)
async def test_the_person_behind_the_client_is_asked(
    reply: t.ElicitResult, text: str, status: str, mode: str, transport: str, asking: Server
) -> None:
    questions: list[str] = []
    seen: list[str] = []

    async def person(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
        questions.append(params.message)
        return reply

    async def see(progress: float, total: float | None = None, message: str | None = None) -> None:
        if message and not message.startswith("["):
            seen.append(message)

    async with connected(asking, transport, mode, elicitation_callback=person) as client:
        answer = answer_of(await client.call_tool("chat", {"message": "echo"}, progress_callback=see))
    assert len(questions) == 1
    assert "many__echo" in questions[0]
    assert "hi" in questions[0]
    assert answer["text"] == "".join(seen)
    assert answer["text"].startswith("Let me see.")
    assert answer["text"].endswith(text)
    assert [(call["name"], call["status"]) for call in answer["tool_calls"]] == [("many__echo", status)]
    assert answer["status"] == "completed"


@pytest.mark.parametrize("mode", ERAS)
async def test_an_approval_for_the_session_is_asked_once(mode: str, asking: Server) -> None:
    questions: list[str] = []

    async def person(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
        questions.append(params.message)
        return t.ElicitResult(action="accept", content={"approve": True, "remember": True})

    async with connected(asking, "http", mode, elicitation_callback=person) as client:
        first = answer_of(await client.call_tool("chat", {"message": "echo"}))
        again = {"message": "echo", "session_id": first["session_id"]}
        assert answer_of(await client.call_tool("chat", again))["text"].endswith("It said hi.")
    assert len(questions) == 1


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("permission", ["ask", None])
async def test_a_client_that_can_ask_nobody_gets_the_pause_itself_and_can_resume_it(
    permission: str | None, mode: str, transport: str, asking: Server, unsaid: Server
) -> None:
    server = unsaid if permission is None else asking
    async with connected(server, transport, mode) as client:
        result = await client.call_tool("chat", {"message": "echo"})
        answer = answer_of(result)
        assert (answer["status"], answer["pause"]["reason"]) == ("paused", "approval")
        told = "".join(block.text for block in result.content[:2] if isinstance(block, t.TextContent))
        assert answer["pause"]["id"] in told
        assert answer["run_id"] in told
        resume = answer["pause"]["resume"]
        rest = answer_of(await client.call_tool(resume["tool"], {**resume["arguments"], "decision": "approve"}))
    assert rest["text"].endswith("It said hi.")


@pytest.mark.parametrize(
    ("elicitation", "waits_in"),
    [({}, "form"), ({"form": {}, "url": {}}, "form"), ({"url": {}}, "result"), (None, "result")],
)
def test_a_form_is_sent_only_to_a_client_that_shows_forms(
    elicitation: dict[str, Any] | None, waits_in: str, asking: Server
) -> None:
    """The SDK's client cannot say that it shows none."""
    version = "2026-07-28"
    capabilities = {} if elicitation is None else {"elicitation": elicitation}
    said = {"protocolVersion": version, "clientCapabilities": capabilities, "clientInfo": {"name": "x", "version": "1"}}
    meta = {f"io.modelcontextprotocol/{name}": value for name, value in said.items()}
    params = {"name": "chat", "arguments": {"message": "echo"}, "_meta": meta}
    headers = {"MCP-Protocol-Version": version, "Mcp-Method": "tools/call", "Mcp-Name": "chat"}
    accept = {"Accept": "application/json, text/event-stream"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    with asking.client() as http:
        result = http.post("/mcp", json=message, headers={**headers, **accept}).json()["result"]
    if waits_in == "form":
        assert result["resultType"] == "input_required"
    else:
        assert result["structuredContent"]["status"] == "paused"


YES = t.ElicitResult(action="accept", content={"approve": True})


async def nobody(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
    raise AssertionError("the question is answered by hand")


async def asked(client: Client, **more: Any) -> tuple[dict[str, Any], t.InputRequiredResult]:
    """A turn whose call waits for a person's word: its arguments, and the question."""
    arguments = {"message": "echo", **more}
    question = await client.session.call_tool("chat", arguments, allow_input_required=True)
    assert isinstance(question, t.InputRequiredResult)
    return arguments, question


async def answered(client: Client, arguments: dict[str, Any], state: str | None) -> t.CallToolResult:
    responses: dict[str, Any] = {"approval": YES}
    result = await client.session.call_tool("chat", arguments, input_responses=responses, request_state=state)
    assert isinstance(result, t.CallToolResult)
    return result


@pytest.mark.parametrize("state", ["not ours", '{"pause_id": "nobodys", "first": 1, "last": 1}', "v1.AAAA"])
async def test_an_answer_that_was_not_asked_for_is_refused(state: str, asking: Server) -> None:
    async with connected(asking, "http", "auto") as client:
        with pytest.raises(MCPError, match="requestState") as refused:
            await answered(client, {"message": "x"}, state)
    assert refused.value.code == t.INVALID_PARAMS


async def test_an_answer_is_none_to_another_call(transport: str, asking: Server) -> None:
    async with connected(asking, transport, "auto", elicitation_callback=nobody) as client:
        one, question = await asked(client, session_id=f"one-{transport}")
        other, others_question = await asked(client, session_id=f"other-{transport}")
        for arguments, state in ((one, others_question.request_state), (other, question.request_state)):
            with pytest.raises(MCPError, match="requestState"):
                await answered(client, arguments, state)
        tampered = f"{(question.request_state or '')[:-2]}AA"
        with pytest.raises(MCPError, match="requestState"):
            await answered(client, one, tampered)
        for arguments, state in ((one, question.request_state), (other, others_question.request_state)):
            assert answer_of(await answered(client, arguments, state))["text"].endswith("It said hi.")


async def test_a_question_can_be_answered_after_a_restart(tmp_path: Path) -> None:
    server = asking_in(tmp_path, permission="ask")
    try:
        server.start()
        async with connected(server, "http", "auto", elicitation_callback=nobody) as client:
            arguments, question = await asked(client)
        server.kill()
        server.start()
        async with connected(server, "http", "auto", elicitation_callback=nobody) as client:
            answer = answer_of(await answered(client, arguments, question.request_state))
    finally:
        server.close()
    assert answer["text"].endswith("It said hi.")
    assert answer["status"] == "completed"

"""Sessions, runs and models as tools and resources, in both eras, over HTTP and stdio."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp.types as t
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.e2e.forked import program, tool_server
from tests.e2e.server import Server, environment, script
from tests.mcp.conftest import ERAS, RULES
from tests.mcp.test_http import answer_of, text_of
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

MANY = Path(__file__).parent.parent / "tools" / "servers" / "many.py"
WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
ASKING: list[dict[str, Any]] = [
    {"user": "echo", "calls": [{"name": "many__echo", "arguments": {"text": "hi"}}]},
    {"tool": "hi", "text": "It said hi."},
    {"tool_contains": "denied", "text": "I may not: ${tool}"},
]


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two principals and a tool that needs a person's word."""
    folder = tmp_path_factory.mktemp("handles")
    config = {"mcpServers": {"many": {**tool_server(MANY), "permission": "ask"}}}
    (folder / "mcp.json").write_text(json.dumps(config))
    model = script(folder / "model.json", [*ASKING, *RULES], cells=32768)
    server = Server(folder, model, ("--mcp-config", str(folder / "mcp.json"), "--api-key", "other"))
    try:
        yield server.start()
    finally:
        server.close()


def secret(server: Server) -> str:
    """The local user's key."""
    from tenuto.runtime.data_folder.ownership import read_owner

    owner = read_owner(server.data_dir)
    assert owner is not None
    return owner.secret


@asynccontextmanager
async def connected(
    server: Server, transport: str = "http", mode: str = "auto", key: str | None = None, **options: Any
) -> AsyncIterator[Client]:
    if transport == "stdio":
        command, *arguments = program("mcp", "--data-dir", str(server.data_dir), "--model", server.model)
        target = StdioServerParameters(command=command, args=arguments, env=environment(server.folder))
        async with Client(target, mode=mode, cache=None, read_timeout_seconds=30, **options) as client:
            yield client
    else:
        headers = {"Authorization": f"Bearer {key or secret(server)}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=HANGS_S) as http,
            Client(
                streamable_http_client(f"{server.url}/mcp", http_client=http),
                mode=mode,
                cache=None,
                read_timeout_seconds=30,
                **options,
            ) as client,
        ):
            yield client


@pytest.fixture(params=[(transport, mode) for transport in ("http", "stdio") for mode in ERAS], ids="-".join)
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A transport and an era."""
    chosen: tuple[str, str] = request.param
    return chosen


async def test_a_session_is_listed_forked_and_deleted(way: tuple[str, str], owner: Server) -> None:
    id = f"kept-{'-'.join(way)}"
    async with connected(owner, *way) as client:
        await client.call_tool("chat", {"message": "one", "session_id": id})
        await client.call_tool("chat", {"message": "two", "session_id": id})
        page = answer_of(await client.call_tool("session_list", {"limit": 1}))
        fork = answer_of(await client.call_tool("session_fork", {"session_id": id, "at": 2, "new_id": f"{id}-fork"}))
        taken = await client.call_tool("session_fork", {"session_id": id, "new_id": f"{id}-fork"})
        rest = answer_of(await client.call_tool("session_list", {"after": f"{id}-fork", "limit": 1}))
        deleted = answer_of(await client.call_tool("session_delete", {"session_id": f"{id}-fork"}))
        gone = await client.call_tool("session_delete", {"session_id": f"{id}-fork"})
        answer_of(await client.call_tool("session_delete", {"session_id": id}))
    assert [each["id"] for each in page["data"]] == [id]
    assert page["data"][0]["num_items"] == 4
    assert (fork["num_items"], fork["parent"]) == (2, {"at": 2})
    assert text_of(taken) == f"conflict: there is a session '{id}-fork' already"
    assert [each["id"] for each in rest["data"]] == [id]
    assert deleted == {"id": f"{id}-fork", "object": "session.deleted", "deleted": True}
    assert text_of(gone) == f"not_found: there is no session '{id}-fork'"


async def test_a_run_that_waits_is_shown_and_resumed_with_results(way: tuple[str, str], owner: Server) -> None:
    seen: list[str] = []

    async def see(progress: float, total: float | None = None, message: str | None = None) -> None:
        seen.append(message or "")

    async with connected(owner, *way) as client:
        paused = answer_of(await client.call_tool("chat", {"message": "weather", "tools": [WEATHER]}))
        run = {"run_id": paused["run_id"]}
        waiting = answer_of(await client.call_tool("run_get", run))
        wrong = await client.call_tool("run_resume", {**run, "decision": "approve"})
        result = {"tool_call_id": paused["pause"]["calls"][0]["id"], "content": "sunny"}
        done = answer_of(await client.call_tool("run_resume", {**run, "results": [result]}, progress_callback=see))
        again = await client.call_tool("run_resume", {**run, "results": [result]})
        ended = answer_of(await client.call_tool("run_get", run))
    assert (waiting["status"], waiting["reason"]) == ("paused", "client_tool")
    assert text_of(wrong).endswith("waits for results of client tools, not for a decision")
    assert (done["run_id"], done["status"], done["text"]) == (paused["run_id"], "completed", "Sunny in Graz.")
    assert "".join(seen) == "Sunny in Graz."
    assert text_of(again) == f"conflict: the run {paused['run_id']} is not waiting: it is completed"
    assert ended["status"] == "completed"


@pytest.mark.parametrize(
    ("decision", "text"),
    [({"decision": "approve"}, "It said hi."), ({"decision": "deny", "message": "too loud"}, "I may not: ")],
)
async def test_a_run_that_waits_for_a_person_is_resumed_with_a_decision(
    decision: dict[str, str], text: str, way: tuple[str, str], owner: Server
) -> None:
    with owner.client(headers={"Authorization": f"Bearer {secret(owner)}"}) as http:
        body = {"messages": [{"role": "user", "content": "echo"}], "max_tool_rounds": 4, "match": "off"}
        state = http.post("/v1/chat/completions", json=body).raise_for_status().json()["tenuto"]
    assert state["status"] == "paused"
    async with connected(owner, *way) as client:
        wrong = await client.call_tool(
            "run_resume", {"run_id": state["run_id"], "results": [{"tool_call_id": "x", "content": "y"}]}
        )
        done = answer_of(await client.call_tool("run_resume", {"run_id": state["run_id"], **decision}))
    assert text_of(wrong).endswith("waits for a decision, not for results")
    assert done["status"] == "completed"
    assert done["text"].startswith(text)
    assert decision.get("message", "") in done["text"]


async def test_a_run_that_waits_is_cancelled(way: tuple[str, str], owner: Server) -> None:
    async with connected(owner, *way) as client:
        paused = answer_of(await client.call_tool("chat", {"message": "weather", "tools": [WEATHER]}))
        cancelled = answer_of(await client.call_tool("run_cancel", {"run_id": paused["run_id"]}))
        again = answer_of(await client.call_tool("run_cancel", {"run_id": paused["run_id"]}))
    assert cancelled["status"] == again["status"] == "cancelled"


async def test_the_models_are_listed(way: tuple[str, str], owner: Server) -> None:
    async with connected(owner, *way) as client:
        listed = answer_of(await client.call_tool("models_list", {}))
    assert [(model["id"], model["capabilities"]) for model in listed["data"]] == [
        ("model", ["chat", "completions", "tools"])
    ]


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("session_list", {"limit": 0}, "limit"),
        ("session_list", {"after": "nobodys"}, "nobodys"),
        ("session_fork", {}, "session_id"),
        ("session_fork", {"session_id": "x", "at": -1}, "at"),
        ("session_delete", {"session_id": "no spaces"}, "session_id"),
        ("run_get", {"run_id": "nobodys"}, "nobodys"),
        ("run_cancel", {"run_id": "nobodys"}, "nobodys"),
        ("run_cancel", {"run_id": 3}, "run_id"),
        ("run_resume", {"run_id": "x"}, "give one of decision, answer and results"),
        ("run_resume", {"run_id": "x", "decision": "maybe"}, "decision"),
        ("run_resume", {"run_id": "x", "results": []}, "results"),
        ("run_resume", {"run_id": "nobodys", "decision": "deny"}, "nobodys"),
        ("models_list", {"surprise": 1}, "surprise"),
    ],
)
async def test_wrong_arguments_are_told_in_words(
    tool: str, arguments: dict[str, Any], told: str, owner: Server
) -> None:
    async with connected(owner) as client:
        result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert told in text_of(result)


async def test_a_session_is_read_as_a_resource(way: tuple[str, str], owner: Server) -> None:
    id = f"read-{'-'.join(way)}"
    async with connected(owner, *way) as client:
        await client.call_tool("chat", {"message": "one", "session_id": id})
        templates = (await client.list_resource_templates()).resource_templates
        newest = (await client.list_resources()).resources[0]
        contents = (await client.read_resource(f"session://{id}")).contents[0]
        with pytest.raises(MCPError) as missing:
            await client.read_resource("session://nobodys")
        with pytest.raises(MCPError) as foreign:
            await client.read_resource("file:///etc/passwd")
        with pytest.raises(MCPError) as nowhere:
            await client.list_resources(cursor="nobodys")
    assert [each.uri_template for each in templates] == [
        "session://{id}",
        "session://{id}/runs/{run}",
        "model://{id}",
    ]
    assert (newest.uri, newest.name) == (f"session://{id}", id)
    assert isinstance(contents, t.TextResourceContents)
    assert [item["text"] for item in json.loads(contents.text)["items"]] == ["one", "one"]
    assert (missing.value.error.code, missing.value.error.data) == (t.INVALID_PARAMS, {"uri": "session://nobodys"})
    assert (foreign.value.error.code, foreign.value.error.data) == (t.INVALID_PARAMS, {"uri": "file:///etc/passwd"})
    assert nowhere.value.error.code == t.INVALID_PARAMS


async def test_resources_come_in_pages(owner: Server) -> None:
    with owner.client(headers={"Authorization": "Bearer other"}) as http:
        document = {"version": 1, "created_at": 1.0, "updated_at": 1.0, "items": []}
        for number in range(60):
            http.put(f"/v1/sessions/page-{number:02}", json=document).raise_for_status()
    async with connected(owner, key="other") as client:
        first = await client.list_resources()
        second = await client.list_resources(cursor=first.next_cursor)
    assert (len(first.resources), len(second.resources), second.next_cursor) == (50, 11, None)
    *sessions, model = (*first.resources, *second.resources)
    assert {each.name for each in sessions} == {f"page-{number:02}" for number in range(60)}
    assert model.uri == "model://model"


async def test_nobody_reads_or_touches_what_is_another_principals(owner: Server) -> None:
    async with connected(owner) as mine:
        await mine.call_tool("chat", {"message": "secret", "session_id": "mine"})
        paused = answer_of(await mine.call_tool("chat", {"message": "weather", "tools": [WEATHER]}))
    async with connected(owner, key="other") as other:
        with pytest.raises(MCPError) as refused:
            await other.read_resource("session://mine")
        for tool, arguments in (
            ("session_get", {"session_id": "mine"}),
            ("session_fork", {"session_id": "mine"}),
            ("session_delete", {"session_id": "mine"}),
            ("run_get", {"run_id": paused["run_id"]}),
            ("run_cancel", {"run_id": paused["run_id"]}),
            ("run_resume", {"run_id": paused["run_id"], "decision": "deny"}),
        ):
            result = await other.call_tool(tool, arguments)
            assert text_of(result).startswith("not_found: "), tool
        assert all(each.name != "mine" for each in (await other.list_resources()).resources)
    assert refused.value.error.code == t.INVALID_PARAMS

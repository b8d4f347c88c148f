"""Long calls as tasks, in both protocols that have them: they outlive their connections and the process."""

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx
import httpx2
import mcp.types as t
import pytest
from mcp import Client, MCPError
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client

from tenuto.runtime.mcp.tasks import MOST_AT_WORK
from tests.conftest import Start
from tests.e2e.forked import tool_server
from tests.e2e.server import Server, script
from tests.mcp.tasking import EXTENSION, RELATED, Modern, Refused, Tried
from tests.mcp.test_handles import connected, secret
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

MANY = Path(__file__).parent.parent / "tools" / "servers" / "many.py"
WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
LONG = "word " * 20 + "end"
RULES: list[dict[str, Any]] = [
    {"user": "long", "text": LONG, "delay_ms": 20},
    {"user": "endless", "text": "word " * 4000, "delay_ms": 20},
    {"user": "echo", "text": "Let me see. ", "calls": [{"name": "many__echo", "arguments": {"text": "hi"}}]},
    {"tool": "hi", "text": "It said hi."},
    {"tool_contains": "denied", "text": "I may not."},
    {"user": "weather", "calls": [{"name": "weather", "arguments": {"city": "Graz"}}]},
    {"tool_contains": "sunny", "text": "Sunny in Graz."},
    {"user": "break", "text": "x", "fail": "forward"},
]
APPROVE = {"action": "accept", "content": {"approve": True}}


def serving(folder: Path) -> Server:
    """A server where every call of chat is a task at once, and whose tool needs a person's word; not started."""
    config = {"mcpServers": {"many": {**tool_server(MANY), "permission": "ask"}}}
    (folder / "mcp.json").write_text(json.dumps(config))
    model = script(folder / "model.json", RULES, cells=32768)
    options = ("--mcp-config", str(folder / "mcp.json"), "--api-key", "other", "--task-after-s", "0")
    return Server(folder, model, options)


def open_run(server: Server, session: str) -> str | None:
    """The run that is at work in a session, or waits."""
    with server.client(headers={"Authorization": f"Bearer {secret(server)}"}) as http:
        sessions = http.get("/v1/sessions").json()["data"]
    return {each["id"]: each["open_run"] for each in sessions}.get(session)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = serving(tmp_path_factory.mktemp("tasks"))
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Server]:
    """One of a test's own, to be killed."""
    running = serving(tmp_path)
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture
def modern(server: Server) -> Iterator[Modern]:
    with Modern(server, secret(server)) as client:
        yield client


@pytest.fixture
def tried(server: Server) -> Iterator[Tried]:
    with Tried(server, secret(server), {"elicitation": {}}) as client:
        yield client


def said(task: dict[str, Any]) -> dict[str, Any]:
    """What a task's call came to."""
    answer: dict[str, Any] = task["result"]["structuredContent"]
    return answer


def code_of(client: Modern | Tried, method: str, **params: Any) -> int:
    """The code with which a request is refused."""
    with pytest.raises(Refused) as refused:
        client.ask(method, **params)
    code: int = refused.value.code
    return code


class Poll(ClientExtension):
    """A client of the SDK that follows tasks to their results."""

    identifier = EXTENSION

    class Made(t.Result):
        result_type: Literal["task"] = "task"
        task_id: str

    class Get(t.Request[t.GetTaskRequestParams, str]):
        method: str = "tasks/get"
        params: t.GetTaskRequestParams
        name_param = "taskId"

    class Got(t.Result):
        status: str
        result: dict[str, Any] | None = None

    def __init__(self) -> None:
        self.followed: list[str] = []

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Poll.Made, resolve=self._resolve)]

    async def _resolve(self, made: "Poll.Made", context: ClaimContext) -> t.CallToolResult:
        self.followed.append(made.task_id)
        request = Poll.Get(params=t.GetTaskRequestParams(task_id=made.task_id))
        while True:
            got = await context.session.send_request(request, Poll.Got)
            if got.result is not None:
                return t.CallToolResult.model_validate(got.result)
            await anyio.sleep(0.05)


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_client_of_the_sdk_follows_a_task_to_its_result(transport: str, server: Server) -> None:
    poll = Poll()
    async with connected(server, transport, extensions=[poll]) as client:
        result = await client.call_tool("chat", {"message": "long"})
        plain = await client.call_tool("session_list", {})
    assert len(poll.followed) == 1
    assert result.structured_content is not None
    assert (result.structured_content["status"], result.structured_content["text"]) == ("completed", LONG)
    assert not plain.is_error


async def test_a_client_on_stdio_has_tasks_only_if_it_says_so_and_cancels_them(server: Server) -> None:
    async with connected(server, "stdio") as client:
        answer = await client.call_tool("chat", {"message": "hello"})
    assert answer.structured_content is not None
    async with connected(server, "stdio", extensions=[Poll()]) as client:
        made = await client.session.call_tool("chat", {"message": "endless"}, allow_claimed=True)
        assert isinstance(made, Poll.Made)
        params = t.GetTaskRequestParams(task_id=made.task_id)
        await client.session.send_request(Poll.Get(method="tasks/cancel", params=params), t.EmptyResult)
        while (got := await client.session.send_request(Poll.Get(params=params), Poll.Got)).status == "working":
            pass
        with pytest.raises(MCPError) as unknown:
            await client.session.send_request(Poll.Get(params=t.GetTaskRequestParams(task_id="task_x")), Poll.Got)
    assert (got.status, unknown.value.error.code) == ("cancelled", t.INVALID_PARAMS)


def test_a_task_says_when_it_began_how_it_stands_and_what_came_of_it(modern: Modern) -> None:
    made = modern.chat("long")
    assert {"taskId", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"} <= made.keys()
    assert made["ttlMs"] == 24 * 3600 * 1000, "as long as a session that nobody has named"
    assert "result" not in modern.ask("tasks/get", taskId=made["taskId"])
    task = modern.over(made["taskId"])
    assert (task["status"], said(task)["text"], task["createdAt"]) == ("completed", LONG, made["createdAt"])
    assert task == modern.ask("tasks/get", taskId=made["taskId"])
    assert modern.chat("long", session_id="named-by-its-client")["ttlMs"] is None


def test_a_call_that_is_answered_soon_is_no_task(start: Start) -> None:
    with Modern(start("--task-after-s", "60")) as client:
        answered = client.chat("hello")
    assert (answered["resultType"], answered["structuredContent"]["text"]) == ("complete", "hello")


def test_a_client_that_leaves_before_it_has_a_task_ends_its_run(start: Start) -> None:
    server = start("--task-after-s", "60", rules=RULES)
    with Modern(server) as client, contextlib.suppress(httpx.ReadTimeout):
        params = {"name": "chat", "arguments": {"message": "endless", "session_id": "left"}}
        headers = Modern.headers("tools/call", params)
        client.http.post("/mcp", json=client.message("tools/call", params), headers=headers, timeout=1)
    with Modern(server) as client:
        # The session is free again as soon as the run has ended.
        while (answered := client.chat("hello", session_id="left"))["isError"]:
            assert answered["content"][0]["text"].startswith("session_busy: ")
    assert answered["structuredContent"]["text"] == "hello"


def test_what_a_client_without_the_extension_calls_is_no_task_and_tasks_are_not_for_it(
    server: Server, modern: Modern
) -> None:
    id = modern.task("long")
    with Modern(server, secret(server), {}) as plain:
        assert plain.chat("hello")["resultType"] == "complete"
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            with pytest.raises(Refused) as refused:
                plain.ask(method, taskId=id, inputResponses={})
            assert (refused.value.code, refused.value.data) == (
                -32021,
                {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
            )
        with pytest.raises(Refused) as refused:
            plain.ask("subscriptions/listen", notifications={"taskIds": [id]})
        assert refused.value.code == -32021


def test_a_task_goes_on_where_it_was_after_kill_nine(mortal: Server) -> None:
    with Modern(mortal, secret(mortal)) as client:
        id = client.task("long", session_id="killed")
        with mortal.client(headers={"Authorization": f"Bearer {secret(mortal)}"}) as http:
            run = open_run(mortal, "killed")
            with http.stream("GET", f"/v1/runs/{run}/events", params={"after": 0}) as events:
                next(line for line in events.iter_lines() if "text_added" in line)
    mortal.kill()
    mortal.start()
    with Modern(mortal, secret(mortal)) as client:
        task = client.over(id)
    assert (task["status"], said(task)["status"], said(task)["text"]) == ("completed", "completed", LONG)


def test_a_task_that_asks_still_asks_after_kill_nine_and_goes_on_with_the_answer(mortal: Server) -> None:
    with Modern(mortal, secret(mortal)) as client:
        id = client.task("echo")
        before = client.until(id, "input_required")
    mortal.kill()
    mortal.start()
    with Modern(mortal, secret(mortal)) as client:
        asking = client.ask("tasks/get", taskId=id)
        assert asking["inputRequests"] == before["inputRequests"]
        [(key, request)] = asking["inputRequests"].items()
        assert request["method"] == "elicitation/create"
        assert "many__echo" in request["params"]["message"]
        client.ask("tasks/update", taskId=id, inputResponses={key: APPROVE})
        task = client.over(id)
        mortal.kill()
        mortal.start()
    with Modern(mortal, secret(mortal)) as client:
        assert client.ask("tasks/get", taskId=id) == task
    assert said(task)["text"].split(".")[0::1] == ["Let me see", "It said hi", ""]
    assert [call["status"] for call in said(task)["tool_calls"]] == ["completed"]


def test_a_run_that_cannot_go_on_after_a_crash_has_its_say(mortal: Server) -> None:
    with Modern(mortal, secret(mortal)) as client:
        id = client.task("endless")
    mortal.kill()
    (mortal.folder / "other").mkdir()
    mortal.model = script(mortal.folder / "other" / "another.json", RULES, cells=32768)
    mortal.start()
    with Modern(mortal, secret(mortal)) as client:
        task = client.over(id)
    assert (task["status"], said(task)["status"]) == ("completed", "interrupted")
    assert "statusMessage" in task


def test_answers_that_a_task_does_not_wait_for_change_nothing(modern: Modern) -> None:
    id = modern.task("echo")
    asking = modern.until(id, "input_required")
    [key] = asking["inputRequests"]
    assert (
        modern.ask("tasks/update", taskId=id, inputResponses={"appr_other": {"whatever": 1}})["resultType"]
        == "complete"
    )
    assert code_of(modern, "tasks/update", taskId=id, inputResponses={key: {"action": "perhaps"}}) == -32602
    assert modern.ask("tasks/get", taskId=id) == asking
    modern.ask("tasks/update", taskId=id, inputResponses={key: {"action": "cancel"}})
    assert modern.ask("tasks/get", taskId=id) == asking, "a form that was closed decides nothing"
    modern.ask("tasks/update", taskId=id, inputResponses={key: {"action": "decline"}})
    task = modern.over(id)
    assert said(task)["text"].endswith("I may not.")
    modern.ask("tasks/update", taskId=id, inputResponses={key: APPROVE})
    assert modern.ask("tasks/get", taskId=id) == task


def test_who_cannot_show_a_form_reads_who_can_answer_and_the_task_goes_on_with_that(server: Server) -> None:
    with Modern(server, secret(server), {"extensions": {EXTENSION: {}}}) as client:
        id = client.task("echo")
        while "statusMessage" not in (task := client.ask("tasks/get", taskId=id)):
            assert task["status"] == "working"
        assert task["status"] == "working"
        assert "inputRequests" not in task
        approval = task["statusMessage"].split("approval ")[1].split(")")[0]
        with server.client(headers={"Authorization": f"Bearer {secret(server)}"}) as http:
            http.post(f"/v1/agent/approvals/{approval}", json={"decision": "approve"}).raise_for_status()
        answer = said(client.over(id))
    assert (answer["text"].count("Let me see."), answer["text"].count("It said hi.")) == (1, 1)
    assert [call["result"] for call in answer["tool_calls"]] == ["hi"]


def test_a_run_that_waits_for_its_client_ends_the_task_and_is_resumed_as_another(modern: Modern) -> None:
    first = modern.over(modern.task("weather", tools=[WEATHER]))
    paused = said(first)
    assert (paused["status"], paused["pause"]["reason"]) == ("paused", "client_tool")
    results = [{"tool_call_id": call["id"], "content": "sunny"} for call in paused["pause"]["calls"]]
    arguments = {"run_id": paused["run_id"], "results": results}
    made = modern.ask("tools/call", name="run_resume", arguments=arguments)
    second = modern.over(made["taskId"])
    assert second["taskId"] != first["taskId"]
    assert said(second)["text"] == "Sunny in Graz."
    assert modern.ask("tasks/get", taskId=first["taskId"]) == first


def test_a_run_that_failed_is_a_task_whose_result_says_so(modern: Modern) -> None:
    task = modern.over(modern.task("break"))
    assert (task["status"], task["result"]["isError"]) == ("completed", True)
    assert task["result"]["content"][0]["text"].startswith("generation_failed: ")


def test_a_cancelled_task_stays_so_and_its_session_is_free(modern: Modern) -> None:
    id = modern.task("endless", session_id="cancelled-one")
    assert set(modern.ask("tasks/cancel", taskId=id)) <= {"resultType", "_meta"}
    task = modern.over(id)
    assert task["status"] == "cancelled"
    modern.ask("tasks/cancel", taskId=id)
    assert modern.ask("tasks/get", taskId=id) == task
    assert said(modern.over(modern.task("hello", session_id="cancelled-one")))["text"] == "hello"


def test_a_task_that_asks_can_be_cancelled_and_asks_no_more(modern: Modern) -> None:
    id = modern.task("echo")
    [key] = modern.until(id, "input_required")["inputRequests"]
    modern.ask("tasks/cancel", taskId=id)
    task = modern.over(id)
    assert task["status"] == "cancelled"
    modern.ask("tasks/update", taskId=id, inputResponses={key: APPROVE})
    assert modern.ask("tasks/get", taskId=id) == task


def test_a_cancel_while_a_task_ends_leaves_it_one_way_or_the_other_for_good(server: Server) -> None:
    def play(turn: int) -> None:
        with Modern(server, secret(server)) as client:
            id = client.task("hello", session_id=f"race-{turn}")
            for _ in range(turn % 4):
                client.ask("tasks/get", taskId=id)
            client.ask("tasks/cancel", taskId=id)
            seen.append((client.over(id), client.ask("tasks/get", taskId=id)))

    seen: list[tuple[dict[str, Any], dict[str, Any]]] = []
    threads = [threading.Thread(target=play, args=(turn,)) for turn in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 12
    assert all(first == again and first["status"] in ("completed", "cancelled") for first, again in seen)


def test_clients_that_ask_at_the_same_time_are_told_the_same(server: Server, modern: Modern) -> None:
    def look() -> None:
        with Modern(server, secret(server)) as client:
            seen.append(client.over(id))

    id = modern.task("long")
    seen: list[dict[str, Any]] = []
    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [modern.ask("tasks/get", taskId=id)] * 4


def test_a_task_is_its_principals(server: Server, modern: Modern) -> None:
    id = modern.task("echo")
    [key] = modern.until(id, "input_required")["inputRequests"]
    with Modern(server, "other") as other, Tried(server, "other") as older:
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            assert code_of(other, method, taskId=id, inputResponses={key: APPROVE}) == -32602
        for method in ("tasks/get", "tasks/cancel", "tasks/result"):
            assert code_of(older, method, taskId=id) == -32602
        with other.listening(taskIds=[id]) as news:
            assert next(news)["params"]["notifications"]["taskIds"] == []
    assert modern.ask("tasks/get", taskId=id)["status"] == "input_required"


def test_ids_that_are_no_tasks_are_refused(server: Server, modern: Modern, tried: Tried) -> None:
    id = modern.task("long")
    with server.client(headers={"Authorization": f"Bearer {secret(server)}"}) as http:
        response = http.post("/v1/responses", json={"input": "hi", "store": True}).json()["id"]
        leg = id.removeprefix("task_")
        for call in (http.get, http.delete):
            assert call(f"/v1/responses/{id}").status_code == 404
        assert http.get(f"/v1/responses/resp_{leg}").status_code == 404
    wrong = ["", "task_", leg, f"{id}0", id[:-1], id.upper(), f"task_{response.removeprefix('resp_')}", "x" * 10_000]
    for each in wrong:
        for client in (modern, tried):
            assert code_of(client, "tasks/get", taskId=each) == -32602, each
            assert code_of(client, "tasks/cancel", taskId=each) == -32602, each
    no_ids: list[Any] = [None, 7, ["x"], {}]
    for none in no_ids:
        assert code_of(modern, "tasks/get", taskId=none) == -32602
    assert code_of(modern, "tasks/update", taskId=id) == -32602
    assert code_of(modern, "tasks/update", taskId=id, inputResponses=[]) == -32602
    assert modern.over(id)["status"] == "completed"


def test_a_header_that_names_another_task_is_refused(modern: Modern) -> None:
    id = modern.task("long")
    for name in ("", "task_other"):
        with pytest.raises(Refused) as refused:
            modern.ask("tasks/get", {"mcp-name": name}, taskId=id)
        assert refused.value.code == -32020


def test_a_listener_hears_of_the_tasks_that_it_names(modern: Modern) -> None:
    id = modern.task("echo")
    [key] = modern.until(id, "input_required")["inputRequests"]
    with modern.listening(taskIds=[id, "task_none"], toolsListChanged=True) as news:
        acknowledged = next(news)
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["notifications"] == {"taskIds": [id], "toolsListChanged": True}
        first = next(news)
        assert (first["method"], first["params"]["status"]) == ("notifications/tasks", "input_required")
        assert key in first["params"]["inputRequests"]
        modern.ask("tasks/update", taskId=id, inputResponses={key: APPROVE})
        told = next(each["params"] for each in news if each["params"].get("status") == "completed")
    task = modern.ask("tasks/get", taskId=id)
    for each in (told, task):
        each.pop("_meta")
    assert told == {name: value for name, value in task.items() if name != "resultType"}


def test_what_is_not_in_the_store_is_answered_without_a_task(server: Server, modern: Modern, tried: Tried) -> None:
    with server.client(headers={"Authorization": f"Bearer {secret(server)}"}) as http:
        body = {"messages": [{"role": "user", "content": "hi"}], "session_id": "fleeting", "store": False}
        http.post("/v1/chat/completions", json=body).raise_for_status()
    assert modern.chat("hello", session_id="fleeting")["resultType"] == "complete"
    with pytest.raises(Refused) as refused:
        tried.task("hello", session_id="fleeting")
    assert (refused.value.code, "kept in memory only" in refused.value.text) == (-32602, True)


def test_the_extension_has_neither_lists_nor_results(modern: Modern, tried: Tried) -> None:
    id = modern.task("long")
    assert code_of(modern, "tasks/list") == -32601
    assert code_of(modern, "tasks/result", taskId=id) == -32601
    assert code_of(tried, "tasks/update", taskId=id, inputResponses={}) == -32601


def test_who_has_many_tasks_at_work_gets_no_more_and_others_do(server: Server, modern: Modern) -> None:
    answers: list[dict[str, Any]] = []

    def call() -> None:
        with Modern(server, "other") as client:
            answers.append(client.chat("hello"))

    with Modern(server, "other") as other, Tried(server, "other") as older:
        ids = [other.task("endless") for _ in range(MOST_AT_WORK)]
        with pytest.raises(Refused) as refused:
            older.task("endless")
        assert refused.value.text.startswith("overloaded: ")
        mine = modern.task("hello")
        thread = threading.Thread(target=call)
        thread.start()
        for id in ids:
            other.ask("tasks/cancel", taskId=id)
        thread.join()
        assert {other.over(id)["status"] for id in ids} == {"cancelled"}
        assert other.over(other.task("hello"))["status"] == "completed"
    assert said(modern.over(mine))["text"] == "hello"
    assert len(answers) == 1


# 2025-11-25.


def test_the_older_protocol_says_which_tools_can_be_tasks(tried: Tried) -> None:
    tools = {tool["name"]: tool.get("execution") for tool in tried.ask("tools/list")["tools"]}
    assert tried.capabilities["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}
    assert {name for name, execution in tools.items() if execution == {"taskSupport": "optional"}} == {
        "chat",
        "run_resume",
    }
    for name in ("session_list", "many__echo"):
        assert code_of(tried, "tools/call", name=name, arguments={}, task={}) == -32601
    with pytest.raises(Refused) as refused:
        tried.ask("tools/call", name="chat", arguments={"nothing": 1}, task={})
    assert (refused.value.code, "nothing" in refused.value.text) == (-32602, True)


def test_the_older_protocol_waits_for_the_result_of_a_task(tried: Tried, modern: Modern) -> None:
    task = tried.task("long")
    assert task["status"] == "working"
    assert tried.ask("tasks/get", taskId=task["taskId"])["ttl"] == task["ttl"]
    result = tried.ask("tasks/result", taskId=task["taskId"])
    assert result["structuredContent"]["text"] == LONG
    assert result["_meta"][RELATED] == {"taskId": task["taskId"]}
    assert "result" not in tried.ask("tasks/get", taskId=task["taskId"])
    assert tried.ask("tasks/result", taskId=task["taskId"]) == result
    assert said(modern.ask("tasks/get", taskId=task["taskId"])) == result["structuredContent"]


def test_the_older_protocol_cancels_a_task_once(tried: Tried) -> None:
    id = tried.task("endless")["taskId"]
    assert tried.ask("tasks/cancel", taskId=id)["status"] == "cancelled"
    assert code_of(tried, "tasks/cancel", taskId=id) == -32602
    assert tried.ask("tasks/result", taskId=id)["structuredContent"]["status"] == "cancelled"


def test_who_waits_for_a_result_hears_of_the_cancel(server: Server, tried: Tried) -> None:
    id = tried.task("endless")["taskId"]
    results: list[dict[str, Any]] = []
    with Tried(server, secret(server)) as waiting:
        thread = threading.Thread(target=lambda: results.append(waiting.ask("tasks/result", taskId=id)))
        thread.start()
        tried.ask("tasks/cancel", taskId=id)
        thread.join()
    assert [each["structuredContent"]["status"] for each in results] == ["cancelled"]


async def test_who_waits_for_a_result_is_asked_what_the_task_asks(server: Server, tried: Tried) -> None:
    asked: list[Any] = []

    async def person(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
        asked.append((params.message, (params.meta or {}).get(RELATED)))
        return t.ElicitResult(action="accept", content={"approve": True})

    id = await anyio.to_thread.run_sync(lambda: tried.task("echo")["taskId"])
    headers = {"Authorization": f"Bearer {secret(server)}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=HANGS_S) as http,
        Client(
            streamable_http_client(f"{server.url}/mcp", http_client=http),
            mode="legacy",
            cache=None,
            elicitation_callback=person,
        ) as client,
    ):
        request = t.GetTaskPayloadRequest(params=t.GetTaskPayloadRequestParams(task_id=id))
        result = await client.session.send_request(request, t.CallToolResult)
    [(message, related)] = asked
    assert "many__echo" in message
    assert related == {"taskId": id}
    assert result.structured_content is not None
    assert result.structured_content["text"].endswith("It said hi.")


def test_before_2025_11_25_there_are_no_tasks(server: Server, modern: Modern) -> None:
    id = modern.task("long")
    with Tried(server, secret(server), version="2025-06-18") as old:
        answer = old.ask("tools/call", name="chat", arguments={"message": "hello"}, task={"ttl": 1})
        assert answer["structuredContent"]["text"] == "hello"
        assert code_of(old, "tasks/get", taskId=id) == -32601

"""MCP servers that requests bring by their URLs, with the official clients and a real MCP server on loopback."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from starlette.responses import RedirectResponse

from tests.conftest import Start
from tests.dialects.outside import TOKEN, Outside, lying, outside
from tests.e2e.server import Server, script
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

RULES: list[dict[str, Any]] = [
    {"user_contains": "weather", "calls": [{"name": "out__weather", "arguments": {"city": "Ulm"}}]},
    {"user_contains": "both", "calls": [{"name": "out__weather", "arguments": {"city": "Bonn"}}, {"name": "mine"}]},
    {"tool_contains": "sun", "text": "Take a hat: ${tool}"},
    {"tool_contains": "", "text": "So: ${tool}"},
]
MINE: Any = {"type": "function", "name": "mine", "parameters": {"type": "object"}, "strict": False}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """Servers by what they say of egress; `auto` is one that also says that MCP servers' tools need not ask."""
    flags = {
        "off": (),
        "public": ("--egress", "public"),
        "all": ("--egress", "all"),
        "auto": ("--egress", "all", "--agent-permission", "auto"),
    }
    running: dict[str, Server] = {}
    for name, arguments in flags.items():
        folder = tmp_path_factory.mktemp(name)
        model = script(folder / "model.json", RULES, cells=16384)
        running[name] = Server(folder, model, (*arguments, "--log-level", "debug")).start()
    yield running
    for server in running.values():
        server.close()


@pytest.fixture
def other() -> Iterator[Outside]:
    with outside() as running:
        yield running


def client(server: Server) -> Any:
    """The official client, whose types know of more kinds of items than there are here."""
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=HANGS_S)


def claude(server: Server) -> Any:
    """The other official client."""
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=HANGS_S)


def tool(other: Outside, **more: Any) -> Any:
    return {"type": "mcp", "server_label": "out", "server_url": other.url, "authorization": TOKEN, **more}


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def yes(asked: Any) -> Any:
    return {"type": "mcp_approval_response", "approval_request_id": asked.id, "approve": True}


def nothing_is_told(server: Server, other: Outside, *answers: Any) -> None:
    """No secret is in an answer, in the log, or in the data folder."""
    text = json.dumps([each if isinstance(each, (str, dict)) else each.to_dict() for each in answers])
    kept = b"".join(path.read_bytes() for path in server.data_dir.rglob("*") if path.is_file())
    for secret in (TOKEN, other.url, "key-4f9a1c77e0b2"):
        assert secret not in text
        assert secret not in server.log
        assert secret.encode() not in kept


# Responses


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_of_a_servers_url_asks_and_is_called_when_the_server_is_brought_again(
    servers: dict[str, Server], other: Outside, stream: bool
) -> None:
    server = servers["all"]
    with client(server) as openai_client:
        first = openai_client.responses.create(model="default", input="the weather", tools=[tool(other)])
        listed, asked = first.output
        assert (listed.type, asked.type) == ("mcp_list_tools", "mcp_approval_request")
        assert [each.name for each in listed.tools] == ["weather", "fail"]
        assert (asked.server_label, asked.name, json.loads(asked.arguments)) == ("out", "weather", {"city": "Ulm"})
        assert other.made == []
        more: Any = {"previous_response_id": first.id, "input": [yes(asked)], "tools": [tool(other)]}
        if stream:
            with openai_client.responses.stream(model="default", **more) as events:
                second: Any = events.get_final_response()
        else:
            second = openai_client.responses.create(model="default", **more)
        made = second.output[-2]
        assert (made.type, made.server_label, made.name, made.output) == ("mcp_call", "out", "weather", "sun in Ulm")
        assert second.output_text == "Take a hat: sun in Ulm"
        assert other.made == ["Ulm"]
        assert other.headers[0]["authorization"] == f"Bearer {TOKEN}"
        read = openai_client.responses.retrieve(second.id)
        assert read.output[-2].to_dict() == made.to_dict()
        (shown,) = read.tools
        assert shown.to_dict() == {"type": "mcp", "server_label": "out", "server_url": other.address}
    nothing_is_told(server, other, first, second, read)


def test_nobody_is_asked_where_request_and_operator_say_so(servers: dict[str, Server], other: Outside) -> None:
    server = servers["auto"]
    with client(server) as openai_client:
        free = tool(other, require_approval="never")
        answer = openai_client.responses.create(model="default", input="the weather", tools=[free])
        assert answer.output_text == "Take a hat: sun in Ulm"
        asks = openai_client.responses.create(model="default", input="the weather here", tools=[tool(other)])
        assert asks.output[-1].type == "mcp_approval_request"
        partly = tool(other, require_approval={"never": {"tool_names": ["fail"]}})
        asks = openai_client.responses.create(model="default", input="the weather there", tools=[partly])
        assert asks.output[-1].type == "mcp_approval_request"
    nothing_is_told(server, other, answer, asks)


def test_a_request_alone_does_not_free_a_tool_from_asking(servers: dict[str, Server], other: Outside) -> None:
    with client(servers["all"]) as openai_client:
        free = tool(other, require_approval="never")
        asks = openai_client.responses.create(model="default", input="the weather", tools=[free])
        assert asks.output[-1].type == "mcp_approval_request"


def test_the_next_turn_computes_only_what_is_new(servers: dict[str, Server], other: Outside) -> None:
    with client(servers["auto"]) as openai_client:
        free = tool(other, require_approval="never", allowed_tools=["weather"])
        history: list[Any] = [user("the weather, and once more")]
        first = openai_client.responses.create(model="default", input=history, tools=[free])
        assert [each.name for each in first.output[0].tools] == ["weather"]
        history += [*first.output, user("thanks")]
        second = openai_client.responses.create(model="default", input=history, tools=[free]).to_dict()
        (round,) = second["usage"]["tenuto"]["rounds"]
        assert round["computed_tokens"] == round["new_tokens"]
        assert [item["type"] for item in second["output"]] == ["message"]


def test_an_approval_by_the_house_api_goes_on_with_what_is_in_memory(
    servers: dict[str, Server], other: Outside
) -> None:
    server = servers["all"]
    with client(server) as openai_client, server.client() as http:
        first = openai_client.responses.create(model="default", input="the weather", tools=[tool(other)])
        asked, state = first.output[-1], first.to_dict()["tenuto"]
        approval = "appr_" + asked.id.removeprefix("mcpr_")
        answer = {"decision": "approve", "remember_for_session": True}
        assert http.post(f"/v1/agent/approvals/{approval}", json=answer).status_code == 200
        events = http.get(f"/v1/runs/{state['run_id']}/events?after=0").text
        assert '"status":"completed"' in events
        assert "sun in Ulm" in events
        # What was approved for the session is this tool at this address.
        same: Any = {"model": "default", "input": "the weather", "conversation": state["session_id"]}
        again = openai_client.responses.create(**same, tools=[tool(other)])
        assert again.output_text == "Take a hat: sun in Ulm"
        with outside() as elsewhere:
            asks = openai_client.responses.create(**same, tools=[tool(elsewhere)])
            assert asks.output[-1].type == "mcp_approval_request"


def test_after_a_restart_the_server_must_be_brought_again(start: Start, other: Outside) -> None:
    server = start("--egress", "all", rules=RULES, cells=16384)
    with client(server) as openai_client:
        first = openai_client.responses.create(model="default", input="the weather", tools=[tool(other)])
    asked = first.output[-1]
    server.kill()
    server.start()
    with client(server) as openai_client, server.client() as http:
        refused = http.post(f"/v1/agent/approvals/appr_{asked.id.removeprefix('mcpr_')}", json={"decision": "approve"})
        assert refused.status_code == 409
        assert "brings the server again" in refused.json()["error"]["message"]
        with pytest.raises(openai.ConflictError, match="brings the server again"):
            openai_client.responses.create(model="default", previous_response_id=first.id, input=[yes(asked)])
        with outside() as elsewhere, pytest.raises(openai.ConflictError, match="brings the server again"):
            openai_client.responses.create(
                model="default", previous_response_id=first.id, input=[yes(asked)], tools=[tool(elsewhere)]
            )
        second = openai_client.responses.create(
            model="default", previous_response_id=first.id, input=[yes(asked)], tools=[tool(other)]
        )
        assert second.output_text == "Take a hat: sun in Ulm"
    nothing_is_told(server, other, first, second)


def test_a_call_without_its_server_tells_the_model_why(start: Start, other: Outside) -> None:
    """A run that waited for its client goes on without what its first request has said in confidence."""
    rules = [
        {"user_contains": "mine", "calls": [{"name": "mine", "arguments": {}}]},
        {"tool": "done", "calls": [{"name": "out__weather", "arguments": {"city": "Ulm"}}]},
        *RULES[2:],
    ]
    server = start("--egress", "all", "--agent-permission", "auto", rules=rules, cells=16384)
    with client(server) as openai_client:
        tools = [MINE, tool(other, require_approval="never")]
        first = openai_client.responses.create(model="default", input="mine", tools=tools)
        (call,) = [item for item in first.output if item.type == "function_call"]
    server.kill()
    server.start()
    with client(server) as openai_client, server.client() as http:
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
        second = http.post("/v1/responses", json={"input": [output], "previous_response_id": first.id}).json()
        made, said = second["output"]
        assert made["status"] == "failed"
        assert "in memory only" in said["content"][0]["text"]
        third = openai_client.responses.create(
            model="default", previous_response_id=second["id"], input="mine", tools=tools
        )
        (call,) = [item for item in third.output if item.type == "function_call"]
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
        last = openai_client.responses.create(
            model="default", previous_response_id=third.id, input=[output], tools=tools
        )
        assert last.output_text == "Take a hat: sun in Ulm"


# What is refused


@pytest.mark.parametrize("how", ["off", "public"])
def test_a_server_on_loopback_is_refused_unless_all_are_allowed(
    servers: dict[str, Server], other: Outside, how: str
) -> None:
    server = servers[how]
    with client(server) as openai_client, pytest.raises(openai.APIStatusError) as refused:
        openai_client.responses.create(model="default", input="the weather", tools=[tool(other)])
    assert refused.value.status_code == (400 if how == "off" else 424)
    assert refused.value.param == "tools[0].server_url"
    assert "--egress public" in refused.value.message
    listed: Any = [{"type": "url", "name": "out", "url": other.url, "authorization_token": TOKEN}]
    with claude(server) as anthropic_client, pytest.raises(anthropic.BadRequestError, match="--egress public"):
        anthropic_client.beta.messages.create(
            model="default", max_tokens=64, messages=[user("the weather")], mcp_servers=listed
        )
    assert other.headers == [], "nothing was sent there"
    nothing_is_told(server, other, str(refused.value))


@pytest.mark.parametrize(
    "host", ["localhost", "127.1", "2130706433", "0x7f.1", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "[::]"]
)
def test_no_way_of_writing_loopback_is_public(servers: dict[str, Server], other: Outside, host: str) -> None:
    url = other.url.replace("127.0.0.1", host)
    with servers["public"].client() as http:
        refused = http.post("/v1/responses", json={"input": "x", "tools": [tool(other) | {"server_url": url}]})
    assert refused.status_code == 424
    assert other.headers == []


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"server_url": "file:///etc/passwd"}, "server_url"),
        ({"server_url": "gopher://127.0.0.1:70/"}, "server_url"),
        ({"server_url": "http:///mcp"}, "server_url"),
        ({"server_url": "http://ann:pass-word@127.0.0.1/mcp"}, "server_url"),
        ({"server_url": "http://[fe80::1%25eth0]/mcp"}, "server_url"),
        ({"server_url": "http://" + "a" * 5000}, "server_url"),
        ({"server_label": "a__b"}, "server_label"),
        ({"server_label": "a b"}, "server_label"),
        ({"server_label": "clock"}, "server_url"),
        ({"headers": {"Host": "pass-word"}}, "headers"),
        ({"headers": {"a": "pass-word\r\nb: c"}}, "headers"),
        ({"headers": {"Authorization": "pass-word"}}, "authorization"),
        ({"headers": {"x": "pass-word" * 9000}}, "headers"),
        ({"authorization": "Bearer pass-word"}, "authorization"),
        ({"connector_id": "connector_gmail"}, "connector_id"),
    ],
)
def test_what_cannot_be_a_server_is_refused_without_its_secrets(
    servers: dict[str, Server], other: Outside, more: dict[str, Any], param: str
) -> None:
    with servers["all"].client() as http:
        refused = http.post("/v1/responses", json={"input": "x", "tools": [tool(other, **more)]})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == f"tools[0].{param}"
    assert "pass-word" not in refused.text + servers["all"].log
    assert other.headers == []


def test_credentials_without_a_url_are_refused(servers: dict[str, Server]) -> None:
    body = {"input": "x", "tools": [{"type": "mcp", "server_label": "clock", "authorization": TOKEN}]}
    with servers["all"].client() as http:
        refused = http.post("/v1/responses", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools[0].authorization")


# Servers that do not do as they should


def test_a_server_that_is_not_there_or_lets_nobody_in_is_told(servers: dict[str, Server], other: Outside) -> None:
    server = servers["all"]
    with client(server) as openai_client:
        with pytest.raises(openai.APIStatusError, match="401") as refused:
            openai_client.responses.create(
                model="default", input="x", tools=[tool(other) | {"authorization": "wrong-t0ken"}]
            )
        assert (refused.value.status_code, refused.value.type) == (424, "external_connector_error")
        assert "wrong-t0ken" not in str(refused.value) + server.log
        dead = tool(other) | {"server_url": "http://127.0.0.1:9/mcp"}
        with pytest.raises(openai.APIStatusError, match="cannot be reached"):
            openai_client.responses.create(model="default", input="x", tools=[dead])


@pytest.mark.parametrize("status", [302, 307])
def test_a_redirect_to_another_server_is_not_followed(servers: dict[str, Server], other: Outside, status: int) -> None:
    with outside() as target:
        other.instead = RedirectResponse(target.url, status)
        with servers["all"].client() as http:
            refused = http.post("/v1/responses", json={"input": "x", "tools": [tool(other)]})
        assert refused.status_code == 424
        assert target.headers == [], "no token is sent where it was not meant for"
    nothing_is_told(servers["all"], other, refused.text)


def test_a_server_that_redirects_for_ever_is_left(servers: dict[str, Server], other: Outside) -> None:
    other.instead = RedirectResponse(other.url + "/", 307)
    with servers["all"].client() as http:
        refused = http.post("/v1/responses", json={"input": "x", "tools": [tool(other)]})
    assert refused.status_code == 424
    assert len(other.headers) < 40


def test_tools_that_nobody_could_work_with_are_left_out(servers: dict[str, Server], other: Outside) -> None:
    deep: Any = {"type": "object"}
    for _ in range(70):
        deep = {"type": "object", "properties": {"a": deep}}
    tools = [
        {"name": "weather", "inputSchema": {"type": "object"}},
        {"name": "deep", "inputSchema": deep},
        {"name": "bad", "inputSchema": {"type": "object", "properties": 5}},
        {"name": "long", "description": "x" * 100_000, "inputSchema": {"type": "object"}},
        {"name": "weather", "inputSchema": {"type": "object"}},
    ]
    other.instead = lying(tools)
    with servers["all"].client() as http:
        answer = http.post("/v1/responses", json={"input": "hello", "tools": [tool(other)]})
    assert answer.status_code == 200
    assert [each["name"] for each in answer.json()["output"][0]["tools"]] == ["weather"]


def test_the_environments_proxy_is_not_used(start: Start, other: Outside) -> None:
    with outside() as proxy:
        folder = start("--egress", "all", rules=RULES, cells=16384)
        folder.stop()
        folder.variables = {"HTTP_PROXY": proxy.address, "http_proxy": proxy.address, "ALL_PROXY": proxy.address}
        server = folder.start()
        with server.client() as http:
            answer = http.post("/v1/responses", json={"input": "hello", "tools": [tool(other)]})
        assert answer.status_code == 200
        assert proxy.headers == []


def test_two_servers_may_have_tools_of_one_name(servers: dict[str, Server], other: Outside) -> None:
    with outside() as second, client(servers["auto"]) as openai_client:
        tools = [
            tool(other, require_approval="never"),
            tool(second, require_approval="never") | {"server_label": "out_2"},
        ]
        answer = openai_client.responses.create(model="default", input="the weather", tools=tools)
        assert answer.output_text == "Take a hat: sun in Ulm"
        assert (other.made, second.made) == (["Ulm"], [])
        clash = {**MINE, "name": "out__weather"}
        with pytest.raises(openai.BadRequestError, match="rename it"):
            openai_client.responses.create(model="default", input="x", tools=[*tools, clash])


def test_an_inputs_tokens_are_counted_with_the_tools_of_its_servers(servers: dict[str, Server], other: Outside) -> None:
    with client(servers["all"]) as openai_client:
        bare = openai_client.responses.input_tokens.count(model="default", input="x", tools=[])
        whole = openai_client.responses.input_tokens.count(model="default", input="x", tools=[tool(other)])
        assert whole.input_tokens > bare.input_tokens


# Messages


def test_a_message_shows_the_calls_of_the_servers_that_its_request_brings(
    servers: dict[str, Server], other: Outside
) -> None:
    server = servers["auto"]
    brought: Any = [{"type": "url", "name": "out", "url": other.url, "authorization_token": TOKEN}]
    asked: Any = {"model": "default", "max_tokens": 256, "mcp_servers": brought, "betas": ["mcp-client-2025-11-20"]}
    toolset: Any = {"type": "mcp_toolset", "mcp_server_name": "out", "configs": {"fail": {"enabled": False}}}
    history: list[Any] = [user("the weather, by message")]
    with claude(server) as anthropic_client:
        whole = anthropic_client.beta.messages.create(**asked, messages=history, tools=[toolset])
        with anthropic_client.beta.messages.stream(
            **asked, messages=[user("the weather, as a stream")], tools=[toolset]
        ) as events:
            streamed = events.get_final_message()
        for message in (whole, streamed):
            use, result, text = message.content
            assert (use.type, use.server_name, use.name, use.input) == (
                "mcp_tool_use",
                "out",
                "weather",
                {"city": "Ulm"},
            )
            assert (result.type, result.tool_use_id, result.is_error) == ("mcp_tool_result", use.id, False)
            assert [part.text for part in result.content] == ["sun in Ulm"]
            assert (text.type, text.text) == ("text", "Take a hat: sun in Ulm")
            assert message.stop_reason == "end_turn"
        history += [{"role": "assistant", "content": [block.to_dict() for block in whole.content]}, user("thanks")]
        second = anthropic_client.beta.messages.create(**asked, messages=history, tools=[toolset]).to_dict()
        (round,) = second["usage"]["tenuto"]["rounds"]
        assert round["computed_tokens"] == round["new_tokens"]
        assert "diagnostics" not in second["tenuto"], "its blocks are understood"
        counted = anthropic_client.beta.messages.count_tokens(
            model="default", messages=[user("x")], mcp_servers=brought, tools=[toolset]
        )
        assert counted.input_tokens > 10
    nothing_is_told(server, other, whole, streamed, second)


def test_a_message_whose_tool_must_ask_tells_how_to_allow_it(servers: dict[str, Server], other: Outside) -> None:
    brought: Any = [{"type": "url", "name": "out", "url": other.url, "authorization_token": TOKEN}]
    with claude(servers["all"]) as anthropic_client:
        message = anthropic_client.beta.messages.create(
            model="default", max_tokens=512, messages=[user("the weather")], mcp_servers=brought
        )
    use, result, _ = message.content
    assert (use.type, result.type, result.is_error) == ("mcp_tool_use", "mcp_tool_result", True)
    assert "--agent-permission auto" in result.content[0].text
    assert "MCP configuration" not in result.content[0].text
    assert other.made == []


def test_a_servers_calls_of_a_history_are_read_where_their_session_is_not_known(servers: dict[str, Server]) -> None:
    made = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "weather", "server_name": "out", "input": {"a": 1}}
    result = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": "sun over Rome"}
    said = [{"type": "text", "text": "I look."}, made, result, {"type": "text", "text": "Sun."}]
    with servers["off"].client() as http:
        count = {
            name: http.post(
                "/v1/messages/count_tokens",
                json={"messages": [user("a"), {"role": "assistant", "content": blocks}, user("b")]},
            ).json()["input_tokens"]
            for name, blocks in (("all", said), ("bare", [said[0], said[3]]), ("unanswered", [said[0], made, said[3]]))
        }
    assert count["all"] > count["bare"] + len("sun over Rome")
    assert count["unanswered"] == count["bare"]

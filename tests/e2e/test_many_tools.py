"""Eight MCP servers with sixty tools, and models of 4,096 tokens: a question is answered all the same."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.e2e import crowd
from tests.e2e.server import Server, script
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

CONTEXT = 4096
RULES: list[dict[str, Any]] = [
    {"tool_contains": crowd.FORECAST, "text": "It is sunny in Oslo."},
    {
        "tool_contains": "weather__get_weather",
        "calls": [{"name": "weather__get_weather", "arguments": {"city": "Oslo"}}],
    },
    {"user_matches": "weather", "calls": [{"name": "tool_search", "arguments": {"query": "weather of a city"}}]},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, embedded_model: str) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("crowd")
    process = subprocess.Popen([sys.executable, "-m", "tests.e2e.crowd"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    servers = {name: {"url": f"http://127.0.0.1:{port}/{name}", "permission": "auto"} for name in crowd.SERVERS}
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    model = script(folder / "scripted.json", RULES, cells=CONTEXT)
    more = ("--model", embedded_model, "--mcp-config", str(config), "--context", str(CONTEXT))
    running = Server(folder, model, more)
    try:
        yield running.start()
    finally:
        running.close()
        process.kill()
        process.wait()
        process.stdout.close()


def ask(server: Server, model: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    with server.client() as http:
        answer = http.post("/v1/chat/completions", json={"model": model, "messages": messages, **more})
    read: dict[str, Any] = answer.raise_for_status().json()
    return read


def test_there_are_sixty_tools_of_eight_servers(server: Server) -> None:
    with server.client() as http:
        servers = {one["id"]: one for one in http.get("/v1/mcp/servers").raise_for_status().json()["data"]}
    assert {*crowd.SERVERS} <= {*servers}
    assert len(crowd.SERVERS) == 8
    assert sum(len(crowd.tools(name)) for name in crowd.SERVERS) == 60


def test_the_tool_is_searched_for_found_and_called(server: Server) -> None:
    answer = ask(server, "scripted")
    assert answer["choices"][0]["message"]["content"] == "It is sunny in Oslo."
    calls = [(call["name"], call["status"]) for call in answer["agentic_tool_calls"]]
    assert calls == [("tool_search", "completed"), ("weather__get_weather", "completed")]
    rounds = answer["usage"]["tenuto"]["rounds"]
    assert rounds[0]["prompt_tokens"] < CONTEXT // 2
    for round in rounds[1:]:
        assert round["computed_tokens"] <= round["new_tokens"]


def test_a_model_that_is_told_which_tool_to_take_sees_that_one_beside_the_search(server: Server) -> None:
    choice = {"type": "function", "function": {"name": "weather__get_weather"}}
    answer = ask(server, "embedded", tool_choice=choice, parallel_tool_calls=False)
    (call,) = answer["agentic_tool_calls"]
    assert (call["name"], json.loads(call["arguments"])) == ("weather__get_weather", {"city": "Oslo"})
    assert crowd.FORECAST in answer["choices"][0]["message"]["content"]


def test_a_small_model_searches_where_it_has_nothing_better(server: Server) -> None:
    choice = {"type": "function", "function": {"name": "tool_search"}}
    answer = ask(server, "embedded", tool_choice=choice)
    (search, *_) = answer["agentic_tool_calls"]
    assert search["name"] == "tool_search"
    assert "weather__get_weather" in search["result_content"]


def test_official_clients_are_shown_the_search_as_a_servers_call_and_may_repeat_it(server: Server) -> None:
    labels = [{"type": "mcp", "server_label": name} for name in crowd.SERVERS]
    question: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=HANGS_S) as client:
        given: Any = {"model": "scripted", "tools": labels, "store": False}
        first = client.responses.create(input=question, **given)
        calls = [item for item in first.output if item.type == "mcp_call"]
        assert [(call.server_label, call.name) for call in calls] == [
            ("tenuto", "tool_search"),
            ("weather", "get_weather"),
        ]
        history = [*question, *(item.to_dict() for item in first.output), {"role": "user", "content": "the weather?"}]
        second = client.responses.create(input=history, **given)
        assert second.output_text == "It is sunny in Oslo."
    toolsets: Any = [{"type": "mcp_toolset", "mcp_server_name": name} for name in crowd.SERVERS]
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=HANGS_S) as claude:
        asked: Any = {"model": "scripted", "max_tokens": 512, "tools": toolsets, "betas": ["mcp-client-2025-11-20"]}
        message = claude.beta.messages.create(messages=question, **asked)
        uses = [block for block in message.content if block.type == "mcp_tool_use"]
        assert [(use.server_name, use.name) for use in uses] == [("tenuto", "tool_search"), ("weather", "get_weather")]
        said: Any = {"role": "assistant", "content": [block.to_dict() for block in message.content]}
        again: dict[str, Any] = claude.beta.messages.create(
            messages=[*question, said, {"role": "user", "content": "the weather?"}], **asked
        ).to_dict()
        assert again["content"][-1]["text"] == "It is sunny in Oslo."
        assert "diagnostics" not in again["tenuto"]

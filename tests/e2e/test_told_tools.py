"""A model whose chat template knows no tools calls the server's tools, through the whole loop: random weights."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.server import Server

pytest.importorskip("llama_cpp")
pytestmark = pytest.mark.slow

CALL = {"type": "function", "function": {"name": "clock__now"}}
END = "<|im_end|>"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    from tests.pipelines.families import CHATML
    from tests.pipelines.special_tokens import Specials
    from tests.pipelines.tiny_chat import tiny_chat

    folder = tmp_path_factory.mktemp("told")
    model = tiny_chat(folder / "told.gguf", CHATML, Specials(("<|im_start|>",), (), (END,)))
    plain = tiny_chat(folder / "plain.gguf", CHATML, Specials(("<|im_start|>",), (), (END,)))
    arguments = ("--model", str(plain), "--tool-format", "plain=plain", "--context", "4096", "--slots", "2")
    running = Server(folder, str(model), arguments).start()
    yield running
    running.close()


def ask(server: Server, **more: Any) -> dict[str, Any]:
    body = {"model": "told", "max_tokens": 700, "temperature": 1, "seed": 1, **more}
    with server.client() as client:
        answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_models_say_how_they_are_told(server: Server) -> None:
    with server.client() as client:
        models = {model["id"]: model for model in client.get("/v1/models").json()["data"]}
    why = "generic: the model's chat template knows no tools, so it is told how to call them"
    assert models["told"]["tool_format"] == why
    assert models["plain"]["tool_format"] == "plain: as it was set"
    assert ["tools" in models[name]["capabilities"] for name in ("told", "plain")] == [True, False]


def test_a_call_is_forced_executed_and_its_result_is_told(server: Server) -> None:
    asked = {"messages": [{"role": "user", "content": "What time is it?"}], "session_id": "told-1"}
    first = ask(server, **asked, tool_choice=CALL, parallel_tool_calls=False, max_tool_rounds=1)
    (call,) = first["agentic_tool_calls"]
    assert call["name"] == "clock__now"
    rounds = first["usage"]["tenuto"]["rounds"]
    assert len(rounds) == 2
    told = len(call["result_content"]) + len("<|im_start|>user\n<tool_response>\nclock__now:\n\n</tool_response>")
    assert told <= rounds[1]["computed_tokens"] <= told + 100  # a token a byte: the call itself is not read again
    with server.client() as client:
        items = client.get("/v1/sessions/told-1").json()["items"]
    assert [item["kind"] for item in items] == ["user", "assistant", "tool_result", "assistant"]


def test_a_client_gets_the_calls_of_its_own_tools_and_gives_their_results(server: Server) -> None:
    tool = {"name": "look", "parameters": {"type": "object", "properties": {"far": {"type": "boolean"}}}}
    asked: list[dict[str, Any]] = [{"role": "user", "content": "Look."}]
    tools = [{"type": "function", "function": tool}]
    first = ask(server, messages=asked, tools=tools, tool_choice="required", parallel_tool_calls=False)
    assert first["choices"][0]["finish_reason"] == "tool_calls"
    message = first["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "look"
    result = {"role": "tool", "tool_call_id": call["id"], "content": "A tree."}
    second = ask(server, messages=[*asked, message, result], tools=tools, max_tokens=3)
    usage = second["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["total_tokens"] - 1

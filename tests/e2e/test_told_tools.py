"""A model whose chat template knows no tools calls the server's tools, through the whole loop: random weights."""

import json
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


def test_a_response_format_comes_before_tools_that_nobody_has_asked_for(server: Server) -> None:
    """The model begins calls as text, so that it cannot be held to both."""
    asked = {
        "messages": [{"role": "user", "content": "Give me an object."}],
        "response_format": {"type": "json_object"},
    }
    answer = ask(server, **asked)
    assert answer["choices"][0]["message"]["content"].startswith("{")
    reasons = [told["reason"] for told in answer["tenuto"]["diagnostics"] if told["what"] == "tools"]
    assert len(reasons) == 1
    assert reasons[0].startswith("the model cannot be held to a response format beside the server's ")
    with server.client() as client:
        tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
        refused = client.post("/v1/chat/completions", json={"model": "told", **asked, "tools": tools})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "response_format"


def test_so_it_does_in_every_dialect_and_in_a_session_that_has_had_the_tools(server: Server) -> None:
    session = {"session_id": "told-format"}
    words = [{"role": "user", "content": "What time is it?"}]
    ask(server, messages=words, tool_choice=CALL, parallel_tool_calls=False, max_tool_rounds=1, **session)
    form = {"type": "json_object"}
    answer = ask(server, messages=[{"role": "user", "content": "As an object."}], response_format=form, **session)
    assert answer["choices"][0]["message"]["content"].startswith("{")
    back = ask(server, messages=words, tool_choice=CALL, parallel_tool_calls=False, max_tool_rounds=1, **session)
    assert [call["name"] for call in back["agentic_tool_calls"]] == ["clock__now"]
    more = {"model": "told", "messages": words, "temperature": 1, "seed": 1}
    with server.client() as client:
        streamed = client.post(
            "/v1/chat/completions", json={**more, "stream": True, "max_tokens": 300, "response_format": form}
        )
        chunks = [json.loads(line[6:]) for line in streamed.text.splitlines() if line.startswith("data: {")]
        said = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
        assert said.startswith("{")
        options = {"num_predict": 300, "temperature": 1, "seed": 1}
        body = {"model": "told", "messages": words, "options": options, "format": "json", "stream": False}
        ollama = client.post("/api/chat", json=body).raise_for_status().json()
        assert ollama["message"]["content"].startswith("{")
        asked = {"model": "told", "input": "Give me an object.", "text": {"format": form}}
        response = client.post("/v1/responses", json={**asked, "max_output_tokens": 300}).raise_for_status().json()
        assert response["output"][-1]["content"][0]["text"].startswith("{")
        counted = client.post("/v1/responses/input_tokens", json=asked).raise_for_status().json()
        assert counted["input_tokens"] == response["usage"]["input_tokens"]

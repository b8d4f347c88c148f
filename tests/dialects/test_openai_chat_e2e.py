"""Chat completions against a real server, with the official client and without."""

import json
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

pytestmark = pytest.mark.slow

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells it.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def user(text: str) -> ChatCompletionMessageParam:
    return {"role": "user", "content": text}


def post(http: httpx.Client, text: str, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    return http.post("/v1/chat/completions", json={"messages": [user(text)], **body}, headers=headers)


def events(text: str) -> list[tuple[str | None, Any]]:
    """(event, data) of a stream."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in block.split("\n") if not line.startswith(":"))
        if "data" in fields:
            done = fields["data"] == "[DONE]"
            found.append((fields.get("event"), "[DONE]" if done else json.loads(fields["data"])))
    return found


def content(frames: list[tuple[str | None, Any]]) -> str:
    chunks = [data for event, data in frames if event is None and data != "[DONE]"]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


# Answers


def test_a_plain_answer_whole_and_streamed(openai_client: openai.OpenAI) -> None:
    text = "Grüße — “\u2028\r\n” 🎈"
    whole = openai_client.chat.completions.create(model="default", messages=[user(text)])
    stream = openai_client.chat.completions.create(
        model="default", messages=[user(text)], stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert whole.choices[0].message.content == text
    assert whole.choices[0].finish_reason == "stop"
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == text
    assert whole.usage is not None
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


def test_reasoning_stands_apart(http: httpx.Client) -> None:
    message = post(http, "think").json()["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("done", "let me see")
    deltas = [data["choices"][0]["delta"] for _, data in events(post(http, "think", stream=True).text)[:-1]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "let me see"
    assert "".join(delta.get("content", "") for delta in deltas) == "done"


def test_limits_and_stop_strings_cut_the_answer(http: httpx.Client) -> None:
    cut = post(http, "abcdefgh", max_tokens=3).json()["choices"][0]
    stopped = post(http, "abcdefgh", stop="ef").json()["choices"][0]
    assert (cut["message"]["content"], cut["finish_reason"]) == ("abc", "length")
    assert (stopped["message"]["content"], stopped["finish_reason"]) == ("abcd", "stop")


def test_a_session_goes_on_without_computing_its_past_again(http: httpx.Client) -> None:
    first = post(http, "one " * 100, session_id="goes-on")
    second = post(http, "two", headers={"X-Tenuto-Session": "goes-on"})
    assert first.headers["x-tenuto-session"] == second.json()["session_id"] == "goes-on"
    assert second.headers["x-tenuto-run-id"] == second.json()["tenuto"]["run_id"]
    usage = second.json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > 800
    assert usage["tenuto"]["computed_tokens"] < 100


# Tools


def test_the_clients_tools_make_a_round_trip(openai_client: openai.OpenAI) -> None:
    messages = [user("the weather in Ulm")]
    create = openai_client.chat.completions.create
    asked = create(model="default", messages=messages, tools=[WEATHER]).choices[0]
    assert asked.finish_reason == "tool_calls"
    assert asked.message.content is None
    assert asked.message.tool_calls is not None
    [call] = asked.message.tool_calls
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Ulm"})

    echo: Any = asked.message.model_dump(exclude_none=True)
    messages += [echo, {"role": "tool", "tool_call_id": call.id, "content": "sun"}]
    answer = create(model="default", messages=messages, tools=[WEATHER])
    assert answer.choices[0].message.content == "Take a hat: sun"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert (answer.usage.prompt_tokens_details.cached_tokens or 0) > 0


def test_streamed_calls_are_gathered_by_the_official_client(openai_client: openai.OpenAI) -> None:
    with openai_client.chat.completions.stream(
        model="default", messages=[user("the weather in Ulm")], tools=[WEATHER]
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls"
    assert final.message.tool_calls is not None
    assert json.loads(final.message.tool_calls[0].function.arguments) == {"city": "Ulm"}


def test_the_servers_tools_run_inside_an_answer(http: httpx.Client) -> None:
    body = post(http, "What is 12 * 7?").json()
    choice = body["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("That makes 84.", "stop")
    assert "tool_calls" not in choice["message"]
    assert body["agentic_tool_calls"] == [
        {
            "round": body["agentic_tool_calls"][0]["round"],
            "name": "calculator__evaluate",
            "arguments": body["agentic_tool_calls"][0]["arguments"],
            "result_content": "84",
            "status": "completed",
        }
    ]


@pytest.mark.parametrize("opted_in", [False, True])
def test_the_official_client_survives_named_events(openai_client: openai.OpenAI, opted_in: bool) -> None:
    stream = openai_client.chat.completions.create(
        model="default",
        messages=[user("What is 12 * 7?")],
        stream=True,
        extra_headers={"X-Tenuto-Events": "1"} if opted_in else {},
    )
    assert "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices) == "That makes 84."


def test_named_events_tell_of_the_servers_calls(http: httpx.Client) -> None:
    frames = events(post(http, "What is 12 * 7?", stream=True, max_tool_rounds=3).text)
    named = [(event, data["phase"], data["tool_name"]) for event, data in frames if event is not None]
    assert named == [
        ("agentic_tool_call_progress", "calling", "calculator__evaluate"),
        ("agentic_tool_call_progress", "complete", "calculator__evaluate"),
    ]
    stock = events(post(http, "What is 12 * 7?", stream=True).text)
    assert {event for event, _ in stock} == {None}
    assert content(frames) == content(stock) == "That makes 84."


@pytest.mark.parametrize("stream", [False, True])
def test_in_a_mixed_turn_only_the_clients_call_is_the_clients(http: httpx.Client, stream: bool) -> None:
    tools = [WEATHER, {"type": "mcp", "server_label": "calculator"}]
    response = post(http, "both", tools=tools, stream=stream)
    if stream:
        deltas = [data["choices"][0]["delta"] for _, data in events(response.text)[:-1]]
        calls = [call for delta in deltas for call in delta.get("tool_calls", []) if "id" in call]
    else:
        calls = response.json()["choices"][0]["message"]["tool_calls"]
    assert [call["function"]["name"] for call in calls] == ["weather"]


# Approvals


def _ask(http: httpx.Client, session: str, **body: Any) -> httpx.Response:
    return post(http, "What is 12 * 7?", session_id=session, agent_permission="ask", **body)


def _rest(http: httpx.Client, run_id: str) -> tuple[str, str]:
    """The text that comes until the run waits or ends, and its last event's status."""
    frames = [data for _, data in events(http.get(f"/v1/runs/{run_id}/events").text)]
    return "".join(data["text"] for data in frames if data["type"] == "text_added"), frames[-1].get("status")


def test_a_call_that_needs_approval_pauses_the_run(http: httpx.Client) -> None:
    asked = _ask(http, "ask-1").json()
    assert asked["choices"][0]["message"]["content"] == ""
    assert asked["choices"][0]["finish_reason"] == "stop"
    assert asked["tenuto"]["status"] == "paused"

    busy = post(http, "hello", session_id="ask-1")
    assert (busy.status_code, busy.headers["x-should-retry"]) == (409, "false")
    assert busy.json()["error"]["pause_id"] == asked["tenuto"]["approval_id"]

    url = f"/v1/agent/approvals/{asked['tenuto']['approval_id']}"
    decided = http.post(url, json={"decision": "approve"})
    assert (decided.status_code, decided.json()["id"]) == (200, asked["tenuto"]["run_id"])
    assert _rest(http, asked["tenuto"]["run_id"]) == ("That makes 84.", "completed")
    again = http.post(url, json={"decision": "deny"})
    assert (again.status_code, again.json()["error"]["code"]) == (409, "already_decided")


def test_a_streamed_call_that_needs_approval_says_so_and_ends_the_stream(http: httpx.Client) -> None:
    frames = events(_ask(http, "ask-2", stream=True).text)
    [required] = [data for event, data in frames if event == "agentic_tool_approval_required"]
    assert (required["session_id"], required["tool"]["name"]) == ("ask-2", "calculator__evaluate")
    assert required["arguments"] == {"expression": "12 * 7"}
    assert frames[-2][1]["tenuto"]["approval_id"] == required["approval_id"]
    assert frames[-1] == (None, "[DONE]")


def test_a_denial_and_its_reason_reach_the_model(http: httpx.Client) -> None:
    asked = _ask(http, "ask-3").json()["tenuto"]
    http.post(f"/v1/agent/approvals/{asked['approval_id']}", json={"decision": "deny", "message": "use your head"})
    text, status = _rest(http, asked["run_id"])
    assert "use your head" in text
    assert status == "completed"


@pytest.mark.parametrize(
    ("body", "status"),
    [({"decision": "maybe"}, 400), ({}, 400), ({"decision": "approve"}, 404)],
)
def test_a_wrong_answer_to_an_approval(http: httpx.Client, body: dict[str, str], status: int) -> None:
    assert http.post("/v1/agent/approvals/nothing", json=body).status_code == status


# What goes wrong


def test_errors_reach_the_official_client_as_its_own(openai_client: openai.OpenAI) -> None:
    create = openai_client.chat.completions.create
    with pytest.raises(openai.BadRequestError) as refused:
        create(model="default", messages=[user("a")], n=17)
    assert refused.value.param == "n"
    with pytest.raises(openai.BadRequestError) as long:
        create(model="default", messages=[user("a" * 10_000)])
    assert long.value.code == "context_length_exceeded"


def test_a_model_that_fails_is_an_error_whole_and_streamed(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as whole:
        openai_client.chat.completions.create(model="default", messages=[user("break")])
    assert whole.value.code == "generation_failed"
    stream = openai_client.chat.completions.create(model="default", messages=[user("break")], stream=True)
    pieces: list[str] = []
    with pytest.raises(openai.APIError) as streamed:
        pieces.extend(chunk.choices[0].delta.content or "" for chunk in stream)
    assert (streamed.value.code, "".join(pieces)) == ("generation_failed", "half")


def _status_at_the_end(http: httpx.Client, run_id: str) -> Any:
    frames = events(http.get(f"/v1/runs/{run_id}/events").text)
    assert frames[-1][1]["type"] == "run_done"
    return frames[-1][1]["status"]


def test_a_client_that_leaves_cancels_its_run(http: httpx.Client) -> None:
    body = {"messages": [user("slow")], "stream": True, "session_id": "leaver"}
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        run_id = response.headers["x-tenuto-run-id"]
        assert next(response.iter_lines()).startswith("data: ")
    assert _status_at_the_end(http, run_id) == "cancelled"
    assert http.get(f"/v1/runs/{run_id}").json()["status"] == "cancelled"


def test_a_client_that_leaves_an_unstreamed_request_cancels_it_too(http: httpx.Client) -> None:
    with pytest.raises(httpx.ReadTimeout):
        http.post("/v1/chat/completions", json={"messages": [user("slow")], "session_id": "impatient"}, timeout=0.3)
    [session] = [each for each in http.get("/v1/sessions?limit=100").json()["data"] if each["id"] == "impatient"]
    if session["open_run"] is not None:
        assert _status_at_the_end(http, session["open_run"]) == "cancelled"
    assert post(http, "hello", session_id="impatient").status_code == 200


def test_a_busy_session_refuses_and_its_run_can_be_cancelled(http: httpx.Client) -> None:
    body = {"messages": [user("slow")], "stream": True, "session_id": "busy"}
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        run_id = response.headers["x-tenuto-run-id"]
        refused = post(http, "hello", session_id="busy")
        cancelled = http.post(f"/v1/runs/{run_id}/cancel")
        text = response.read().decode()
    assert (refused.status_code, refused.json()["error"]["run_id"]) == (409, run_id)
    assert int(refused.headers["retry-after"]) >= 1
    assert cancelled.json()["status"] == "cancelled"
    assert events(text)[-2][1]["tenuto"]["status"] == "cancelled"


# Retries


@pytest.mark.parametrize("stream", [False, True])
def test_a_repeat_with_the_same_key_gets_the_same_run(http: httpx.Client, stream: bool) -> None:
    key = {"Idempotency-Key": f"key-{stream}"}
    first, again = (post(http, "once", key, stream=stream) for _ in range(2))
    other = post(http, "twice", key, stream=stream)
    assert first.headers["x-tenuto-run-id"] == again.headers["x-tenuto-run-id"]
    if stream:
        assert content(events(first.text)) == content(events(again.text)) == "once"
    else:
        assert first.json() == again.json()
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_mismatch")

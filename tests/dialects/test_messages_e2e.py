"""Anthropic's messages against a real server, with the official client and without."""

import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types import MessageParam, ToolParam

from tests.dialects import claude_code
from tests.dialects.conftest import RULES
from tests.dialects.test_messages_answer import data
from tests.e2e.server import Server, script
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

WEATHER: ToolParam = {
    "name": "weather",
    "description": "Tells it.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
RUN: dict[str, Any] = {"user": "run it", "calls": [{"name": "Bash", "arguments": {"Bash": "cd /here && ls"}}]}
THINKING: Any = {"type": "adaptive"}
KEY = "the-key"
VERSION = {"anthropic-version": "2023-06-01"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with room for an agent's tools."""
    folder = tmp_path_factory.mktemp("messages")
    running = Server(folder, script(folder / "model.json", [RUN, *RULES], cells=1 << 16, slots=4)).start()
    yield running
    running.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a key, two models, a small context and small bodies."""
    folder = tmp_path_factory.mktemp("guarded")
    other = script(folder / "other.json", cells=256)
    flags = ("--api-key", KEY, "--model", other, "--max-body-bytes", "20000")
    running = Server(folder, script(folder / "model.json", RULES, cells=256), flags).start()
    yield running
    running.close()


@pytest.fixture
def client(server: Server) -> Iterator[anthropic.Anthropic]:
    """The official client, as its users make it, but that it tries once."""
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=HANGS_S) as client:
        yield client


@pytest.fixture
async def async_client(server: Server) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0, timeout=HANGS_S) as client:
        yield client


def said(text: str) -> list[MessageParam]:
    return [{"role": "user", "content": text}]


def ask(http: httpx.Client, messages: list[Any], path: str = "/v1/messages", **more: Any) -> dict[str, Any]:
    response = http.post(path, json={"model": "default", "max_tokens": 512, "messages": messages, **more})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def computed_is_new(usage: dict[str, Any]) -> bool:
    """Whether nothing was computed again, by the server's own figures of each round."""
    rounds = usage["tenuto"]["rounds"]
    return all(one["computed_tokens"] == one["new_tokens"] for one in rounds) and usage["cache_read_input_tokens"] > 0


# The official client


def test_a_plain_answer_whole_and_streamed(client: anthropic.Anthropic) -> None:
    text = "Grüße — “\u2028\r\n” 🎈"
    whole = client.messages.create(model="default", max_tokens=100, messages=said(text))
    with client.messages.stream(model="default", max_tokens=100, messages=said(text)) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert [block.to_dict() for block in whole.content] == [{"type": "text", "text": text}]
    assert "".join(pieces) == text
    assert [block.to_dict() for block in final.content] == [{"type": "text", "text": text}]
    assert (final.stop_reason, final.stop_sequence, final.role) == ("end_turn", None, "assistant")
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert whole.model == final.model == "model"
    assert whole._request_id is not None


async def test_so_it_is_asynchronously(async_client: anthropic.AsyncAnthropic) -> None:
    whole = await async_client.messages.create(
        model="default", max_tokens=100, messages=said("think"), thinking=THINKING
    )
    async with async_client.messages.stream(
        model="default", max_tokens=100, messages=said("think"), thinking=THINKING
    ) as stream:
        final = await stream.get_final_message()
    assert [block.to_dict() for block in final.content] == [block.to_dict() for block in whole.content]
    assert [block.type for block in whole.content] == ["thinking", "text"]


def test_the_beta_client_is_answered_too(client: anthropic.Anthropic) -> None:
    answer = client.beta.messages.create(
        model="default", max_tokens=100, messages=[{"role": "user", "content": "hello"}], betas=["a-beta-of-tomorrow"]
    )
    assert answer.content[0].to_dict() == {"type": "text", "text": "hello"}


def test_limits_and_stop_sequences_cut_the_answer(client: anthropic.Anthropic) -> None:
    cut = client.messages.create(model="default", max_tokens=3, messages=said("abcdefgh"))
    stopped = client.messages.create(
        model="default", max_tokens=100, messages=said("abcdefgh"), stop_sequences=["xy", "ef"]
    )
    assert (cut.content[0].to_dict()["text"], cut.stop_reason) == ("abc", "max_tokens")
    assert (stopped.content[0].to_dict()["text"], stopped.stop_reason, stopped.stop_sequence) == (
        "abcd",
        "stop_sequence",
        "ef",
    )


def test_more_tokens_than_fit_the_context_are_cut_to_what_fits(client: anthropic.Anthropic) -> None:
    answer = client.messages.create(
        model="default",
        max_tokens=10**9,
        messages=said("hello"),
        timeout=HANGS_S,
        extra_headers={"x-tenuto-events": "0"},
    )
    assert answer.stop_reason == "end_turn"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_loop_of_two_turns_computes_only_what_is_new(client: anthropic.Anthropic, streamed: bool) -> None:
    messages = said(f"the weather in Ulm{'m' * streamed}")

    def turn() -> anthropic.types.Message:
        fields: Any = {"model": "default", "max_tokens": 512, "messages": messages, "tools": [WEATHER]}
        if not streamed:
            answer: anthropic.types.Message = client.messages.create(**fields)
            return answer
        with client.messages.stream(**fields) as stream:
            return stream.get_final_message()

    asked = turn()
    (call,) = [block for block in asked.content if block.type == "tool_use"]
    assert (asked.stop_reason, call.name, str(call.input["city"])[:3]) == ("tool_use", "weather", "Ulm")
    result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "sun"}]}
    messages += [asked.to_param(), {"role": "user", "content": [result]}]
    answered = turn()
    assert answered.content[0].to_dict() == {"type": "text", "text": "Take a hat: sun"}
    messages += [answered.to_param(), {"role": "user", "content": "thanks"}]
    again = turn()
    assert again.content[0].to_dict() == {"type": "text", "text": "thanks"}
    for answer in (answered, again):
        assert answer.usage.input_tokens < 100
        assert streamed or computed_is_new(answer.usage.to_dict())
    assert len({answer.id for answer in (asked, answered, again)}) == 3


def test_a_parsed_answer_is_the_model_that_was_asked_for(client: anthropic.Anthropic) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    answer = client.messages.create(
        model="default",
        max_tokens=100,
        messages=said('{"a": 7}'),
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )
    assert json.loads(answer.content[0].to_dict()["text"]) == {"a": 7}  # type: ignore[arg-type]  # JSON of any kind


def test_tokens_are_counted_as_they_will_be_read(client: anthropic.Anthropic) -> None:
    fields: Any = {"model": "default", "messages": said("hello"), "system": "Be kind.", "tools": [WEATHER]}
    counted = client.messages.count_tokens(**fields)
    answer = client.messages.create(max_tokens=100, **fields)
    usage = answer.usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_models_are_listed_in_anthropics_form(client: anthropic.Anthropic, http: httpx.Client) -> None:
    (model,) = client.models.list(limit=1000)
    assert (model.id, model.type, model.max_input_tokens) == ("model", "model", 1 << 16)
    assert client.models.retrieve("model").to_dict() == model.to_dict()
    assert http.get("/v1/models").json()["object"] == "list"


def test_models_come_page_by_page(guarded: Server) -> None:
    with anthropic.Anthropic(base_url=guarded.url, api_key=KEY, max_retries=0) as client:
        assert [model.id for model in client.models.list(limit=1)] == ["model", "other"]
        before = client.models.list(before_id="other")
        assert ([model.id for model in before.data], before.has_more) == (["model"], False)
        with pytest.raises(anthropic.BadRequestError, match="after_id"):
            client.models.list(after_id="none")


# Server tools


def test_the_servers_tools_are_told_beside_the_answer(http: httpx.Client) -> None:
    body = ask(http, said("what is 12 * 7?"))
    assert body["content"] == [{"type": "text", "text": "That makes 84."}]
    assert body["stop_reason"] == "end_turn"
    (call,) = body["tenuto"]["agentic_tool_calls"]
    assert (call["name"], call["result_content"]) == ("calculator__evaluate", "84")
    assert http.get(f"/v1/runs/{body['tenuto']['run_id']}").json()["status"] == "completed"


def test_a_server_of_ours_is_asked_for_by_its_name(http: httpx.Client) -> None:
    ours = [{"type": "url", "name": "calculator", "url": "https://example.org"}]
    body = ask(http, said("what is 12 * 7?"), mcp_servers=ours)
    assert body["tenuto"]["agentic_tool_calls"][0]["status"] == "completed"
    refused = http.post(
        "/v1/messages", json={"messages": said("hello"), "mcp_servers": [{"name": "github", "url": "https://a"}]}
    )
    assert refused.status_code == 400
    assert "--mcp-config" in refused.json()["error"]["message"]


def test_a_run_that_waits_for_a_person_says_so(http: httpx.Client) -> None:
    asked = ask(http, said("what is 12 * 7? ask first"), agent_permission="ask")
    assert (asked["stop_reason"], asked["content"]) == ("pause_turn", [])
    assert asked["tenuto"]["status"] == "paused"
    decided = http.post(f"/v1/agent/approvals/{asked['tenuto']['approval_id']}", json={"decision": "approve"})
    assert decided.status_code == 200


# Sessions


def test_reasoning_may_be_sent_back_or_left_out(http: httpx.Client) -> None:
    for system, kept in (("sent back", slice(None)), ("left out", slice(1, None))):
        first = ask(http, said("think"), thinking=THINKING, tools=[], system=system)
        messages = [*said("think"), {"role": "assistant", "content": first["content"][kept]}, *said("and on")]
        second = ask(http, messages, tools=[], system=system)
        assert second["tenuto"]["session_id"] == first["tenuto"]["session_id"]
        assert computed_is_new(second["usage"])


def test_a_session_is_named_by_our_header_alone(http: httpx.Client) -> None:
    body = {"messages": said("named"), "tools": []}
    first = http.post("/v1/messages", json=body, headers={"X-Tenuto-Session": "by-name"})
    assert first.headers["x-tenuto-session"] == "by-name"
    assert first.headers["x-tenuto-run-id"] == first.json()["tenuto"]["run_id"]
    assert len(http.get("/v1/sessions/by-name").json()["items"]) == 2
    wrong = http.post("/v1/messages", json=body, headers={"X-Tenuto-Session": "a/b"})
    assert (wrong.status_code, wrong.json()["error"]["details"]["param"]) == (400, "X-Tenuto-Session")
    for name in ("x-claude-code-session-id", "x-session-id", "x-session-affinity"):
        assert http.post("/v1/messages", json=body, headers={name: "a/b:c"}).status_code == 200


def test_a_repeat_of_a_key_gets_the_first_answer(http: httpx.Client) -> None:
    body = {"messages": said("once"), "tools": []}
    first, second = (http.post("/v1/messages", json=body, headers={"Idempotency-Key": "m-1"}) for _ in range(2))
    assert (first.json()["id"], first.json()["content"]) == (second.json()["id"], second.json()["content"])
    other = http.post("/v1/messages", json={**body, "top_k": 3}, headers={"Idempotency-Key": "m-1"})
    assert (other.status_code, other.json()["error"]["type"]) == (422, "invalid_request_error")


def test_an_image_that_nobody_sees_is_kept_and_read_as_a_note(http: httpx.Client) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "what is this"}, image]}]
    first = ask(http, messages, tools=[])
    assert first["content"][0]["text"].startswith("what is this\n[image: image/png")
    assert first["tenuto"]["diagnostics"][0]["kind"] == "left_out"
    assert first["tenuto"]["diagnostics"][0]["what"] == "messages[0].content[1]"
    messages += [{"role": "assistant", "content": first["content"]}, *said("and now")]
    second = ask(http, messages, tools=[])
    assert second["tenuto"]["session_id"] == first["tenuto"]["session_id"]
    assert computed_is_new(second["usage"])
    items = http.get(f"/v1/sessions/{first['tenuto']['session_id']}").json()["items"]
    assert items[0]["attachments"][0]["data"] == "aGk="


def test_a_client_that_leaves_stops_the_run(http: httpx.Client, client: anthropic.Anthropic) -> None:
    with client.messages.stream(model="default", max_tokens=4096, messages=said("slow")) as stream:
        first = next(iter(stream))
        assert first.type == "message_start"
        run: Any = first.message.to_dict()["tenuto"]
    deadline = time.monotonic() + HANGS_S
    while http.get(f"/v1/runs/{run['run_id']}").json()["status"] == "running" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert http.get(f"/v1/runs/{run['run_id']}").json()["status"] == "cancelled"


# Claude Code


def streamed(http: httpx.Client, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = http.post(claude_code.PATH, json=body, headers=claude_code.HEADERS)
    assert response.status_code == 200, response.text
    return data(response.content)


def test_claude_codes_conversation_computes_only_what_is_new(http: httpx.Client) -> None:
    # The template writes the tools first. No other test begins with this one, so none has had the rest computed.
    nobody_elses = [claude_code.tool("Conversation"), *claude_code.TOOLS]
    messages: list[dict[str, Any]] = [
        claude_code.user("<system-reminder>\nToday is a day.\n</system-reminder>\n", "fix the bug"),
        claude_code.reminder("Tools may be deferred."),
    ]
    usages = []
    for turn in range(3):
        events = streamed(http, claude_code.body(messages, conversation=f"c{turn}", tools=nobody_elses))
        usages.append(next(event for event in events if event["type"] == "message_delta")["usage"])
        text = "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
        content: list[Any] = [{"type": "text", "text": text}]
        messages += [{"role": "assistant", "content": content}, claude_code.user(f"go on, {turn}")]
    assert usages[0]["input_tokens"] > 10_000
    for usage in usages[1:]:
        assert computed_is_new(usage)
        assert usage["input_tokens"] < 200


def test_a_call_that_claude_code_has_tidied_up_is_still_the_call_that_the_model_made(http: httpx.Client) -> None:
    """It fills in defaults, and drops from commands the way to the folder where it is anyhow."""
    messages: list[dict[str, Any]] = [claude_code.user("run it")]
    first = streamed(http, claude_code.body(messages, conversation="t"))
    (made,) = (event["content_block"] for event in first if event["type"] == "content_block_start")
    tidied = {**made, "input": {"Bash": "ls", "timeout": 5}}
    result = {"type": "tool_result", "tool_use_id": made["id"], "content": "sun"}
    messages += [{"role": "assistant", "content": [tidied]}, {"role": "user", "content": [result]}]
    ends = []
    for _ in range(2):
        ends.append(next(e for e in streamed(http, claude_code.body(messages, conversation="t")) if "usage" in e))
        answer = {"role": "assistant", "content": [{"type": "text", "text": "Take a hat: sun"}]}
        messages += [answer, claude_code.user("thanks")]
    run = first[0]["message"]["tenuto"]["run_id"]
    assert [end["tenuto"]["run_id"] == run for end in ends] == [True, False], "the result resumes the run"
    assert all(computed_is_new(end["usage"]) and end["usage"]["input_tokens"] < 50 for end in ends)


def test_claude_codes_search_is_answered_without_a_tool_to_search(http: httpx.Client) -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    choice = {"type": "tool", "name": "web_search"}
    body = claude_code.body([claude_code.user("search for it")], conversation="s", tools=[search], tool_choice=choice)
    events = streamed(http, body)
    (end,) = (event for event in events if event["type"] == "message_delta")
    assert end["delta"]["stop_reason"] == "end_turn"
    assert "web_search_20250305" in json.dumps(end["tenuto"]["diagnostics"])


def test_what_claude_code_asks_besides(http: httpx.Client) -> None:
    assert http.head("/").status_code == 200  # whether anybody is there
    body = claude_code.body([claude_code.user("count me")], conversation="c")
    counted = http.post("/v1/messages/count_tokens?beta=true", json=body, headers=claude_code.HEADERS)
    assert counted.json()["input_tokens"] > 10_000


# Errors


def failing(guarded: Server, *, key: str = KEY, **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=guarded.url, api_key=key, max_retries=0, timeout=HANGS_S, **options)


@pytest.mark.parametrize(
    ("fields", "kind", "status", "words"),
    [
        ({"max_tokens": 0}, "invalid_request_error", 400, "max_tokens"),
        ({"model": "gpt-9"}, "not_found_error", 404, "there is no model 'gpt-9'"),
        ({"messages": said("a" * 30_000)}, "request_too_large", 413, "20000 bytes"),
        ({"messages": said("a" * 300)}, "invalid_request_error", 400, r"prompt is too long: \d+ tokens > 256 maximum"),
    ],
)
def test_an_error_is_told_as_anthropic_tells_it(
    guarded: Server, fields: dict[str, Any], kind: str, status: int, words: str
) -> None:
    asked: dict[str, Any] = {"model": "model", "max_tokens": 10, "messages": said("a"), "tools": [], **fields}
    with failing(guarded) as client, pytest.raises(anthropic.APIStatusError, match=words) as raised:
        client.messages.create(**asked)
    error = raised.value
    assert (error.status_code, error.type) == (status, kind)
    assert isinstance(error.body, dict)
    assert error.body["request_id"] == error.request_id
    assert str(error.request_id).startswith("req_")


def test_a_key_is_read_where_anthropics_clients_send_it(guarded: Server) -> None:
    with failing(guarded, key="wrong") as client, pytest.raises(anthropic.AuthenticationError) as raised:
        client.messages.create(model="model", max_tokens=10, messages=said("a"))
    assert raised.value.type == "authentication_error"
    assert raised.value.request_id is not None
    bearer = anthropic.Anthropic(base_url=guarded.url, auth_token=KEY, api_key=None, max_retries=0)
    with bearer, failing(guarded) as client:
        for each in (bearer, client):
            answer = each.messages.create(model="model", max_tokens=10, messages=said("a"), extra_body={"tools": []})
            assert answer.content[0].to_dict() == {"type": "text", "text": "a"}


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "kind"),
    [
        ("GET", "/v1/messages", {}, 405, "invalid_request_error"),
        ("GET", "/v1/nothing", {"headers": VERSION}, 404, "not_found_error"),
        ("GET", "/v1/models/nothing", {"headers": VERSION}, 404, "not_found_error"),
        ("POST", "/v1/messages", {"headers": {"origin": "https://evil.example"}}, 403, "permission_error"),
        ("POST", "/v1/messages", {"content": b"[", "headers": {"content-type": "application/json"}}, 400, None),
    ],
)
def test_whatever_is_wrong_has_anthropics_form(
    guarded: Server, method: str, path: str, more: dict[str, Any], status: int, kind: str | None
) -> None:
    with guarded.client() as http:
        headers = {"x-api-key": KEY, **more.get("headers", {})}
        response = http.request(method, path, **{**more, "headers": headers})
    body = response.json()
    assert (response.status_code, body["type"]) == (status, "error")
    assert body["error"]["type"] == (kind or "invalid_request_error")
    assert body["request_id"] == response.headers["request-id"]


def test_a_run_that_fails_is_an_error_whole_and_streamed(http: httpx.Client) -> None:
    body = {"messages": said("break"), "tools": []}
    whole = http.post("/v1/messages", json=body)
    assert (whole.status_code, whole.json()["error"]["type"]) == (500, "api_error")
    assert whole.headers["request-id"] == whole.json()["request_id"]
    response = http.post("/v1/messages", json={**body, "stream": True})
    error = data(response.content)[-1]
    assert (error["type"], error["request_id"]) == ("error", response.headers["request-id"])

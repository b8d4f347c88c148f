"""What clients send, as it was seen on their wire, and what they need of the answer. Each request is one of theirs."""

import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.dialects.test_openai_chat_e2e import WEATHER, user
from tests.e2e.server import Server, script

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"
PAGE = "https://chat.example"
PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


def said(answer: dict[str, Any]) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


def ask(http: httpx.Client, *messages: Any, headers: dict[str, str] | None = None, **body: Any) -> dict[str, Any]:
    response = http.post(CHAT, json={"messages": [*messages], **body}, headers=headers)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def left_out(answer: dict[str, Any]) -> list[str]:
    return [one["what"] for one in answer["tenuto"].get("diagnostics", []) if one["kind"] == "left_out"]


# Sessions


def test_opencode_sends_one_id_for_its_title_and_for_its_chat(http: httpx.Client) -> None:
    headers = {"x-session-id": "ses_5f0c:1/a", "x-session-affinity": "ses_5f0c:1/a"}
    system = {"role": "system", "content": "You write titles."}
    title = ask(http, system, user("a long story"), headers=headers, model="script:latest", prompt_cache_key="k/1")
    chat = ask(http, {**system, "content": "You are a coding agent."}, user("a long story"), headers=headers)
    told: list[Any] = [{**system, "content": "You are a coding agent."}, user("a long story")]
    told += [{"role": "assistant", "content": said(chat)}, user("go on")]
    again = ask(http, *told, headers=headers)
    assert title["session_id"] != chat["session_id"] == again["session_id"]


def test_of_two_equal_conversations_each_client_goes_on_with_its_own(http: httpx.Client) -> None:
    ids = {name: ask(http, user("twins"), headers={"X-Claude-Code-Session-Id": name})["session_id"] for name in "ab"}
    told = [user("twins"), {"role": "assistant", "content": "twins"}, user("and now?")]
    assert ask(http, *told, headers={"X-Claude-Code-Session-Id": "b"})["session_id"] == ids["b"]


# Figures


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_adds_up_usage_counts_each_token_once(openai_client: openai.OpenAI, stream: bool) -> None:
    """The AI SDK and every cost counter add up what each request says."""
    create = openai_client.chat.completions.create
    messages: list[ChatCompletionMessageParam] = [user("the weather in Ulm")]
    asked = create(model="default", messages=messages, tools=[WEATHER])
    assert asked.choices[0].message.tool_calls is not None
    echo: Any = asked.choices[0].message.model_dump(exclude_none=True)
    result: Any = {"role": "tool", "tool_call_id": asked.choices[0].message.tool_calls[0].id, "content": "sun"}
    messages += [echo, result]
    if stream:
        chunks = list(
            create(
                model="default",
                messages=messages,
                tools=[WEATHER],
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        id, usage = chunks[-1].id, chunks[-1].usage
        assert {chunk.id for chunk in chunks} == {id}
    else:
        answer = create(model="default", messages=messages, tools=[WEATHER])
        id, usage = answer.id, answer.usage
    assert asked.usage is not None
    assert usage is not None
    assert id != asked.id
    assert usage.completion_tokens == len("Take a hat: sun") + 1
    run = usage.model_dump()["tenuto"]["run"]
    assert run["completion_tokens"] == asked.usage.completion_tokens + usage.completion_tokens


def test_a_conversation_that_is_too_long_is_told_so_that_litellm_knows_it(http: httpx.Client) -> None:
    response = http.post(CHAT, json={"messages": [user("a" * 10_000)], "tools": []})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert error["message"].startswith("This model's maximum context length is 4096 tokens. However, your messages")


# Names of models


@pytest.mark.parametrize("name", ["gpt-4o-mini", "claude-opus-4-8", "model:latest", "openai/model", ""])
def test_a_model_that_is_served_alone_answers_to_any_name(openai_client: openai.OpenAI, name: str) -> None:
    answer = openai_client.chat.completions.create(model=name, messages=[user("hello")])
    assert (answer.model, answer.choices[0].message.content) == ("model", "hello")


# What was refused though common


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"chat_template_kwargs": {"enable_thinking": False}}, ["chat_template_kwargs"]),
        ({"web_search_options": {}}, ["web_search_options"]),
        ({"metadata": {"trace": {"id": 1, "tags": ["a"]}}}, []),
        ({"tools": [WEATHER, {"type": "web_search", "external_web_access": True}]}, ["tools[1]"]),
        ({"tools": [{"type": "web_search"}]}, ["tools[0]"]),
        ({"stop": ["<|im_end|>", "<|eot_id|>", "</s>", "<end_of_turn>", "<|end|>"]}, []),
        ({"max_tokens": 0}, []),
        ({"max_completion_tokens": 0}, []),
        ({"repetition_penalty": 0}, []),
    ],
)
def test_what_clients_send_besides_is_no_error(http: httpx.Client, body: dict[str, Any], told: list[str]) -> None:
    answer = ask(http, user("hello"), **body)
    assert (said(answer), left_out(answer)) == ("hello", told)


def test_a_stream_tells_what_was_left_out_too(http: httpx.Client) -> None:
    body = {"messages": [user("hello")], "stream": True, "chat_template_kwargs": {"thinking": True}}
    chunks = [json.loads(line[6:]) for line in http.post(CHAT, json=body).text.splitlines() if line[:7] == "data: {"]
    assert [one["what"] for one in chunks[-1]["tenuto"]["diagnostics"]] == ["chat_template_kwargs"]


def test_a_text_completion_of_no_tokens_is_one_of_the_usual_length(http: httpx.Client) -> None:
    answer = http.post("/v1/completions", json={"prompt": "hello", "max_tokens": 0, "repetition_penalty": 0})
    assert answer.status_code == 200


def test_results_without_their_calls_go_on_with_the_same_prefix(http: httpx.Client) -> None:
    """A client that trims its history drops the call and keeps the result."""
    trimmed: list[Any] = [{"role": "tool", "tool_call_id": "call_lost", "content": "sun"}, user("so?")]
    first = ask(http, *trimmed)
    again = ask(http, *trimmed, {"role": "assistant", "content": said(first)}, user("and now?"))
    assert again["session_id"] == first["session_id"]
    (round,) = again["usage"]["tenuto"]["rounds"]
    assert round["computed_tokens"] == round["new_tokens"]


def test_system_messages_may_be_several_and_late(http: httpx.Client) -> None:
    system = {"role": "system", "content": "one"}
    told: list[Any] = [system, {**system, "content": "two"}, user("hello"), {**system, "content": "three"}]
    first = ask(http, *told)
    again = ask(http, *told, {"role": "assistant", "content": said(first)}, user("and now?"))
    assert (said(again), again["session_id"]) == ("and now?", first["session_id"])
    appended = ask(http, user("more"), {**system, "content": "four"}, session_id=again["session_id"])
    assert appended["choices"][0]["finish_reason"] == "stop"


def test_a_screenshot_does_not_end_a_conversation(http: httpx.Client) -> None:
    shown: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "look"}, PNG]}]
    first = ask(http, *shown)
    assert left_out(first) == ["image"]
    assert "[image: image/png, not shown: the model reads text only]" in said(first), "the model repeats what it read"
    again = ask(http, *shown, {"role": "assistant", "content": said(first)}, user("and now?"))
    assert (said(again), again["session_id"]) == ("and now?", first["session_id"])
    items = http.get(f"/v1/sessions/{first['session_id']}").json()["items"]
    assert items[0]["attachments"][0]["data"] == "aGk="


def test_a_tools_result_may_be_a_picture(http: httpx.Client) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "sun"}, PNG]}
    told = [user("shoot"), {"role": "assistant", "content": None, "tool_calls": [call]}, result]
    answer = ask(http, *told, tools=[WEATHER])
    assert said(answer) == "Take a hat: sun\n[image: image/png, not shown: the model reads text only]"


# Paths and bodies


@pytest.mark.parametrize("path", ["/chat/completions", "//v1//chat/completions", "/v1/v1/chat/completions"])
def test_a_base_url_may_lack_the_prefix_or_have_it_twice(http: httpx.Client, path: str) -> None:
    response = http.post(path, json={"messages": [user("hello")]})
    assert (response.status_code, said(response.json())) == (200, "hello")


@pytest.mark.parametrize("path", ["/models", "//v1/models", "/v1/models"])
def test_models_are_found_without_the_prefix(http: httpx.Client, path: str) -> None:
    assert [model["id"] for model in http.get(path).json()["data"]][:1] == ["model"]


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_body_may_be_compressed(http: httpx.Client, encoding: str, pack: Any) -> None:
    body = json.dumps({"messages": [user("hello")], "metadata": {"a": "b" * 300_000}}).encode()
    headers = {"content-type": "application/json", "content-encoding": encoding}
    response = http.post(CHAT, content=pack(body), headers=headers)
    assert (response.status_code, said(response.json())) == (200, "hello")


def test_a_bomb_is_refused_by_what_comes_out(http: httpx.Client) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    response = http.post(CHAT, content=gzip.compress(b" " * (256 << 20)), headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")


# Pages in browsers


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a key, for pages of one origin, reached from a container too."""
    folder = tmp_path_factory.mktemp("pages")
    more = ("--allowed-origins", PAGE, "--allowed-hosts", "host.docker.internal", "--api-key", "sesame")
    server = Server(folder, script(folder / "model.json"), more).start()
    yield server
    server.close()


@pytest.mark.parametrize("path", [CHAT, "/models", "/mcp", "/v1/sessions/s"])
def test_a_page_may_ask_first_without_its_key(guarded: Server, path: str) -> None:
    asked = {"origin": PAGE, "access-control-request-method": "POST"}
    with guarded.client() as client:
        response = client.options(path, headers={**asked, "access-control-request-headers": "authorization"})
        foreign = client.options(path, headers={**asked, "origin": "https://evil.example"})
    assert (response.status_code, foreign.status_code) == (204, 403)
    assert response.headers["access-control-allow-origin"] == PAGE
    assert response.headers["access-control-allow-headers"] == "authorization"


def test_a_page_reads_answers_errors_and_streams(guarded: Server) -> None:
    key = {"authorization": "Bearer sesame"}
    with guarded.client(headers={"origin": PAGE}) as client:
        body = {"messages": [user("hello")]}
        answers = [
            client.post(CHAT, json=body, headers=key),
            client.post(CHAT, json={**body, "stream": True}, headers=key),
            client.post(CHAT, json=body),
            client.get("/v1/nothing", headers=key),
            client.get("/mcp", headers=key),
        ]
    assert [answer.status_code for answer in answers[:4]] == [200, 200, 401, 404]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert answer.headers["access-control-expose-headers"] == "*"
    assert answers[0].headers["x-tenuto-session"]


def test_a_container_reaches_the_server_of_its_host(guarded: Server) -> None:
    headers = {"host": "host.docker.internal:8420", "authorization": "Bearer sesame"}
    with guarded.client(headers=headers) as client:
        assert client.post(CHAT, json={"messages": [user("hello")]}).status_code == 200

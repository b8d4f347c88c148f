"""An answer whose beginning the client has written goes on from it: only what is new is told, and all of it is kept."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest

from tests.e2e.server import Server, script
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

RULES: list[dict[str, Any]] = [
    {"user": "sum", "text": "That makes 84, and no more."},
    {"user": "json", "text": '{"a": 1}'},
    {"user": "look", "calls": [{"name": "look", "arguments": {"at": "Ulm"}}]},
    {"tool_contains": "sun", "text": "Take a hat: sun."},
]
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
ASKED: list[Any] = [{"role": "user", "content": "sum"}, {"role": "assistant", "content": "That makes"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("prefill")
    running = Server(folder, script(folder / "model.json", RULES, cells=4096)).start()
    yield running
    running.close()


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def chat(http: httpx.Client, messages: list[Any], **more: Any) -> dict[str, Any]:
    response = http.post("/v1/chat/completions", json={"messages": messages, "tools": [], **more})
    found: dict[str, Any] = response.raise_for_status().json()
    return found


def text(answer: dict[str, Any]) -> str:
    found: str = answer["choices"][0]["message"]["content"]
    return found


def test_every_dialect_goes_on_from_a_last_message_of_the_assistants(server: Server) -> None:
    rest = " 84, and no more."
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=HANGS_S) as client:
        ask = client.chat.completions.create
        whole = ask(model="m", messages=ASKED, tools=[])
        assert whole.choices[0].message.content == rest
        chunks = ask(model="m", messages=ASKED, tools=[], stream=True, extra_body={"continue_final_message": True})
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == rest
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=HANGS_S) as claude:
        said = claude.messages.create(model="m", max_tokens=100, messages=ASKED, tools=[])
        assert [block.text for block in said.content if block.type == "text"] == [rest]
    message = ollama.Client(server.url, timeout=HANGS_S).chat("m", ASKED).message
    assert message.content == rest


def test_the_whole_answer_is_kept_and_the_conversation_goes_on_from_it(http: httpx.Client) -> None:
    first = chat(http, ASKED, session_id="kept", session_mode="replace")
    document = http.get("/v1/sessions/kept").json()
    assert [item.get("text") for item in document["items"]] == ["sum", "That makes 84, and no more."]
    assert first["usage"]["completion_tokens"] == len(" 84, and no more.") + 1
    whole = {"role": "assistant", "content": "That makes 84, and no more."}
    again = [ASKED[0], whole, {"role": "user", "content": "so"}]
    later = chat(http, again, session_id="kept")
    assert text(later) == "so"
    assert later["usage"]["tenuto"]["computed_tokens"] <= len("so") + 4


def test_a_client_that_wants_none_of_it_says_so(http: httpx.Client) -> None:
    assert text(chat(http, ASKED, continue_final_message=False)) == "That makes 84, and no more."


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": ASKED, "continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"messages": ASKED[:1], "continue_final_message": True}, "continue_final_message"),
        ({"messages": ASKED[:1], "add_generation_prompt": False}, "add_generation_prompt"),
        ({"messages": ASKED, "response_format": {"type": "json_object"}}, "messages"),
        ({"messages": ASKED, "tools": [LOOK], "tool_choice": "required"}, "messages"),
    ],
)
def test_what_cannot_be_gone_on_with_is_refused(http: httpx.Client, body: dict[str, Any], param: str) -> None:
    refused = http.post("/v1/chat/completions", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


def test_a_form_holds_for_the_beginning_too(http: httpx.Client) -> None:
    begun = [{"role": "user", "content": "json"}, {"role": "assistant", "content": '{"a":'}]
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    assert json.loads('{"a":' + text(chat(http, begun, response_format=form))) == {"a": 1}


def test_stop_strings_do_not_look_at_what_the_client_has_written(http: httpx.Client) -> None:
    assert text(chat(http, ASKED, stop=["makes", "and"])) == " 84, "


def test_the_answer_after_a_result_may_be_begun_too(http: httpx.Client) -> None:
    body: dict[str, Any] = {"session_id": "result", "tools": [LOOK]}
    asked = chat(http, [{"role": "user", "content": "look"}], **body)["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "content": "sun"}
    begun = {"role": "assistant", "content": "Take a"}
    told = chat(http, [{"role": "user", "content": "look"}, asked, result, begun], **body)
    assert text(told) == " hat: sun."
    items = http.get("/v1/sessions/result").json()["items"]
    assert items[-1]["text"] == "Take a hat: sun."


def test_white_space_at_the_seam_is_told_once(http: httpx.Client) -> None:
    begun = [ASKED[0], {"role": "assistant", "content": "That makes "}]
    assert text(chat(http, begun)) == "84, and no more."


def test_tokens_of_a_begun_answer_are_counted_with_the_prompt(http: httpx.Client) -> None:
    bare = http.post("/v1/chat/completions/input_tokens", json={"messages": ASKED[:1], "tools": []}).json()
    begun = http.post("/v1/chat/completions/input_tokens", json={"messages": ASKED, "tools": []}).json()
    assert begun["input_tokens"] == bare["input_tokens"] + len("That makes")

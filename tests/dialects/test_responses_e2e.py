"""Responses against a real server, with the official client, sync and async, and without."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel

from tests.e2e.server import Server
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "Tells it.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
CALCULATOR: Any = {"type": "mcp", "server_label": "calculator", "require_approval": "never"}


class Point(BaseModel):
    a: int


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def post(http: httpx.Client, said: Any, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    return http.post("/v1/responses", json={"input": said, **body}, headers=headers)


def computed_is_new(answer: Any) -> None:
    """Each round has computed no more than what had no cache."""
    rounds = answer["usage"]["tenuto"]["rounds"]
    assert [one["computed_tokens"] for one in rounds] == [one["new_tokens"] for one in rounds]
    assert rounds[0]["cached_tokens"] > 0


@pytest.fixture
async def async_client(server: Server) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=HANGS_S
    ) as client:
        yield client


def test_a_plain_response_whole_and_streamed(openai_client: openai.OpenAI) -> None:
    text = "Grüße — “\u2028\r\n” 🎈"
    whole = openai_client.responses.create(model="default", input=text, metadata={"a": "b"})
    assert (whole.output_text, whole.status, whole.metadata) == (text, "completed", {"a": "b"})
    with openai_client.responses.stream(model="default", input=text) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == final.output_text == text
    assert final.usage is not None
    assert whole.usage is not None
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.id != whole.id


async def test_a_tool_loop_over_two_turns(async_client: openai.AsyncOpenAI) -> None:
    history: list[Any] = [user("the weather in Ulm")]
    first = await async_client.responses.create(model="default", input=history, tools=[WEATHER])
    (call,) = first.output
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Ulm"})
    history += [*first.output, {"type": "function_call_output", "call_id": call.call_id, "output": "sun"}]
    async with async_client.responses.stream(model="default", input=history, tools=[WEATHER]) as stream:
        second = await stream.get_final_response()
    assert second.output_text == "Take a hat: sun"
    computed_is_new(second.to_dict())
    history += [*second.output, user("abc")]
    third = await async_client.responses.create(model="default", input=history, tools=[WEATHER])
    assert third.output_text == "abc"
    computed_is_new(third.to_dict())


def test_streamed_calls_are_gathered_by_the_official_client(openai_client: openai.OpenAI) -> None:
    with openai_client.responses.stream(model="default", input="the weather in Ulm", tools=[WEATHER]) as stream:
        pieces = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
        (call,) = stream.get_final_response().output
    assert call.type == "function_call"
    assert json.loads("".join(pieces)) == json.loads(call.arguments) == {"city": "Ulm"}


def test_a_parsed_answer_is_the_model_that_was_asked_for(openai_client: openai.OpenAI) -> None:
    answer = openai_client.responses.parse(model="default", input='{"a": 7}', text_format=Point)
    assert answer.output_parsed == Point(a=7)


def test_reasoning_is_an_item_of_its_own(http: httpx.Client) -> None:
    thought, said = post(http, "think").json()["output"]
    assert (thought["type"], thought["content"][0]["text"]) == ("reasoning", "let me see")
    assert (said["type"], said["content"][0]["text"]) == ("message", "done")


def test_a_limit_makes_a_response_incomplete(http: httpx.Client) -> None:
    answer = post(http, "abcdefgh", max_output_tokens=3).json()
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert answer["output"][0]["content"][0]["text"] == "abc"


def test_a_warm_up_with_nothing_to_say_is_answered(http: httpx.Client) -> None:
    assert post(http, "", max_output_tokens=1).status_code == 200


def test_a_servers_tool_is_called_and_shown(http: httpx.Client) -> None:
    first = post(http, [user("12 * 7")], tools=[CALCULATOR]).json()
    listed, made, said = first["output"]
    assert (listed["type"], [tool["name"] for tool in listed["tools"]]) == ("mcp_list_tools", ["evaluate"])
    assert (made["type"], made["server_label"], made["name"], made["output"]) == (
        "mcp_call",
        "calculator",
        "evaluate",
        "84",
    )
    assert said["content"][0]["text"] == "That makes 84."
    second = post(http, [user("12 * 7"), *first["output"], user("abc")], tools=[CALCULATOR]).json()
    assert [item["type"] for item in second["output"]] == ["message"], "it has the list already"
    computed_is_new(second)
    assert second["tenuto"]["session_id"] == first["tenuto"]["session_id"]


def test_a_servers_call_is_read_again_where_its_session_is_not_known(http: httpx.Client) -> None:
    first = post(http, [user("12 * 7")], tools=[CALCULATOR], user="once").json()
    again = [user("12 * 7"), *first["output"][:2]]
    answer = post(http, [*again, user("then")], tools=[CALCULATOR], user="another").json()
    assert answer["tenuto"]["session_id"] != first["tenuto"]["session_id"]
    assert answer["status"] == "completed"
    counted = http.post("/v1/responses/input_tokens", json={"input": [*again, user("then")]}).json()
    shorter = http.post("/v1/responses/input_tokens", json={"input": [user("12 * 7"), user("then")]}).json()
    assert counted["input_tokens"] > shorter["input_tokens"]


@pytest.mark.parametrize("approve", [True, False])
@pytest.mark.parametrize("stream", [True, False])
def test_an_approval_is_asked_for_and_answered(http: httpx.Client, approve: bool, stream: bool) -> None:
    tools = [CALCULATOR | {"require_approval": "always"}]
    first = post(http, "12 * 7", tools=tools).json()
    *_, asked = first["output"]
    assert (first["status"], asked["type"], asked["name"]) == ("completed", "mcp_approval_request", "evaluate")
    word = {"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": approve, "reason": "later"}
    history = [user("12 * 7"), *first["output"], word]
    response = post(http, history, tools=tools, stream=stream)
    second = json.loads(response.text.split("data: ")[-1])["response"] if stream else response.json()
    made, said = second["output"]
    assert (made["type"], made["approval_request_id"]) == ("mcp_call", asked["id"])
    assert second["id"] != first["id"]
    assert (made["output"] == "84") is approve
    assert said["content"][0]["text"].startswith("That makes 84." if approve else "Then not:")
    assert post(http, history, tools=tools).status_code == 409
    third = post(http, [*history, *second["output"], user("abc")], tools=tools).json()
    computed_is_new(third)


def test_a_session_is_named_in_the_header(http: httpx.Client) -> None:
    first = post(http, "one " * 100, {"X-Tenuto-Session": "responses-goes-on"})
    second = post(http, "two", {"X-Tenuto-Session": "responses-goes-on"})
    assert first.headers["x-tenuto-session"] == second.json()["tenuto"]["session_id"] == "responses-goes-on"
    computed_is_new(second.json())


def test_a_repeat_with_a_key_gets_the_first_answer(http: httpx.Client) -> None:
    key = {"Idempotency-Key": "responses-once"}
    first, again = (post(http, "abc", key).json() for _ in range(2))
    assert (first["id"], first["output"]) == (again["id"], again["output"])
    assert post(http, "abcd", key).status_code == 422


def test_an_input_that_is_too_long_is_told_as_clients_know_it(http: httpx.Client) -> None:
    for stream in (False, True):
        response = post(http, "long " * 2000, stream=stream)
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "context_length_exceeded"


def test_a_failure_is_an_error_or_the_last_event(http: httpx.Client) -> None:
    assert post(http, "break").status_code == 500
    last = post(http, "break", stream=True).text.strip().split("\n\n")[-1]
    assert last.startswith("event: response.failed\n")


def test_unknown_models_and_approvals_are_errors_in_openais_form(openai_client: openai.OpenAI) -> None:
    answer: Any = {"type": "mcp_approval_response", "approval_request_id": "mcpr_none", "approve": True}
    nonsense: Any = [{"type": "nonsense"}]
    with pytest.raises(openai.NotFoundError):
        openai_client.responses.create(model="default", input=[answer])
    with pytest.raises(openai.BadRequestError):
        openai_client.responses.create(model="default", input=nonsense)


def test_the_tokens_of_an_input_are_counted(openai_client: openai.OpenAI) -> None:
    count = openai_client.responses.input_tokens.count(model="default", input="abc", tools=[WEATHER])
    whole = openai_client.responses.create(model="default", input="abc", tools=[WEATHER])
    assert whole.usage is not None
    assert count.input_tokens == whole.usage.input_tokens
    assert count.object == "response.input_tokens"

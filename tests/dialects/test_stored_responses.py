"""Responses that are kept: read again, followed, gone on from, cancelled and deleted, with the official client."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.dialects.test_responses_e2e import CALCULATOR, WEATHER, computed_is_new, user
from tests.e2e.server import Server

pytestmark = pytest.mark.slow


USER = "of the stored responses"
"""Requests of other tests continue no conversation of these."""


def post(http: httpx.Client, said: Any, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    return http.post("/v1/responses", json={"input": said, "user": USER, **body}, headers=headers)


def read(stream: httpx.Response, most: int | None = None) -> list[Any]:
    """The events of a stream, up to so many."""
    found: list[Any] = []
    for line in stream.iter_lines():
        if line.startswith("data: "):
            found.append(json.loads(line[6:]))
        if len(found) == most:
            break
    return found


def streamed(http: httpx.Client, id: str, **query: Any) -> list[Any]:
    with http.stream("GET", f"/v1/responses/{id}", params={"stream": "true", **query}) as stream:
        assert stream.status_code == 200, stream.read()
        return read(stream)


def ended(http: httpx.Client, id: str) -> Any:
    """A response once it is not in progress any more."""
    for _ in range(400):
        found = http.get(f"/v1/responses/{id}").raise_for_status().json()
        if found["status"] != "in_progress":
            return found
        time.sleep(0.02)
    raise AssertionError("it does not end")


def numbers(events: list[Any]) -> list[int]:
    return [event["sequence_number"] for event in events if event["type"] != "keepalive"]


@pytest.mark.parametrize(
    ("said", "tools"), [("abc", None), ("think", None), ("12 * 7", [CALCULATOR]), ("the weather in Ulm", [WEATHER])]
)
def test_a_response_is_the_same_whenever_it_is_read(http: httpx.Client, said: str, tools: Any) -> None:
    body = {"input": said, "user": USER, "metadata": {"a": "b"}, **({} if tools is None else {"tools": tools})}
    with http.stream("POST", "/v1/responses", json={**body, "stream": True}) as stream:
        told = read(stream)
    id = told[-1]["response"]["id"]
    assert numbers(told) == [*range(len(told))]
    assert http.get(f"/v1/responses/{id}").json() == told[-1]["response"]
    assert streamed(http, id) == told
    assert streamed(http, id, starting_after=2) == told[3:]
    assert streamed(http, id, starting_after=10_000) == []


def test_the_official_client_reads_follows_and_deletes(openai_client: openai.OpenAI) -> None:
    responses = openai_client.responses
    made = responses.create(model="default", user=USER, input="abc", instructions="Be brief.")
    again = responses.retrieve(made.id)
    assert again == made
    assert again.instructions == "Be brief."
    events = [*responses.retrieve(made.id, stream=True, starting_after=1)]
    assert [event.sequence_number for event in events] == [*range(2, 2 + len(events))]
    assert brought(openai_client, made.id) == ["abc"]
    responses.delete(made.id)
    asks: list[Any] = [responses.retrieve, responses.delete, responses.cancel, responses.input_items.list]
    for ask in asks:
        with pytest.raises(openai.NotFoundError, match=f"Response with id '{made.id}' not found"):
            ask(made.id)


def brought(client: openai.OpenAI, id: str) -> list[str]:
    """The texts of the messages that a response's request brought."""
    items: list[Any] = [*client.responses.input_items.list(id)]
    return [item.content[0].text for item in items]


def test_what_is_not_to_be_stored_is_not_found(http: httpx.Client) -> None:
    answer = post(http, "abc", store=False).json()
    assert not answer["store"]
    assert http.get(f"/v1/responses/{answer['id']}").status_code == 404


# What comes after


def test_a_chain_goes_on_in_its_session(openai_client: openai.OpenAI) -> None:
    create = openai_client.responses.create
    first = create(model="default", user=USER, input="one", instructions="Be brief.")
    second = create(model="default", user=USER, input="two", instructions="Be brief.", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    ours: list[Any] = [first.to_dict(), second.to_dict()]
    computed_is_new(ours[1])
    assert ours[0]["tenuto"]["session_id"] == ours[1]["tenuto"]["session_id"]
    assert brought(openai_client, second.id) == ["two"], "what the request brought, and not what came before it"


def session_of(http: httpx.Client, answer: Any) -> list[Any]:
    session: list[Any] = http.get(f"/v1/sessions/{answer['tenuto']['session_id']}").json()["items"]
    return session


def texts(items: list[Any]) -> list[tuple[str, str]]:
    return [(item["kind"], item["text"]) for item in items]


def test_instructions_hold_for_one_response(http: httpx.Client) -> None:
    first = post(http, "one", instructions="Be brief.").json()
    second = post(http, "two", previous_response_id=first["id"]).json()
    said = [("user", "one"), ("assistant", "one"), ("user", "two"), ("assistant", "two")]
    assert texts(session_of(http, second)) == said
    third = post(http, "three", previous_response_id=second["id"], instructions="Rhyme.").json()
    assert texts(session_of(http, third)) == [
        ("system", "Rhyme."),
        *said,
        ("user", "three"),
        ("assistant", "three"),
    ]
    assert texts(session_of(http, first)) == [("system", "Be brief."), *said[:2]], "what was said there stays"


def test_a_response_before_the_last_is_left_at_its_end(http: httpx.Client) -> None:
    first = post(http, "one").json()
    second = post(http, "two", previous_response_id=first["id"]).json()
    fork = post(http, "three", previous_response_id=first["id"]).json()
    deeper = post(http, "four", previous_response_id=fork["id"]).json()
    again = post(http, "five", previous_response_id=fork["id"]).json()
    words = [text for kind, text in texts(session_of(http, again)) if kind == "user"]
    assert words == ["one", "three", "five"]
    assert [text for kind, text in texts(session_of(http, deeper)) if kind == "user"] == ["one", "three", "four"]
    assert [text for kind, text in texts(session_of(http, second)) if kind == "user"] == ["one", "two"]
    rounds = fork["usage"]["tenuto"]["rounds"]
    assert rounds[0]["computed_tokens"] <= rounds[0]["new_tokens"] + 1


@pytest.mark.parametrize("previous", ["resp_nobodys", "", "abc"])
def test_an_unknown_response_is_no_empty_history(openai_client: openai.OpenAI, previous: str) -> None:
    with pytest.raises(openai.BadRequestError, match=r"Previous response with id .* not found") as caught:
        openai_client.responses.create(model="default", user=USER, input="x", previous_response_id=previous)
    assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")


def test_a_call_gets_its_result_by_the_response_that_made_it(http: httpx.Client) -> None:
    first = post(http, "the weather in Ulm", tools=[WEATHER]).json()
    call = first["output"][0]["call_id"]

    def result(text: str) -> Any:
        return [{"type": "function_call_output", "call_id": call, "output": text}]

    second = post(http, result("sun"), tools=[WEATHER], previous_response_id=first["id"]).json()
    assert second["output"][0]["content"][0]["text"] == "Take a hat: sun"
    listed = http.get(f"/v1/responses/{second['id']}/input_items").json()["data"]
    assert [(item["type"], item["output"]) for item in listed] == [("function_call_output", "sun")]
    other = post(http, result("more sun"), tools=[WEATHER], previous_response_id=first["id"]).json()
    assert other["output"][0]["content"][0]["text"] == "Take a hat: more sun", "it leaves the first where it was"
    assert other["tenuto"]["session_id"] != second["tenuto"]["session_id"]


def test_both_kinds_of_calls_of_a_round_have_their_results_in_a_fork(http: httpx.Client) -> None:
    tools = [CALCULATOR, WEATHER]
    first = post(http, "both", tools=tools).json()
    (call,) = [item["call_id"] for item in first["output"] if item["type"] == "function_call"]
    result = [{"type": "function_call_output", "call_id": call, "output": "sun"}]
    answers = [post(http, result, tools=tools, previous_response_id=first["id"]).json() for _ in range(2)]
    ones, others = (
        [(item["text"]) for item in session_of(http, each) if item["kind"] == "tool_result"] for each in answers
    )
    assert ones == others == ["84", "sun"]


def approval(asked: Any) -> dict[str, Any]:
    return {"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": True}


def test_an_approval_is_given_by_what_comes_after(http: httpx.Client) -> None:
    tools = [CALCULATOR | {"require_approval": "always"}]
    first = post(http, "12 * 7", tools=tools).json()
    asked = first["output"][-1]
    second = post(http, [approval(asked)], tools=tools, previous_response_id=first["id"]).json()
    assert second["output"][-1]["content"][0]["text"] == "That makes 84."
    assert second["id"] != first["id"]
    assert http.get(f"/v1/responses/{first['id']}").json() == first
    assert http.get(f"/v1/responses/{second['id']}").json() == second
    third = post(http, "abc", previous_response_id=second["id"]).json()
    assert third["tenuto"]["session_id"] == first["tenuto"]["session_id"]


def test_an_approval_is_no_answer_to_a_response_that_did_not_ask_for_it(http: httpx.Client) -> None:
    tools = [CALCULATOR | {"require_approval": "always"}]
    first, other = post(http, "12 * 7", tools=tools).json(), post(http, "of something else").json()
    word = [approval(first["output"][-1])]
    refused = post(http, word, tools=tools, previous_response_id=other["id"])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "previous_response_id")
    second = post(http, word, tools=tools, previous_response_id=first["id"])
    assert second.json()["output"][-1]["content"][0]["text"] == "That makes 84.", "nothing was decided before"


def test_no_token_is_counted_in_the_response_that_asked_and_in_the_one_that_was_allowed(http: httpx.Client) -> None:
    tools = [CALCULATOR | {"require_approval": "always"}]
    first = post(http, "12 * 7", tools=tools).json()
    second = post(http, [approval(first["output"][-1])], tools=tools, previous_response_id=first["id"]).json()
    run = second["usage"]["tenuto"]["run"]
    each = [first["usage"], second["usage"]]
    assert sum(usage["output_tokens"] for usage in each) == run["completion_tokens"]
    assert sum(usage["tenuto"]["computed_tokens"] for usage in each) == run["computed_tokens"]
    assert http.get(f"/v1/responses/{second['id']}").json() == second


def test_what_comes_with_an_approval_is_refused_and_not_lost(http: httpx.Client) -> None:
    tools = [CALCULATOR | {"require_approval": "always"}]
    first = post(http, "12 * 7", tools=tools).json()
    word = approval(first["output"][-1])
    refused = post(http, [user("and hurry"), word], tools=tools, previous_response_id=first["id"])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input")
    assert post(http, [word], tools=tools, previous_response_id=first["id"]).status_code == 200


def test_a_repeat_of_what_led_to_an_approval_is_the_response_that_asked(http: httpx.Client) -> None:
    tools = [CALCULATOR | {"require_approval": "always"}]
    key = {"Idempotency-Key": f"asked-{time.time()}"}
    first = post(http, "12 * 7", headers=key, tools=tools).json()
    word = [approval(first["output"][-1])]
    post(http, word, tools=tools, previous_response_id=first["id"]).raise_for_status()
    assert post(http, "12 * 7", headers=key, tools=tools).json() == first


def test_what_comes_after_is_counted(http: httpx.Client) -> None:
    first = post(http, "one").json()
    body = {"input": "two", "previous_response_id": first["id"]}
    counted = http.post("/v1/responses/input_tokens", json=body).json()["input_tokens"]
    assert counted == http.post("/v1/responses", json=body).json()["usage"]["input_tokens"]


def test_a_conversation_that_was_changed_is_not_gone_on_with(http: httpx.Client) -> None:
    named = {"X-Tenuto-Session": f"changed-{time.time()}"}
    first = post(http, "one", headers=named).json()
    history = [user("other"), {"role": "assistant", "content": "x"}, user("more")]
    http.post("/v1/chat/completions", json={"messages": history}, headers=named).raise_for_status()
    refused = post(http, "two", previous_response_id=first["id"])
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    assert http.get(f"/v1/responses/{first['id']}").json() == first
    assert http.get(f"/v1/responses/{first['id']}/input_items").status_code == 409


# The background


@pytest.fixture
def slow(http: httpx.Client) -> Iterator[Any]:
    """A response that is made in the background and takes a while."""
    begun = post(http, "slow", background=True).json()
    yield begun
    http.post(f"/v1/responses/{begun['id']}/cancel")


def test_a_response_in_the_background_goes_on_without_its_client(openai_client: openai.OpenAI) -> None:
    begun = openai_client.responses.create(
        model="default", user=USER, input="12 * 7", tools=[CALCULATOR], background=True
    )
    assert begun.background
    while begun.status == "in_progress":
        time.sleep(0.02)
        begun = openai_client.responses.retrieve(begun.id)
    assert begun.output_text == "That makes 84."


def test_what_was_read_of_a_stream_is_not_told_again(http: httpx.Client, slow: Any) -> None:
    seen: list[Any] = []
    for most in (5, 9, 3):
        query: dict[str, Any] = {"stream": "true"}
        if seen:
            query["starting_after"] = seen[-1]["sequence_number"]
        with http.stream("GET", f"/v1/responses/{slow['id']}", params=query) as stream:
            seen += read(stream, most)
    assert numbers(seen) == [*range(17)]
    now = http.get(f"/v1/responses/{slow['id']}").json()
    text = "".join(event["delta"] for event in seen if event["type"].endswith(".delta"))
    assert now["status"] == "in_progress"
    assert now["output"][0]["content"][0]["text"].startswith(text)


def test_a_client_that_leaves_the_stream_does_not_stop_it(http: httpx.Client) -> None:
    body = {"input": "12 * 7", "user": USER, "tools": [CALCULATOR], "background": True, "stream": True}
    with http.stream("POST", "/v1/responses", json=body) as stream:
        (first,) = read(stream, 1)
    assert ended(http, first["response"]["id"])["status"] == "completed"


def test_it_is_cancelled_once_and_for_all(openai_client: openai.OpenAI, http: httpx.Client, slow: Any) -> None:
    first = openai_client.responses.cancel(slow["id"])
    assert first.status == "cancelled"
    assert openai_client.responses.cancel(slow["id"]) == first
    events = streamed(http, slow["id"])
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["status"] == "cancelled"
    after = post(http, "abc", previous_response_id=slow["id"]).json()
    assert after["status"] == "completed", "what was said so far stays"


def test_nothing_comes_after_a_response_that_is_under_way(http: httpx.Client, slow: Any) -> None:
    refused = post(http, "abc", previous_response_id=slow["id"])
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "session_busy")
    assert int(refused.headers["retry-after"]) >= 1


def test_one_that_is_deleted_is_stopped_and_its_streams_end(http: httpx.Client, slow: Any) -> None:
    with http.stream("GET", f"/v1/responses/{slow['id']}", params={"stream": "true"}) as stream:
        session = stream.headers["x-tenuto-session"]
        assert http.delete(f"/v1/responses/{slow['id']}").json() == {
            "id": slow["id"],
            "object": "response",
            "deleted": True,
        }
        assert read(stream)[-1]["response"]["status"] == "cancelled"
    assert http.get(f"/v1/responses/{slow['id']}").status_code == 404
    assert http.get(f"/v1/sessions/{session}").status_code == 200


def test_a_foreground_response_is_cancelled_too(http: httpx.Client, server: Server) -> None:
    with http.stream("POST", "/v1/responses", json={"input": "slow", "user": USER, "stream": True}) as stream:
        lines = stream.iter_lines()
        created = next(json.loads(line[6:]) for line in lines if line.startswith("data: "))
        with server.client() as other:
            assert other.post(f"/v1/responses/{created['response']['id']}/cancel").json()["status"] == "cancelled"
        assert json.loads([line for line in lines if line][-1][6:])["response"]["status"] == "cancelled"


def test_a_repeat_with_a_key_is_the_same_response(http: httpx.Client) -> None:
    key = {"Idempotency-Key": f"again-{time.time()}"}
    first, again = (post(http, "abc", headers=key, background=True).json() for _ in range(2))
    assert first["id"] == again["id"]
    assert ended(http, first["id"])["output"][0]["content"][0]["text"] == "abc"


# Lists


def test_what_a_request_brought_is_listed_in_pages(http: httpx.Client) -> None:
    image = "data:image/png;base64,iVBORw0KGgo="
    history: list[Any] = [
        {"role": "developer", "content": "Be kind."},
        user("the weather in Ulm"),
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Ulm"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]},
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "abc"}, {"type": "input_image", "image_url": image}],
        },
    ]
    made = post(http, history, tools=[WEATHER], instructions="x").json()
    path = f"/v1/responses/{made['id']}/input_items"
    whole = http.get(path, params={"order": "asc", "limit": 100}).json()
    assert [item["type"] for item in whole["data"]] == [
        "message",
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "message",
        "message",
    ]
    assert whole["data"][-1]["content"][1]["image_url"] == image
    assert not whole["has_more"]
    paged: list[Any] = []
    query: dict[str, Any] = {"limit": 3}
    while True:
        page = http.get(path, params=query).json()
        paged += page["data"]
        if not page["has_more"]:
            break
        query["after"] = page["last_id"]
    assert paged == whole["data"][::-1]
    for wrong in ({"after": "no"}, {"limit": "0"}, {"order": "up"}):
        assert http.get(path, params=wrong).status_code == 400

"""Conversations with the official client: one object with sessions, and what stands in them."""

import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest

from tests.dialects.test_responses_e2e import WEATHER, computed_is_new, user
from tests.e2e.server import Server
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Ulm"}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "sun"}


@pytest.fixture
async def async_client(server: Server) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=HANGS_S
    ) as client:
        yield client


def items(http: httpx.Client, id: str, **query: Any) -> list[Any]:
    page = http.get(f"/v1/conversations/{id}/items", params={"order": "asc", "limit": 100, **query})
    found: list[Any] = page.raise_for_status().json()["data"]
    return found


def words(http: httpx.Client, id: str) -> list[str]:
    """What each item says, or its type."""
    return [one["content"][0]["text"] if "content" in one else one["type"] for one in items(http, id)]


def respond(http: httpx.Client, id: str, said: Any = None, **body: Any) -> Any:
    given = {"conversation": id, **({} if said is None else {"input": said}), **body}
    return http.post("/v1/responses", json=given).raise_for_status().json()


def test_the_official_client_drives_every_endpoint(openai_client: openai.OpenAI) -> None:
    conversations = openai_client.conversations
    made = conversations.create(items=[{"role": "user", "content": "one"}], metadata={"topic": "demo"})
    assert made.id.startswith("conv_")
    assert made.metadata == {"topic": "demo"}
    assert conversations.retrieve(made.id) == made
    assert conversations.update(made.id, metadata={"topic": "other"}).metadata == {"topic": "other"}
    added = conversations.items.create(made.id, items=[{"role": "user", "content": "two"}])
    assert [one.type for one in added.data] == ["message"]
    listed = [*conversations.items.list(made.id, limit=1)]
    assert [one.content[0].text for one in listed if one.type == "message"] == ["two", "one"]
    assert listed[0] == added.data[0]
    assert conversations.items.retrieve(added.first_id, conversation_id=made.id) == added.data[0]
    assert conversations.items.delete(added.first_id, conversation_id=made.id).id == made.id
    with pytest.raises(openai.NotFoundError):
        conversations.items.retrieve(added.first_id, conversation_id=made.id)
    answer = openai_client.responses.create(model="default", conversation=made.id)
    assert answer.output_text == "one"
    assert answer.conversation is not None
    assert answer.conversation.id == made.id
    assert conversations.delete(made.id).deleted
    for ask in (conversations.retrieve, conversations.delete):
        with pytest.raises(openai.NotFoundError, match="there is no conversation"):
            ask(made.id)


async def test_the_official_client_drives_them_from_an_event_loop(async_client: openai.AsyncOpenAI) -> None:
    conversations = async_client.conversations
    made = await conversations.create()
    assert (await conversations.retrieve(made.id)).metadata == {}
    assert (await conversations.update(made.id, metadata={"a": "b"})).metadata == {"a": "b"}
    added = await conversations.items.create(made.id, items=[{"role": "user", "content": "abc"}])
    assert [one async for one in conversations.items.list(made.id)] == added.data
    assert await conversations.items.retrieve(added.first_id, conversation_id=made.id) == added.data[0]
    async with async_client.responses.stream(model="default", conversation=made.id, input="def") as stream:
        final = await stream.get_final_response()
    assert (final.output_text, final.conversation and final.conversation.id) == ("def", made.id)
    assert (await conversations.items.delete(added.first_id, conversation_id=made.id)).metadata == {"a": "b"}
    assert (await conversations.delete(made.id)).deleted


def test_a_conversation_is_the_session_of_its_id(http: httpx.Client) -> None:
    name = f"mine-{time.time()}"
    chat = {"messages": [{"role": "user", "content": "one"}], "session_id": name}
    http.post("/v1/chat/completions", json=chat).raise_for_status()
    assert words(http, name) == ["one", "one"]
    answer = respond(http, name, "two")
    computed_is_new(answer)
    assert answer["conversation"] == {"id": name}
    went_on = http.post("/v1/responses", json={"input": "three", "previous_response_id": answer["id"]}).json()
    assert went_on["tenuto"]["session_id"] == name
    assert "conversation" not in went_on
    assert words(http, name) == ["one", "one", "two", "two", "three", "three"]
    made = http.post("/v1/conversations", json={"metadata": {"a": "b"}}).json()["id"]
    http.post("/v1/chat/completions", json={**chat, "session_id": made}).raise_for_status()
    assert words(http, made) == ["one", "one"]
    document = http.get(f"/v1/sessions/{made}").json()
    copy = f"copy-{time.time()}"
    http.put(f"/v1/sessions/{copy}", json=document).raise_for_status()
    assert http.get(f"/v1/conversations/{copy}").json()["metadata"] == {"a": "b"}


def test_what_was_added_is_read_at_the_next_turn_and_nothing_else(http: httpx.Client) -> None:
    made = http.post("/v1/conversations").json()["id"]
    respond(http, made, "one", tools=[WEATHER])
    http.post(f"/v1/conversations/{made}/items", json={"items": [user("two"), CALL, OUTPUT]}).raise_for_status()
    answer = respond(http, made, tools=[WEATHER])
    assert answer["output"][0]["content"][0]["text"] == "Take a hat: sun"
    computed_is_new(answer)
    computed_is_new(respond(http, made, "three", tools=[WEATHER]))
    assert words(http, made)[2:4] == ["two", "function_call"]


def test_instructions_are_no_part_of_a_conversation(http: httpx.Client) -> None:
    made = http.post("/v1/conversations").json()["id"]
    first = respond(http, made, "one", instructions="Be brief.")
    same = respond(http, made, "two", instructions="Be brief.")
    computed_is_new(same)
    other = respond(http, made, "three", instructions="Rhyme.")
    assert other["usage"]["tenuto"]["miss_reason"] == "the instructions are others"
    none = respond(http, made, "four")
    assert none["tenuto"]["session_id"] == made
    said = ["one", "one", "two", "two", "three", "three", "four", "four"]
    assert words(http, made) == said
    kept = http.get(f"/v1/sessions/{made}").json()["items"]
    assert [one["text"] for one in kept] == said
    listed = http.get(f"/v1/responses/{other['id']}/input_items").json()["data"]
    assert [one["content"][0]["text"] for one in listed] == ["three"], "the places of responses move with the items"
    went_on = http.post("/v1/responses", json={"input": "x", "previous_response_id": first["id"]}).json()
    assert went_on["status"] == "completed"
    ids = [one["id"] for one in items(http, made)]
    respond(http, made, "five", instructions="Rhyme.")
    assert [one["id"] for one in items(http, made)][:8] == ids, "the ids of items stay"


def test_an_item_that_is_deleted_was_never_said(http: httpx.Client) -> None:
    made = http.post("/v1/conversations").json()["id"]
    answers = [respond(http, made, text) for text in ("one", "two", "three")]
    before = items(http, made)
    http.delete(f"/v1/conversations/{made}/items/{before[2]['id']}").raise_for_status()
    assert items(http, made) == [*before[:2], *before[3:]], "the others keep their ids"
    assert http.delete(f"/v1/conversations/{made}/items/{before[2]['id']}").status_code == 404
    http.delete(f"/v1/conversations/{made}/items/{before[3]['id']}").raise_for_status()
    assert words(http, made) == ["one", "one", "three", "three"]
    chat = {"messages": [{"role": "user", "content": text} for text in ("x",)], "session_id": made}
    http.post("/v1/chat/completions", json=chat).raise_for_status()
    assert words(http, made) == ["one", "one", "three", "three", "x", "x"]
    listed = http.get(f"/v1/responses/{answers[2]['id']}/input_items").json()["data"]
    assert [one["content"][0]["text"] for one in listed] == ["three"]
    went_on = {"input": "four", "previous_response_id": answers[2]["id"]}
    fork = http.post("/v1/responses", json=went_on).json()["tenuto"]["session_id"]
    assert words(http, fork) == ["one", "one", "three", "three", "four", "four"]


def test_a_call_is_deleted_with_its_output(http: httpx.Client) -> None:
    body = {"items": [user("a"), {"role": "assistant", "content": "so"}, CALL, OUTPUT, user("b")]}
    made = http.post("/v1/conversations", json=body).json()["id"]
    ids = {one["type"]: one["id"] for one in items(http, made)}
    http.delete(f"/v1/conversations/{made}/items/{ids['function_call_output']}").raise_for_status()
    assert words(http, made) == ["a", "so", "b"]
    http.post(f"/v1/conversations/{made}/items", json={"items": [CALL, OUTPUT]}).raise_for_status()
    ids = {one["type"]: one["id"] for one in items(http, made)}
    http.delete(f"/v1/conversations/{made}/items/{ids['function_call']}").raise_for_status()
    assert words(http, made) == ["a", "so", "b"]


def test_items_come_in_pages(http: httpx.Client) -> None:
    said = [user(str(number)) for number in range(7)]
    made = http.post("/v1/conversations", json={"items": said}).json()["id"]
    whole = items(http, made)
    for order, wanted in (("asc", whole), ("desc", whole[::-1])):
        seen: list[Any] = []
        query: dict[str, Any] = {"limit": 3, "order": order}
        while True:
            page = http.get(f"/v1/conversations/{made}/items", params=query).json()
            seen += page["data"]
            query["after"] = page["last_id"]
            if not page["has_more"]:
                break
        assert seen == wanted
    for wrong in ({"after": "msg_no"}, {"after": ""}, {"limit": "0"}, {"order": "up"}):
        assert http.get(f"/v1/conversations/{made}/items", params=wrong).status_code == 400


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("", {"items": [user("a")] * 21}, "items"),
        ("", {"items": [{"type": "web_search_call"}]}, "items[0].type"),
        ("", {"items": [OUTPUT]}, "items"),
        ("", {"items": [{"type": "mcp_approval_response", "approve": True}]}, "items[0].type"),
        ("", {"items": [{"id": "msg_1"}]}, "items[0].type"),
        ("", {"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ("", {"metadata": {"a": 1}}, "metadata.a"),
        ("", {"metadata": {"a": "b" * 513}}, "metadata.a"),
        ("/any", {}, "metadata"),
        ("/any/items", {"items": []}, "items"),
        ("/any/items", {"items": [{"type": "reasoning", "summary": []}]}, "items"),
    ],
)
def test_what_cannot_be_kept_is_named(http: httpx.Client, path: str, body: Any, param: str) -> None:
    refused = http.post(f"/v1/conversations{path}", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.text


def test_a_conversation_that_is_not_there_is_not_made(http: httpx.Client) -> None:
    named = {"conversation": {"id": "conv_nobodys"}, "input": "x"}
    for path in ("/v1/responses", "/v1/responses/input_tokens"):
        assert http.post(path, json=named).status_code == 404
    assert http.get("/v1/sessions/conv_nobodys").status_code == 404
    assert http.post("/v1/conversations/conv_nobodys", json={"metadata": None}).status_code == 404
    assert http.post("/v1/conversations/conv_nobodys/items", json={"items": [user("a")]}).status_code == 404
    assert http.get("/v1/conversations/conv_nobodys/items").status_code == 404
    both = http.post("/v1/responses", json={**named, "previous_response_id": "resp_x"})
    assert (both.status_code, both.json()["error"]["param"]) == (400, "previous_response_id")


def test_the_tokens_of_what_comes_next_are_counted(http: httpx.Client) -> None:
    made = http.post("/v1/conversations", json={"items": [user("one")]}).json()["id"]
    body = {"conversation": made, "input": "two", "instructions": "Be brief."}
    counted = http.post("/v1/responses/input_tokens", json=body).json()["input_tokens"]
    assert counted == http.post("/v1/responses", json=body).json()["usage"]["input_tokens"]


def test_nobody_changes_what_a_run_is_at_work_on(http: httpx.Client) -> None:
    made = http.post("/v1/conversations").json()["id"]
    begun = respond(http, made, "slow", background=True)
    (first,) = items(http, made, limit=1)
    path = f"/v1/conversations/{made}"
    tried = [
        http.post(f"{path}/items", json={"items": [user("a")]}),
        http.delete(f"{path}/items/{first['id']}"),
        http.post("/v1/responses", json={"conversation": made, "input": "b"}),
    ]
    assert [(one.status_code, one.json()["error"]["code"]) for one in tried] == [(409, "session_busy")] * 3
    assert http.post(path, json={"metadata": {"a": "b"}}).status_code == 200
    assert http.delete(path).status_code == 200
    assert http.get(f"/v1/responses/{begun['id']}").status_code == 404
    assert http.get(path).status_code == 404


def test_a_call_that_waits_is_answered_by_a_response(http: httpx.Client) -> None:
    made = http.post("/v1/conversations").json()["id"]
    first = respond(http, made, "the weather in Ulm", tools=[WEATHER])
    call = first["output"][0]["call_id"]
    output = {"type": "function_call_output", "call_id": call, "output": "sun"}
    refused = http.post(f"/v1/conversations/{made}/items", json={"items": [output]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "session_paused")
    assert call in refused.json()["error"]["message"]
    second = respond(http, made, [output], tools=[WEATHER])
    assert second["output"][0]["content"][0]["text"] == "Take a hat: sun"
    computed_is_new(second)
    third = respond(http, made, "the weather in Bonn", tools=[WEATHER])
    left = respond(http, made, "abc", tools=[WEATHER], instructions="Be brief.")
    assert (third["output"][0]["type"], left["output"][0]["content"][0]["text"]) == ("function_call", "abc")


def test_deleting_a_response_leaves_the_conversation_its_items(http: httpx.Client) -> None:
    made = http.post("/v1/conversations").json()["id"]
    http.delete(f"/v1/responses/{respond(http, made, 'one')['id']}").raise_for_status()
    assert words(http, made) == ["one", "one"]

"""Resources and prompts of MCP servers that messages name: read once, kept with the session, and never read again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.e2e.server import Server, script
from tests.mcp import attaching
from tests.mcp.behind import WAYS, ways
from tests.mcp.conftest import ERAS
from tests.mcp.test_handles import connected
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

ONE = WAYS[0]
RULES = [
    {"user_contains": "[resource of", "text": "I have read: ${user}"},
    {"user": "Be plain.", "text": "I am plain."},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("attached")
    with ways(timeout_s=5) as entries:
        gone = {"command": "/nowhere/at/all"}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": {**entries, "gone": gone}}))
        arguments = ("--mcp-config", str(folder / "mcp.json"))
        running = Server(folder, script(folder / "model.json", RULES, cells=65536), arguments)
        try:
            yield running.start()
        finally:
            running.close()


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def resource(uri: str, server: str = ONE) -> dict[str, Any]:
    return {"type": "mcp_resource", "server": server, "uri": uri}


def prompt(name: str, server: str = ONE, **arguments: str) -> dict[str, Any]:
    return {"type": "mcp_prompt", "server": server, "name": name, "arguments": arguments}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [*parts]}


def ask(http: httpx.Client, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = http.post("/v1/chat/completions", json={"messages": [*messages], "max_tool_rounds": 0, **more})
    read: dict[str, Any] = answer.raise_for_status().json()
    return read


def answer_of(answer: dict[str, Any]) -> str:
    said: str = answer["choices"][0]["message"]["content"]
    return said


def items(http: httpx.Client, session: str) -> list[dict[str, Any]]:
    read: list[dict[str, Any]] = http.get(f"/v1/sessions/{session}").raise_for_status().json()["items"]
    return read


@pytest.mark.parametrize("way", WAYS)
def test_a_resource_is_read_into_the_conversation_where_it_is_named(way: str, http: httpx.Client) -> None:
    uri = f"memo://chat-{way}"
    session = f"read-{way}"
    ask(http, user(text("Look:"), resource(uri, way), text("What is it?")), session_id=session)
    first, named, last, _ = items(http, session)
    assert (first["text"], last["text"]) == ("Look:", "What is it?")
    assert named["text"] == f"[resource of {way}: {uri}, text/plain]\nreading 1 of {uri}"
    assert named["source"] == {"kind": "mcp_resource", "server": way, "uri": uri, "mime_type": "text/plain"}


@pytest.mark.parametrize("way", WAYS)
def test_a_prompt_becomes_messages_of_both_roles_in_its_place(way: str, http: httpx.Client) -> None:
    session = f"talk-{way}"
    answer = ask(
        http, {"role": "system", "content": "Be brief."}, user(prompt("talk", way, about="tea")), session_id=session
    )
    assert answer_of(answer) == "I am plain."
    said = [(item["kind"], item["text"]) for item in items(http, session)]
    assert said == [
        ("system", "Be brief."),
        ("user", "Let us talk about tea."),
        ("assistant", "Gladly."),
        ("user", "Be plain."),
        ("assistant", "I am plain."),
    ]


def test_a_client_that_repeats_its_history_has_nothing_read_again(http: httpx.Client) -> None:
    history = [user(prompt("talk", about="milk"), resource("memo://again"), text("What is it?"))]
    first = ask(http, *history)
    history += [{"role": "assistant", "content": answer_of(first)}, user(text("And now?"))]
    second = ask(http, *history)
    assert second["session_id"] == first["session_id"]
    assert second["usage"]["tenuto"]["rounds"][0]["computed_tokens"] < 60
    texts = [item["text"] for item in items(http, second["session_id"])]
    assert texts[3].endswith("reading 1 of memo://again")
    history += [{"role": "assistant", "content": answer_of(second)}, user(resource("memo://again"))]
    third = ask(http, *history)
    assert third["session_id"] == first["session_id"]
    assert answer_of(third).endswith("reading 2 of memo://again"), "what is named anew is read anew"


def test_a_history_of_another_conversation_is_read_anew(http: httpx.Client) -> None:
    first = ask(http, user(resource("memo://branch")))
    other = ask(http, user(resource("memo://branch")), {"role": "assistant", "content": "no"}, user(text("And?")))
    assert other["session_id"] != first["session_id"]
    assert items(http, other["session_id"])[0]["text"].endswith("reading 2 of memo://branch")


def test_what_was_read_survives_a_fork_an_import_and_a_restart(server: Server) -> None:
    with server.client() as http:
        ask(http, user(resource("memo://kept")), session_id="kept")
        http.post("/v1/sessions/kept/fork", json={"session_id": "forked"}).raise_for_status()
        document = http.get("/v1/sessions/kept").json()
        http.put("/v1/sessions/imported", json={**document, "id": "imported"}).raise_for_status()
    server.kill()
    server.start()
    with server.client() as http:
        for session in ("kept", "forked", "imported"):
            said = answer_of(ask(http, user(text("And?")), session_id=session, session_mode="append"))
            assert said == "And?"
            named, *_ = items(http, session)
            assert named["text"].endswith("reading 1 of memo://kept")
            history = [user(resource("memo://kept")), {"role": "assistant", "content": items(http, session)[1]["text"]}]
            again = ask(
                http, *history, user(text("And?")), {"role": "assistant", "content": "And?"}, user(text("Then?"))
            )
            assert again["session_id"] in ("kept", "forked", "imported")


def test_an_image_is_one_and_other_bytes_are_refused(http: httpx.Client) -> None:
    ask(http, user(resource("memo://dot")), session_id="dot")
    named, *_ = items(http, "dot")
    assert named["attachments"] == [{"kind": "image", "mime_type": "image/png", "data": attaching.DOT, "uri": None}]
    ask(http, user(prompt("shows"), text("What is it?")), session_id="shows")
    image, memo, *_ = items(http, "shows")
    assert image["attachments"][0]["data"] == attaching.DOT
    assert memo["text"] == "[resource: memo://a]\na memo"


def test_what_is_no_media_type_is_not_read_as_one(http: httpx.Client) -> None:
    ask(http, user(resource("memo://spoof")), session_id="spoof")
    assert items(http, "spoof")[0]["text"] == f"[resource of {ONE}: memo://spoof]\nmine"


@pytest.mark.parametrize(
    ("part", "status", "message"),
    [
        (resource("memo://a", "nobody"), 400, "there is no MCP server 'nobody'; known: stdio-legacy"),
        (resource("memo://a", "gone"), 502, "gone"),
        (resource("memo://none"), 400, "there is no resource 'memo://none'"),
        (resource("memo://sheet"), 400, "is application/pdf, 5 bytes: text and images alone can be attached"),
        (resource("memo://huge"), 400, "has 1048577 characters, and there is room for 1048576"),
        (resource("memo://slow"), 502, "did not answer within 5 s"),
        (prompt("talk"), 400, "about is missing"),
        (prompt("nothing"), 400, "there is no prompt 'nothing'; known: talk, ends, empty, shows"),
        (prompt("empty"), 400, "has 0 messages"),
        (prompt("ends"), 400, "nothing to answer: the prompt ends with a message of the assistant's"),
        ({"type": "mcp_resource", "uri": "memo://a"}, 400, "messages[0].content[0].server: field required"),
        ({"type": "mcp_prompt", "server": ONE}, 400, "messages[0].content[0].name: field required"),
    ],
)
def test_what_cannot_be_attached_is_refused_and_nothing_is_kept(
    part: dict[str, Any], status: int, message: str, http: httpx.Client
) -> None:
    answer = http.post("/v1/chat/completions", json={"messages": [user(part)], "session_id": "refused"})
    assert message in answer.json()["error"]["message"]
    assert answer.status_code == status
    assert http.get("/v1/sessions/refused").status_code == 404


def test_a_request_names_so_many_and_no_more(http: httpx.Client) -> None:
    parts = [resource(f"memo://many-{number}") for number in range(33)]
    answer = http.post("/v1/chat/completions", json={"messages": [user(*parts)]})
    assert answer.json()["error"]["message"] == "the messages name 33 resources and prompts; a request can name 32"
    whole = ask(http, user(*(resource("memo://one") for _ in range(40))))
    assert answer_of(whole).endswith("reading 1 of memo://one"), "one that is named often is read once"


def test_only_a_users_message_names_them(http: httpx.Client) -> None:
    for role in ("system", "assistant"):
        messages = [{"role": role, "content": [resource("memo://a")]}, user(text("Hi"))]
        answer = http.post("/v1/chat/completions", json={"messages": messages})
        assert answer.json()["error"]["message"].endswith("only messages of users carry 'mcp_resource'")


def test_the_tokens_of_a_message_are_counted_with_what_it_names(http: httpx.Client) -> None:
    body = {"model": "scripted", "input": [user(resource("memo://long"))]}
    counted = http.post("/v1/responses/input_tokens", json=body).raise_for_status().json()
    assert counted["input_tokens"] > len(attaching.LONG)


def test_responses_and_conversations_carry_them(server: Server) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=HANGS_S) as client:
        said: Any = [{"role": "user", "content": [prompt("talk", about="rye"), resource("memo://response")]}]
        first = client.responses.create(model="scripted", input=said)
        assert first.output_text.endswith("reading 1 of memo://response")
        second = client.responses.create(model="scripted", input="And?", previous_response_id=first.id)
        assert second.output_text == "And?"
        listed = client.responses.input_items.list(first.id, order="asc").data
        assert [getattr(each, "role", None) for each in listed] == ["user", "assistant", "user", "user"]
        conversation = client.conversations.create(items=said)
        told = client.responses.create(model="scripted", input="Now?", conversation=conversation.id)
        assert told.output_text == "Now?"
        texts = [
            str(each.content)
            for each in client.conversations.items.list(conversation.id).data
            if each.type == "message"
        ]
        assert any("reading 2 of memo://response" in each for each in texts)


def test_anthropics_messages_carry_them(server: Server) -> None:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=HANGS_S) as client:
        said: Any = [user(prompt("talk", about="oats"), resource("memo://message"))]
        message = client.messages.create(model="scripted", max_tokens=4000, messages=said)
        assert message.content[0].type == "text"
        assert message.content[0].text.endswith("reading 1 of memo://message")
        wrong: Any = [user(resource("memo://none"))]
        with pytest.raises(anthropic.BadRequestError, match="there is no resource 'memo://none'"):
            client.messages.create(model="scripted", max_tokens=100, messages=wrong)


def test_ollamas_messages_have_a_field_for_them(http: httpx.Client) -> None:
    message = {
        "role": "user",
        "content": "What is it?",
        "attach": [prompt("talk", about="corn"), resource("memo://llama")],
    }
    body = {"model": "scripted", "messages": [message], "stream": False}
    answer = http.post("/api/chat", json=body).raise_for_status().json()
    assert answer["message"]["content"] == "What is it?"
    wrong = {**body, "messages": [{**message, "attach": [resource("memo://none")]}]}
    assert "there is no resource 'memo://none'" in http.post("/api/chat", json=wrong).json()["error"]


@pytest.mark.parametrize("mode", ERAS)
async def test_the_chat_tool_takes_them_by_the_uris_that_its_clients_know(mode: str, server: Server) -> None:
    session = f"mcp-{mode}"
    part = {"type": "mcp_resource", "uri": f"mcp://{ONE}/memo://tool-{mode}"}
    async with connected(server, "http", mode) as client:
        arguments = {"message": "What is it?", "session_id": session, "attach": [prompt("talk", about="peas"), part]}
        result = await client.call_tool("chat", arguments)
        assert not result.is_error
        messages = [{"role": "user", "content": "Hi", "attach": [resource("memo://none")]}]
        refused = await client.call_tool("chat", {"messages": messages})
        assert refused.is_error
        assert "there is no resource 'memo://none'" in str(refused.content)
        said = (await client.read_resource(f"session://{session}")).contents[0]
    told = json.loads(getattr(said, "text", ""))["items"]
    assert [each["kind"] for each in told] == ["user", "assistant", "user", "user", "user", "assistant"]
    assert told[3]["source"]["uri"] == f"memo://tool-{mode}"
    assert told[3]["text"].endswith(f"reading 1 of memo://tool-{mode}")

"""What a request of Anthropic's clients means: items, tools and options, and what is wrong with one, by its field."""

import json
from typing import Any

import pytest

from tenuto.errors import InvalidRequest, UnsupportedParameter
from tenuto.pipelines.base import ToolChoice
from tenuto.runtime.dialects.anthropic.messages.request import MessageRequest, read_message, read_prompt
from tenuto.runtime.dialects.anthropic.messages.tools import AskedServer, with_servers
from tenuto.runtime.loop.requests import ResponseFormat
from tenuto.sessions.items import (
    AssistantItem,
    Attachment,
    Item,
    SystemItem,
    ToolCall,
    ToolResultItem,
    ToolSpec,
    UserItem,
)
from tenuto.sessions.principal import LOCAL
from tenuto.tools.registry import Exported
from tenuto.tools.spec import Tool

PNG = "iVBORw0KGgo="
SEEN = Attachment("image", "image/png", data=PNG)
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
HELLO = {"role": "user", "content": "hello"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"name": "weather", "description": "Tells it.", "input_schema": SCHEMA}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}


def read(headers: dict[str, str] | None = None, **fields: Any) -> MessageRequest:
    body = {"model": "m", "max_tokens": 100, "messages": [HELLO], **fields}
    return read_message(json.dumps(body).encode(), headers or {}, principal=LOCAL)


def items(*messages: dict[str, Any], **fields: Any) -> list[Item]:
    return list(read(messages=[*messages], **fields).turn.items)


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": [*blocks]}


def text(of: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": of, **more}


def call(id: str = "c1", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "weather", "input": arguments}


def result(content: Any = None, id: str = "c1", **more: Any) -> dict[str, Any]:
    given = {} if content is None else {"content": content}
    return {"type": "tool_result", "tool_use_id": id, **given, **more}


def refused(**fields: Any) -> tuple[str, str | None]:
    with pytest.raises(InvalidRequest) as raised:
        read(**fields)
    return str(raised.value), raised.value.param


# Instructions


@pytest.mark.parametrize(
    ("system", "said"),
    [
        ("Be kind.", ["Be kind."]),
        ([text("Be kind.", cache_control={"type": "ephemeral"}), text("Be brief.")], ["Be kind.\nBe brief."]),
        ([text("x-anthropic-billing-header: cc_version=2.1; cch=abc;"), text("Be kind.")], ["Be kind."]),
        ("x-anthropic-billing-header: cc_version=2.1\nBe kind.", ["Be kind."]),
        ([text("x-anthropic-billing-header: cc_version=2.1")], []),
        ([text("Be kind."), text("x-anthropic-billing-header: a")], ["Be kind.\nx-anthropic-billing-header: a"]),
        ("", []),
        ([], []),
        (None, []),
    ],
)
def test_the_instructions_come_first_without_what_differs_by_conversation(system: Any, said: list[str]) -> None:
    assert items(HELLO, system=system) == [*map(SystemItem, said), UserItem("hello")]


def test_instructions_among_the_messages_keep_their_place() -> None:
    late = {"role": "system", "content": [text("Hurry."), text("Now.")]}
    assert items(HELLO, late, system="Be kind.") == [
        SystemItem("Be kind."),
        UserItem("hello"),
        SystemItem("Hurry.\nNow."),
    ]


# Blocks


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (user(text("a"), text("b", citations=None)), [UserItem("a\nb")]),
        (user(), [UserItem("")]),
        (user(text("see"), IMAGE), [UserItem("see", (SEEN,))]),
        (
            user({"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}),
            [UserItem("", (Attachment("image", "image/*", uri="https://example.org/a.png"),))],
        ),
        (
            user({"type": "document", "title": "Notes", "source": {"type": "text", "data": "one"}}, text("two")),
            [UserItem("Notes\none\ntwo")],
        ),
        (
            user({"type": "document", "source": {"type": "content", "content": [text("one"), IMAGE]}}),
            [UserItem("one", (SEEN,))],
        ),
        (
            user(
                {
                    "type": "document",
                    "context": "a letter",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": PNG},
                }
            ),
            [UserItem("a letter", (Attachment("file", "application/pdf", data=PNG),))],
        ),
        (
            user({"type": "search_result", "source": "https://a", "title": "A", "content": [text("found")]}),
            [UserItem("A\nhttps://a\nfound")],
        ),
    ],
)
def test_a_users_blocks_are_one_item(message: dict[str, Any], found: list[Item]) -> None:
    assert items(message) == found


def test_results_come_before_what_is_said_beside_them() -> None:
    said = user(
        result([text("sun"), IMAGE]), text("and?"), result("no such city", id="c2", is_error=True), result(id="c3")
    )
    assert items(HELLO, assistant(call(), call("c2"), call("c3")), said)[2:] == [
        ToolResultItem("c1", "weather", "sun", attachments=(SEEN,)),
        ToolResultItem("c2", "weather", "no such city", is_error=True),
        ToolResultItem("c3", "weather", ""),
        UserItem("and?"),
    ]


def test_an_assistants_blocks_are_pieces_of_one_turn() -> None:
    said = assistant(
        {"type": "thinking", "thinking": "hm", "signature": "whatever"},
        text("One "),
        {"type": "redacted_thinking", "data": "??"},
        {"type": "thinking", "thinking": "!", "signature": ""},
        text("moment."),
        call(city="Ulm", n=1.0),
    )
    arguments = '{"city":"Ulm","n":1.0}'
    assert items(HELLO, said, user(result("sun")))[1] == AssistantItem(
        "One moment.", "hm!", (ToolCall("c1", "weather", arguments),)
    )


def test_two_messages_of_the_assistant_in_a_row_are_one_turn() -> None:
    assert items(HELLO, assistant(text("a")), {"role": "assistant", "content": "b"}, HELLO)[1] == AssistantItem("ab")


def test_what_other_servers_tools_did_is_left_out_and_told_once() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "s",
        "content": [{"type": "web_search_result", "url": ""}],
    }
    wrong = {**found, "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"}}
    request = read(messages=[HELLO, assistant(search, found, search, wrong, text("So.")), HELLO])
    assert request.turn.items[1] == AssistantItem("So.")
    assert sorted(one.what for one in request.turn.left_out) == ["messages[1].content[0]", "messages[1].content[1]"]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user", "content": 1}, "messages[0].content"),
        ({"role": "tool", "content": "a"}, "messages[0].role"),
        (user({"type": "text"}), "messages[0].content[0].text"),
        (user({"type": "thinking", "thinking": "a"}), "messages[0].content[0].type"),
        (user({"type": "image"}), "messages[0].content[0].source"),
        (user({"type": "image", "source": {"type": "base64", "data": "%"}}), "messages[0].content[0].source.data"),
        (user({"type": "image", "source": {"type": "base64"}}), "messages[0].content[0].source.data"),
        (user({"type": "image", "source": {"type": "other"}}), "messages[0].content[0].source.type"),
        (user({"type": "image", "source": {"type": "url", "url": "file:///a"}}), "messages[0].content[0].source.url"),
        (
            user({"type": "image", "source": {"type": "base64", "media_type": "text/plain", "data": "aGk="}}),
            "messages[0].content[0].source.media_type",
        ),
        (
            user({"type": "document", "source": {"type": "file", "file_id": "f"}}),
            "messages[0].content[0].source.file_id",
        ),
        (user(result("a", id="")), "messages[0].content[0].tool_use_id"),
        (user(result([{"type": "tool_use"}])), "messages[0].content[0].content[0].type"),
        (assistant(IMAGE), "messages[0].content[0].type"),
        (assistant({"type": "tool_use", "name": "f"}), "messages[0].content[0].id"),
        (assistant({"type": "tool_use", "id": "f"}), "messages[0].content[0].name"),
        (assistant(text("The answer is (")), "messages[0].role"),
        ({"role": "system", "content": [IMAGE]}, "messages[0].content[0].type"),
    ],
)
def test_a_message_that_is_wrong_is_refused_by_its_place(message: dict[str, Any], param: str) -> None:
    words, found = refused(messages=[message])
    assert found == param
    assert words.startswith(param)


# Tools


def test_the_clients_tools_are_taken_as_they_are() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": False}
    tools = [
        {**WEATHER, "cache_control": {"type": "ephemeral"}, "type": "custom"},
        {"name": "f", "input_schema": schema},
    ]
    selection = read(tools=tools).turn.tools
    assert selection.given
    assert [(spec.name, spec.description, spec.parameters, spec.strict) for spec in selection.client] == [
        ("weather", "Tells it.", SCHEMA, None),
        ("f", "", schema, None),
    ]
    assert read(tools=[{**WEATHER, "strict": True}]).turn.tools.client[0].strict is True
    assert (read().turn.tools.given, read(tools=[]).turn.tools.given) == (False, True)


@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        ({"type": "auto"}, (ToolChoice.AUTO, None, True)),
        ({"type": "auto", "disable_parallel_tool_use": True}, (ToolChoice.AUTO, None, False)),
        ({"type": "any"}, (ToolChoice.REQUIRED, None, True)),
        ({"type": "any", "disable_parallel_tool_use": True}, (ToolChoice.REQUIRED, None, False)),
        ({"type": "tool", "name": "weather"}, (ToolChoice.REQUIRED, "weather", True)),
        ({"type": "none"}, (ToolChoice.NONE, None, True)),
    ],
)
def test_the_choice_of_a_tool(choice: dict[str, Any], meant: tuple[ToolChoice, str | None, bool]) -> None:
    tools = read(tools=[WEATHER], tool_choice=choice).turn.tools
    assert (tools.choice, tools.only, tools.parallel) == meant


@pytest.mark.parametrize("choice", [None, {"type": "any"}, {"type": "tool", "name": "web_search"}])
def test_a_tool_that_anthropic_runs_is_left_out_and_not_insisted_on(choice: Any) -> None:
    turn = read(tools=[SEARCH], tool_choice=choice).turn
    assert (turn.tools.client, turn.tools.choice, turn.tools.only) == ((), ToolChoice.AUTO, None)
    assert [one.what for one in turn.left_out] == ["tools[0]"]
    assert "web_search_20250305" in turn.left_out[0].reason


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{"input_schema": SCHEMA}]}, "tools[0].name"),
        ({"tools": [{"name": "a b", "input_schema": SCHEMA}]}, "tools[0].name"),
        ({"tools": [{"name": "f", "input_schema": {"type": "string"}}]}, "tools[0].input_schema.type"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].name"),
        (
            {"tools": [{"name": "f", "input_schema": {"type": "object", "required": "a"}}]},
            "tools[0].input_schema",
        ),
        ({"tools": [{"type": "mcp_toolset"}]}, "tools[0].mcp_server_name"),
        ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "a"}] * 2}, "tools[1].mcp_server_name"),
        ({"mcp_servers": [{"name": "a"}] * 2}, "mcp_servers[1].name"),
        ({"tools": [], "tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "f"}}, "tool_choice.name"),
        ({"tools": [WEATHER], "tool_choice": {"type": "required"}}, "tool_choice.type"),
    ],
)
def test_tools_that_are_wrong_are_refused_by_their_place(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields)[1] == param


URL = {"type": "url", "url": "https://example.org/mcp"}


def exported(server: str, name: str) -> Exported:
    spec = ToolSpec(name, "", {"type": "object"})
    return Exported(f"{server}__{name}", server, Tool(spec), spec)


LISTED = {"files": [exported("files", "read"), exported("files", "write")], "clock": [exported("clock", "now")]}


@pytest.mark.parametrize(
    ("fields", "servers"),
    [
        ({"mcp_servers": [{"name": "files", **URL}]}, {"files": None}),
        (
            {"mcp_servers": [{"name": "files", **URL, "tool_configuration": {"allowed_tools": ["read"]}}]},
            {"files": ("read",)},
        ),
        ({"mcp_servers": [{"name": "files", "tool_configuration": {"enabled": False}}]}, {}),
        ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "files"}]}, {"files": None}),
        (
            {
                "mcp_servers": [{"name": "files", **URL}],
                "tools": [
                    {
                        "type": "mcp_toolset",
                        "mcp_server_name": "files",
                        "default_config": {"enabled": False},
                        "configs": {"read": {"enabled": True}, "write": {}},
                    }
                ],
            },
            {"files": ("read",)},
        ),
        (
            {"tools": [{"type": "mcp_toolset", "mcp_server_name": "files", "configs": {"write": {"enabled": False}}}]},
            {"files": ("read",)},
        ),
    ],
)
def test_servers_of_ours_are_asked_for_by_name(fields: dict[str, Any], servers: dict[str, Any]) -> None:
    request = read(**fields)
    assert request.turn.tools.given
    assert with_servers(request.tools, LISTED).servers == servers


def test_a_server_that_is_not_here_is_refused_with_what_to_do() -> None:
    request = read(mcp_servers=[{"name": "github", **URL}])
    assert request.tools.servers == (AskedServer("github", "mcp_servers[0].name", url=URL["url"]),)
    with pytest.raises(InvalidRequest, match=r"there are files, clock\. To add one") as raised:
        with_servers(request.tools, LISTED)
    assert raised.value.param == "mcp_servers[0].name"


# Options


def test_what_a_request_says_besides() -> None:
    turn = read(
        {"x-tenuto-session": "s", "idempotency-key": "k"},
        temperature=1,
        top_p=0.5,
        top_k=40,
        stop_sequences=["a", "b"],
        metadata={"user_id": "ada"},
        store=False,
        max_tool_rounds=2,
        agent_permission="ask",
        match="off",
    ).turn
    assert (turn.session_id, turn.idempotency_key, turn.user, turn.stored, turn.match) == (
        "s",
        "k",
        "ada",
        False,
        False,
    )
    assert (turn.sampling.temperature, turn.sampling.top_p, turn.sampling.top_k, turn.stop) == (1, 0.5, 40, ("a", "b"))
    assert (turn.limits.max_tokens, turn.limits.max_tool_rounds, turn.wants_events) == (100, 2, True)
    assert turn.body_digest is not None
    plain = read().turn
    assert (plain.session_id, plain.user, plain.match, plain.wants_events, plain.body_digest) == (
        None,
        None,
        True,
        False,
        None,
    )


def test_a_hint_names_no_session() -> None:
    hinted = read({"x-claude-code-session-id": "a/b:c"}).turn
    assert (hinted.session_id, read().turn.hint) == (None, None)
    assert hinted.hint is not None
    assert hinted.hint != read({"x-claude-code-session-id": "other"}).turn.hint


@pytest.mark.parametrize(
    ("thinking", "shown", "left_out"),
    [
        (None, "not", []),
        ({"type": "disabled"}, "not", []),
        ({"type": "adaptive"}, "whole", []),
        ({"type": "adaptive", "display": "omitted"}, "signed", []),
        ({"type": "enabled", "budget_tokens": 1024}, "whole", []),
    ],
)
def test_thinking_is_shown_to_those_who_ask(thinking: Any, shown: str, left_out: list[str]) -> None:
    request = read(thinking=thinking)
    assert request.thinking == shown
    assert [one.what for one in request.turn.left_out] == left_out


@pytest.mark.parametrize("name", ["output_config", "output_format"])
def test_the_answers_form_is_a_schema(name: str) -> None:
    form = {"type": "json_schema", "schema": SCHEMA}
    given: Any = {"effort": "high", "format": form} if name == "output_config" else form
    assert read(**{name: given}).turn.response == ResponseFormat("json_schema", SCHEMA, strict=True)
    assert read(output_config={"effort": "low"}).turn.response is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "1"}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"stop_sequences": ["a"] * 65}, "stop_sequences"),
        ({"metadata": {"user_id": "a" * 513}}, "metadata.user_id"),
        ({"thinking": {"type": "maybe"}}, "thinking.type"),
        ({"output_format": {"type": "json_schema"}}, "output_format.schema"),
        ({"output_format": {"type": "json_schema", "schema": {"type": 1}}}, "output_format.schema"),
        (
            {
                "output_format": {"type": "json_schema", "schema": {}},
                "output_config": {"format": {"type": "json_schema", "schema": {}}},
            },
            "output_format",
        ),
        ({"headers": {"x-tenuto-session": "a/b"}}, "X-Tenuto-Session"),
        ({"headers": {"idempotency-key": ""}}, "Idempotency-Key"),
    ],
)
def test_a_field_that_is_wrong_is_refused_by_its_name(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields)[1] == param


@pytest.mark.parametrize("name", ["thread", "compaction"])
def test_what_would_change_the_answer_and_is_not_served_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedParameter) as raised:
        read(**{name: {"type": "create"}})
    assert raised.value.param == name


def test_what_is_only_counted_says_nothing_of_an_answer() -> None:
    body = {"messages": [HELLO, user(text("b"))], "system": "a", "tools": [WEATHER]}
    request = read_prompt(json.dumps(body).encode(), {"x-tenuto-session": "s"}, principal=LOCAL)
    assert (len(request.turn.items), request.turn.session_id) == (3, "s")
    assert [spec.name for spec in request.turn.tools.client] == ["weather"]

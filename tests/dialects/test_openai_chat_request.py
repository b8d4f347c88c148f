"""What a chat completions request means. https://platform.openai.com/docs/api-reference/chat/create"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import InvalidRequest, UnsupportedParameter
from tenuto.pipelines.base import ToolChoice
from tenuto.pipelines.sampling_defaults import AskedSampling
from tenuto.runtime.dialects.hints import hint_of
from tenuto.runtime.dialects.openai.chat.request import ChatRequest, read_chat
from tenuto.runtime.loop.requests import LeftOut, Limits, ResponseFormat, SessionMode, ToolSelection, Turn
from tenuto.sessions.items import AssistantItem, Attachment, SystemItem, ToolCall, ToolResultItem, ToolSpec, UserItem
from tenuto.sessions.principal import Principal
from tenuto.tools.approvals import Permission

HELLO = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}}

ADA = Principal("ada")


def read(body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> ChatRequest:
    text = json.dumps({"messages": HELLO} | dict(body)).encode()
    return read_chat(text, headers or {}, principal=ADA)


def turn(headers: Mapping[str, str] | None = None, **body: Any) -> Turn:
    return read(body, headers).turn


def test_a_bare_request_takes_every_default() -> None:
    assert read({}) == ChatRequest(
        Turn(principal=ADA, model=None, items=(UserItem("hello"),)),
        stream=False,
        include_usage=False,
    )


def test_every_field_finds_its_place() -> None:
    request = read(
        {
            "model": "small",
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 1,
            "top_p": 0.9,
            "top_k": 40,
            "min_p": 0.05,
            "seed": 7,
            "stop": ["END", "STOP"],
            "max_completion_tokens": 100,
            "tools": [WEATHER, {"type": "mcp", "server_label": "files", "allowed_tools": ["read"]}],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "user": "u1",
            "store": False,
            "metadata": {"a": {"nested": [1, None]}},
            "prompt_cache_key": "k",
            "session_id": "s-1",
            "session_mode": "append",
            "max_tool_rounds": 3,
            "agent_permission": "ask",
            "match": "off",
        }
    )
    assert request == ChatRequest(
        Turn(
            principal=ADA,
            model="small",
            items=(UserItem("hello"),),
            session_id="s-1",
            mode=SessionMode.APPEND,
            tools=ToolSelection(
                given=True,
                client=(ToolSpec("weather", "Tells it.", SCHEMA),),
                servers={"files": ("read",)},
                choice=ToolChoice.REQUIRED,
                parallel=False,
            ),
            sampling=AskedSampling(1.0, 40, 0.9, 0.05, seed=7),
            stop=("END", "STOP"),
            limits=Limits(max_tokens=100, max_tool_rounds=3),
            permission=Permission.ASK,
            user="u1",
            hint=hint_of({}, "k"),
            stored=False,
            match=False,
            wants_events=True,
        ),
        stream=True,
        include_usage=True,
    )


def test_null_means_absent_in_every_optional_field() -> None:
    fields = """model stream stream_options temperature top_p top_k min_p seed stop max_tokens max_completion_tokens
        tools tool_choice parallel_tool_calls user safety_identifier store metadata session_id session_mode
        max_tool_rounds agent_permission match n logprobs top_logprobs logit_bias presence_penalty frequency_penalty
        response_format functions function_call audio modalities prediction web_search_options"""
    assert read(dict.fromkeys(fields.split())) == read({})


def test_fields_that_nobody_knows_are_ignored() -> None:
    assert read({"service_tier": "auto", "verbosity": "low", "x": {"y": [1]}}) == read({})


# Messages


def test_every_role_becomes_its_item() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Ulm"}'}}
    messages = [
        {"role": "system", "content": "be kind"},
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"role": "tool", "tool_call_id": "c0", "name": "older", "content": [{"type": "text", "text": "x"}]},
    ]
    assert turn(messages=messages).items == (
        SystemItem("be kind"),
        SystemItem("be brief"),
        UserItem("one\ntwo"),
        AssistantItem("", "hm", (ToolCall("c1", "weather", '{"city":"Ulm"}'),)),
        ToolResultItem("c1", "weather", "sunny"),
        AssistantItem("no"),
        ToolResultItem("c0", "older", "x"),
    )


def test_a_result_alone_leaves_its_tools_name_to_the_session() -> None:
    messages = [{"role": "tool", "tool_call_id": "c9", "content": "done"}]
    assert turn(messages=messages).items == (ToolResultItem("c9", "", "done"),)


@given(st.lists(st.text(), max_size=4))
def test_text_arrives_exactly(texts: list[str]) -> None:
    parts = [{"type": "text", "text": text} for text in texts]
    assert turn(messages=[{"role": "user", "content": parts}]).items == (UserItem("\n".join(texts)),)


# Tools


def test_absent_and_empty_tools_are_told_apart() -> None:
    assert turn().tools == ToolSelection(given=False)
    assert turn(tools=[]).tools == ToolSelection(given=True)


def test_a_tool_without_parameters_takes_none() -> None:
    (tool,) = turn(tools=[{"type": "function", "function": {"name": "now"}}]).tools.client
    assert tool.parameters == {"type": "object", "properties": {}}


@pytest.mark.parametrize("strict", [None, True, False])
def test_whether_a_schema_is_closed_is_for_the_client_to_say(strict: bool | None) -> None:
    """A client that sends no `strict` means its schema as it is written: what it left open stays open."""
    said = {} if strict is None else {"strict": strict}
    (tool,) = turn(tools=[{"type": "function", "function": {"name": "now", **said}}]).tools.client
    assert tool.strict is strict


@pytest.mark.parametrize("kind", ["web_search", "web_search_preview", "custom", "code_interpreter"])
def test_a_tool_that_nobody_here_can_run_is_left_out_and_told(kind: str) -> None:
    read = turn(tools=[WEATHER, {"type": kind, "filters": {"allowed_domains": ["x"]}}])
    assert [tool.name for tool in read.tools.client] == ["weather"]
    assert read.left_out == (LeftOut("tools[1]", f"there are no tools of type {kind!r} here"),)


def test_a_request_whose_tools_are_all_left_out_gets_no_others() -> None:
    assert turn(tools=[{"type": "web_search"}]).tools == ToolSelection(given=True)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("none", (ToolChoice.NONE, None)),
        ("auto", (ToolChoice.AUTO, None)),
        ("required", (ToolChoice.REQUIRED, None)),
        ({"type": "function", "function": {"name": "weather"}}, (ToolChoice.REQUIRED, "weather")),
    ],
)
def test_tool_choice(choice: object, expected: tuple[ToolChoice, str | None]) -> None:
    tools = turn(tools=[WEATHER], tool_choice=choice).tools
    assert (tools.choice, tools.only) == expected


@pytest.mark.parametrize(("mode", "choice"), [("auto", ToolChoice.AUTO), ("required", ToolChoice.REQUIRED)])
def test_calls_may_be_narrowed_to_some_of_the_tools(mode: str, choice: ToolChoice) -> None:
    other = {"type": "function", "function": {"name": "other"}}
    tools = turn(tools=[WEATHER, other], tool_choice=_allowed(["weather", "weather"], mode)).tools
    assert (tools.choice, tools.only, tools.allowed) == (choice, None, ("weather",))
    assert [spec.name for spec in tools.client] == ["weather", "other"]


# How tokens are chosen, and what the answer must be


def test_penalties_biases_and_logprobs_are_the_samplings() -> None:
    body: dict[str, Any] = {
        "presence_penalty": 0.5,
        "frequency_penalty": -2,
        "repeat_penalty": 1.1,
        "logit_bias": {"7": -100, "65": 2.5},
        "logprobs": True,
        "top_logprobs": 3,
    }
    assert turn(**body).sampling == AskedSampling(
        presence_penalty=0.5,
        frequency_penalty=-2.0,
        repetition_penalty=1.1,
        logit_bias=((7, -100.0), (65, 2.5)),
        logprobs=3,
    )
    assert turn(logprobs=True).sampling.logprobs == 0
    assert turn(logprobs=False, top_logprobs=0).sampling.logprobs is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, ResponseFormat("json_object")),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}},
            ResponseFormat("json_schema", SCHEMA, strict=True),
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
            ResponseFormat("json_schema", SCHEMA, strict=False),
        ),
    ],
)
def test_response_format(given: dict[str, Any], expected: ResponseFormat | None) -> None:
    assert turn(response_format=given).response == expected


@pytest.mark.parametrize(
    "given", [{"json_schema": SCHEMA}, {"response_format": {"type": "json_object", "schema": SCHEMA}}]
)
def test_a_schema_may_stand_where_llama_server_has_it(given: dict[str, Any]) -> None:
    assert turn(**given).response == ResponseFormat("json_schema", SCHEMA, strict=True)


def test_two_forms_of_an_answer_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="only one") as refused:
        turn(json_schema=SCHEMA, response_format={"type": "json_object"})
    assert refused.value.param == "json_schema"


def test_what_a_message_carries_is_kept_beside_its_text() -> None:
    content = [
        {"type": "text", "text": "What is"},
        _image("data:image/PNG;base64,aGk="),
        {"type": "input_image", "image_url": "https://x/y.png"},
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="}},
        {"type": "text", "text": "this?"},
    ]
    carried = (
        Attachment("image", "image/png", data="aGk="),
        Attachment("image", "image/*", uri="https://x/y.png"),
        Attachment("audio", "audio/wav", data="aGk="),
        Attachment("file", "application/pdf", data="aGk="),
    )
    result = {"role": "tool", "tool_call_id": "c", "content": content}
    assert turn(messages=[*HELLO, {"role": "user", "content": content}, result]).items[1:] == (
        UserItem("What is\nthis?", carried),
        ToolResultItem("c", "", "What is\nthis?", attachments=carried),
    )


def test_a_servers_tools_may_be_all_or_some() -> None:
    tools = [
        {"type": "mcp", "server_label": "files"},
        {"type": "mcp", "server_label": "web", "allowed_tools": {"tool_names": ["get"]}, "require_approval": "never"},
        {"type": "mcp", "server_label": "none", "allowed_tools": []},
    ]
    assert turn(tools=tools).tools.servers == {"files": None, "web": ("get",), "none": ()}


# The session, the user, and how often


def test_the_header_names_a_session_as_the_field_does() -> None:
    assert turn({"x-tenuto-session": "s-2"}) == turn(session_id="s-2")
    assert turn({"x-tenuto-session": "s-2"}, session_id="s-2").session_id == "s-2"


@pytest.mark.parametrize(
    ("headers", "body", "wanted"),
    [
        ({}, {}, False),
        ({"x-tenuto-events": "1"}, {}, True),
        ({"x-tenuto-events": "0"}, {}, False),
        ({"x-tenuto-session": "s"}, {}, True),
        ({}, {"session_id": "s"}, True),
        ({}, {"max_tool_rounds": 0}, True),
        ({}, {"agent_permission": "deny"}, True),
    ],
)
def test_named_events_are_for_those_who_asked(headers: dict[str, str], body: dict[str, Any], wanted: bool) -> None:
    assert turn(headers, **body).wants_events is wanted


def test_both_names_of_a_user_narrow_the_match() -> None:
    assert turn(user="a").user == turn(safety_identifier="a").user == "a"
    assert turn(user="a", safety_identifier="b").user not in ("a", "b", None)


@pytest.mark.parametrize(
    ("names", "param"),
    [
        ({"user": "u" * 513}, "user"),
        ({"safety_identifier": "u" * 513}, "safety_identifier"),
        ({"user": "u" * 300, "safety_identifier": "v" * 300}, "user"),
    ],
)
def test_the_name_of_a_user_has_a_limit(names: dict[str, str], param: str) -> None:
    assert turn(user="u" * 512).user == "u" * 512
    with pytest.raises(InvalidRequest, match="at most 512 characters") as raised:
        read({"messages": HELLO, **names})
    assert raised.value.param == param


def test_an_idempotency_key_comes_with_a_digest_of_the_whole_request() -> None:
    key = {"idempotency-key": "k"}
    first, same, other = turn(key), turn(key), turn(key, seed=1)
    elsewhere = turn(key | {"x-tenuto-session": "s"})
    assert first.idempotency_key == "k"
    assert first.body_digest == same.body_digest
    assert len({first.body_digest, other.body_digest, elsewhere.body_digest}) == 3
    assert turn().body_digest is None


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 5}, 5),
        ({"max_tokens": 5, "max_completion_tokens": 5}, 5),
        ({"max_tokens": -1}, None),
        ({"max_tokens": 0}, None),
        ({"max_completion_tokens": 0}, None),
        ({"max_tokens": 0, "max_completion_tokens": 5}, 5),
        ({}, None),
    ],
)
def test_max_tokens(body: dict[str, Any], limit: int | None) -> None:
    assert turn(**body).limits.max_tokens == limit


def test_one_stop_string_is_a_list_of_one() -> None:
    assert turn(stop="END").stop == ("END",)


def test_there_may_be_many_stop_strings() -> None:
    """Clients of local models send the markers of every family."""
    stops = [f"<|{number}|>" for number in range(64)]
    assert turn(stop=stops).stop == tuple(stops)


@pytest.mark.parametrize("name", ["repetition_penalty", "repeat_penalty"])
def test_a_repetition_penalty_of_nothing_is_none(name: str) -> None:
    assert read({name: 0}).turn == read({name: 1.0}).turn == turn(repetition_penalty=0, repeat_penalty=1.0)


# Hints


@pytest.mark.parametrize("name", ["x-session-id", "x-session-affinity", "x-claude-code-session-id"])
@pytest.mark.parametrize("value", ["ses_1", "a/b:c d", "é" * 500, " "])
def test_headers_that_other_servers_know_are_hints_whatever_they_hold(name: str, value: str) -> None:
    hinted = turn({name: value})
    assert hinted.hint is not None
    assert len(hinted.hint) == 32
    assert replace(hinted, hint=None) == turn()
    assert turn({name: value}).hint == hinted.hint != turn({name: f"{value}2"}).hint


@pytest.mark.parametrize("value", ["k", "k" * 10_000, 7, ["a", {"b": None}], {"c": 1.5}, True])
def test_a_prompt_cache_key_is_a_hint_whatever_it_holds(value: object) -> None:
    assert len(turn(prompt_cache_key=value).hint or "") == 32
    assert turn({"x-session-id": "s"}, prompt_cache_key=value).hint == turn({"x-session-id": "s"}).hint


@pytest.mark.parametrize("value", [None, "", [], {}])
def test_an_empty_hint_is_none(value: object) -> None:
    assert turn({"x-session-id": ""}, prompt_cache_key=value).hint is None


# What clients can do without


@pytest.mark.parametrize(
    ("name", "value", "harmless"),
    [("web_search_options", {}, None)],
)
def test_what_clients_can_do_without_is_left_out_and_told(name: str, value: object, harmless: object) -> None:
    (left_out,) = read({name: value}).turn.left_out
    assert left_out.what == name
    assert replace(read({name: value}).turn, left_out=()) == read({name: harmless}).turn == turn()


# What is refused


@pytest.mark.parametrize(
    ("name", "value", "harmless"),
    [
        ("grammar", {"type": "regex", "value": "a"}, None),
        ("functions", [{"name": "f"}], []),
        ("function_call", "auto", None),
        ("audio", {"voice": "x"}, None),
        ("modalities", ["text", "audio"], ["text"]),
        ("prediction", {"type": "content"}, None),
    ],
)
def test_a_field_that_would_change_the_answer_is_refused_by_name(name: str, value: object, harmless: object) -> None:
    with pytest.raises(UnsupportedParameter) as refused:
        read({name: value})
    assert refused.value.param == name
    assert read({name: harmless}) == read({})


def _image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def _schema(schema: object) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def _allowed(names: list[str], mode: str = "auto") -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def _message(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "a"}, fields]}


def _function(**fields: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": fields}]}


def _mcp(**fields: Any) -> dict[str, Any]:
    return {"tools": [WEATHER, {"type": "mcp", "server_label": "web"} | fields]}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": None}, "messages"),
        (_message(content="a"), "messages[1].role"),
        (_message(role="function", content="a"), "messages[1].role"),
        (_message(role="user", content=5), "messages[1].content"),
        (_message(role="user", content=[{"text": "a"}]), "messages[1].content[0].type"),
        (_message(role="user", content=[{"type": "text"}]), "messages[1].content[0].text"),
        (_message(role="user", content=[{"type": "text", "text": 1}]), "messages[1].content[0].text"),
        (_message(role="user", content=[{"type": "image_url"}]), "messages[1].content[0].image_url"),
        (
            _message(role="user", content=[{"type": "image_url", "image_url": {}}]),
            "messages[1].content[0].image_url.url",
        ),
        (_message(role="user", content=[_image("ftp://x/y.png")]), "messages[1].content[0].image_url.url"),
        (_message(role="user", content=[_image("data:image/png;base64,a")]), "messages[1].content[0].image_url.url"),
        (
            _message(role="user", content=[_image("data:text/plain;base64,aGk=")]),
            "messages[1].content[0].image_url.url",
        ),
        (_message(role="user", content=[{"type": "input_audio"}]), "messages[1].content[0].input_audio"),
        (
            _message(role="user", content=[{"type": "input_audio", "input_audio": {"data": "ä", "format": "wav"}}]),
            "messages[1].content[0].input_audio.data",
        ),
        (_message(role="user", content=[{"type": "file", "file": {}}]), "messages[1].content[0].file.file_data"),
        (
            _message(role="user", content=[{"type": "file", "file": {"file_id": "f"}}]),
            "messages[1].content[0].file.file_id",
        ),
        (_message(role="user", content=[{"type": "video"}]), "messages[1].content[0].type"),
        (_message(role="assistant", content=[_image("https://x/y.png")]), "messages[1].content[0].type"),
        (_message(role="tool", content="a"), "messages[1].tool_call_id"),
        (_message(role="assistant", function_call={"name": "f"}), "messages[1].function_call"),
        (_message(role="assistant", audio={"id": "a"}), "messages[1].audio"),
        (_message(role="assistant", tool_calls=[{"id": "a"}]), "messages[1].tool_calls[0].function"),
        (
            _message(role="assistant", tool_calls=[{"id": "a", "function": {"name": "f", "arguments": {}}}]),
            "messages[1].tool_calls[0].function.arguments",
        ),
        ({"model": 5}, "model"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"seed": 1.5}, "seed"),
        ({"stop": ["a"] * 65}, "stop"),
        ({"stop": ""}, "stop[0]"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens"),
        ({"tools": {}}, "tools"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name"),
        (_function(name="a b"), "tools[0].function.name"),
        (_function(name="f", parameters={"type": "array"}), "tools[0].function.parameters.type"),
        (_function(name="f", parameters=[]), "tools[0].function.parameters"),
        (_mcp(server_label=None), "tools[1].server_label"),
        (_mcp(server_url="http://x"), "tools[1].server_url"),
        (_mcp(headers={"a": "b"}), "tools[1].headers"),
        (_mcp(authorization="x"), "tools[1].authorization"),
        (_mcp(connector_id="x"), "tools[1].connector_id"),
        (_mcp(require_approval="always"), "tools[1].require_approval"),
        (_mcp(allowed_tools={"read_only": True}), "tools[1].allowed_tools.read_only"),
        (_mcp(allowed_tools=[1]), "tools[1].allowed_tools.tool_names[0]"),
        ({"tools": [_mcp()["tools"][1]] * 2}, "tools[1].server_label"),
        ({"tool_choice": "any"}, "tool_choice.type"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tool_choice": "required", "tools": []}, "tool_choice"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "x"}}, "tools": [WEATHER]},
            "tool_choice.function.name",
        ),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"user": 1}, "user"),
        ({"store": "no"}, "store"),
        ({"session_id": "a b"}, "session_id"),
        ({"session_id": ""}, "session_id"),
        ({"session_id": "a" * 129}, "session_id"),
        ({"session_id": "a\n"}, "session_id"),
        ({"session_mode": "other"}, "session_mode"),
        ({"max_tool_rounds": -1}, "max_tool_rounds"),
        ({"agent_permission": "yes"}, "agent_permission"),
        ({"match": "on"}, "match"),
        ({"n": 2, "session_id": "s"}, "n"),
        ({"n": 2, "tools": [WEATHER, {"type": "mcp", "server_label": "web"}]}, "n"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"logprobs": 1}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 2}, "top_logprobs"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": "1"}, "frequency_penalty"),
        ({"repetition_penalty": -0.1}, "repetition_penalty"),
        ({"repetition_penalty": 1.1, "repeat_penalty": 1.2}, "repetition_penalty"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"logit_bias": {"five": 1}}, "logit_bias.five"),
        ({"logit_bias": {"-1": 1}}, "logit_bias.-1"),
        ({"logit_bias": [5]}, "logit_bias"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.schema"),
        ({"response_format": {"type": "json_object", "schema": {"type": 123}}}, "response_format.schema"),
        ({"json_schema": {"type": "objekt"}}, "json_schema"),
        (_schema({"type": "objekt"}), "response_format.json_schema.schema"),
        (_schema({"type": "object", "properties": 5}), "response_format.json_schema.schema"),
        (_schema([]), "response_format.json_schema.schema"),
        (_function(name="f", parameters={"type": "object", "required": 5}), "tools[0].function.parameters"),
        ({"tools": [WEATHER], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools"),
        ({"tools": [WEATHER], "tool_choice": _allowed([])}, "tool_choice.allowed_tools.tools"),
        (
            {"tools": [WEATHER], "tool_choice": _allowed(["weather", "x"])},
            "tool_choice.allowed_tools.tools[1].function.name",
        ),
        ({"max_tokens": 10**400}, "max_tokens"),
        ({"max_tool_rounds": 10**400}, "max_tool_rounds"),
    ],
)
def test_what_cannot_be_understood_is_refused_and_the_field_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(body)
    assert refused.value.param == param
    assert param in str(refused.value)


@pytest.mark.parametrize(
    ("headers", "param"),
    [
        ({"x-tenuto-session": "a/b"}, "X-Tenuto-Session"),
        ({"x-tenuto-session": "other"}, "session_id"),
        ({"idempotency-key": ""}, "Idempotency-Key"),
        ({"idempotency-key": "k" * 256}, "Idempotency-Key"),
        ({"idempotency-key": "k"}, "n"),
        ({"x-tenuto-session": "s"}, "n"),
    ],
)
def test_a_wrong_header_is_refused(headers: dict[str, str], param: str) -> None:
    bodies: dict[str, dict[str, Any]] = {"session_id": {"session_id": "one"}, "n": {"n": 2}}
    with pytest.raises(InvalidRequest) as refused:
        read(bodies.get(param, {}), headers)
    assert refused.value.param == param


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = ["messages", "tools", "tool_choice", "stop", "stream_options", "session_id", "seed", "n", "modalities"]


@given(st.dictionaries(st.sampled_from(_FIELDS), _JSON))
def test_no_body_breaks_the_reader(body: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidRequest):
        assert read(body).turn.items

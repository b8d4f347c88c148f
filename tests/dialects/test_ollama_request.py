"""What a request of Ollama's clients means: items, tools and options, and what is wrong with one, by its field."""

import json
from typing import Any

import pytest

from tenuto.errors import InvalidRequest, UnsupportedParameter
from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.sampling_defaults import TEMPERATURE, AskedSampling, SamplingDefaults
from tenuto.runtime.dialects.ollama.request import Asked, read_chat, read_generate
from tenuto.runtime.loop.requests import LeftOut, ResponseFormat, Turn
from tenuto.sessions.items import AssistantItem, Attachment, Item, SystemItem, ToolCall, ToolResultItem, UserItem
from tenuto.sessions.principal import LOCAL

PNG = "iVBORw0KGgo="
SEEN = Attachment("image", "image/png", data=PNG)
HELLO = {"role": "user", "content": "hello"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}}


def chat(headers: dict[str, str] | None = None, **fields: Any) -> Asked:
    body = {"model": "m", "messages": [HELLO], **fields}
    return read_chat(json.dumps(body).encode(), headers or {}, principal=LOCAL)


def generate(**fields: Any) -> Asked:
    return read_generate(json.dumps({"model": "m", "prompt": "hello", **fields}).encode(), {}, principal=LOCAL)


def turn(asked: Asked) -> Turn:
    assert asked.turn is not None
    return asked.turn


def items(*messages: dict[str, Any]) -> list[Item]:
    return list(turn(chat(messages=[*messages])).items)


def refused(read: Any, **fields: Any) -> str | None:
    with pytest.raises(InvalidRequest) as error:
        read(**fields)
    return error.value.param


def test_messages_are_items() -> None:
    call = {"id": "c1", "function": {"index": 0, "name": "weather", "arguments": {"city": "Ulm"}}}
    assert items(
        {"role": "system", "content": "Be kind."},
        {"role": "User", "content": "look", "images": [PNG]},
        {"role": "assistant", "content": None, "thinking": "hm", "tool_calls": [call]},
        {"role": "tool", "content": "sun", "tool_name": "weather", "tool_call_id": "c1"},
    ) == [
        SystemItem("Be kind."),
        UserItem("look", (SEEN,)),
        AssistantItem("", "hm", (ToolCall("c1", "weather", '{"city":"Ulm"}'),)),
        ToolResultItem("c1", "weather", "sun"),
    ]


def test_what_clients_leave_out_of_calls_and_results_stays_empty() -> None:
    assert items(
        {"role": "assistant", "tool_calls": [{"function": {"name": "now"}}]}, {"role": "tool", "content": "9"}
    ) == [AssistantItem(calls=(ToolCall("", "now", "{}"),)), ToolResultItem("", "", "9")]


@pytest.mark.parametrize(
    ("head", "kind"),
    [("/9j/4AAQSkZJRg==", "jpeg"), ("R0lGODlhAQABAIAA", "gif"), ("UklGRhIAAABXRUJQ", "webp"), ("aGk=", "*")],
)
def test_an_image_is_what_its_first_bytes_say(head: str, kind: str) -> None:
    assert items({"role": "user", "images": [head]}) == [
        UserItem("", (Attachment("image", f"image/{kind}", data=head),))
    ]


def test_options_say_how_tokens_are_chosen() -> None:
    options = {"temperature": 0.5, "top_k": 40.0, "top_p": 0.9, "min_p": 0.05, "seed": 7, "stop": "x", "num_predict": 9}
    penalties = {"repeat_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": 0.25}
    found = turn(chat(options={**options, **penalties, "num_ctx": 8192, "unheard_of": "yes", "num_gpu": None}))
    assert found.sampling == AskedSampling(
        temperature=0.5,
        top_k=40,
        top_p=0.9,
        min_p=0.05,
        seed=7,
        presence_penalty=0.5,
        frequency_penalty=0.25,
        repetition_penalty=1.1,
    )
    assert (found.stop, found.limits.max_tokens, found.left_out) == (("x",), 9, ())


def test_what_stands_for_nothing_is_left_to_the_server() -> None:
    found = turn(
        chat(options={"seed": -1, "num_predict": -1, "top_k": -1, "top_p": 1.5, "repeat_penalty": 0, "typical_p": 1})
    )
    assert found.sampling.over(SamplingDefaults()) == Sampling(TEMPERATURE)
    assert (found.limits.max_tokens, found.left_out) == (None, ())


def test_ways_to_choose_tokens_that_there_are_not_are_told() -> None:
    found = turn(chat(options={"mirostat": 2, "typical_p": 0.5, "tfs_z": 0.9, "repeat_last_n": -1})).left_out
    assert [one.what for one in found] == [
        "options.typical_p",
        "options.tfs_z",
        "options.mirostat",
        "options.repeat_last_n",
    ]


def test_an_answer_is_streamed_and_shows_the_reasoning_unless_a_request_says_otherwise() -> None:
    assert (chat().stream, chat().shows_thinking) == (True, True)
    assert (chat(stream=False).stream, chat(think=False).shows_thinking) == (False, False)
    assert chat(think="low").shows_thinking


def test_tools_are_the_clients_and_none_is_the_same_as_no_list() -> None:
    found = turn(chat(tools=[WEATHER, {"type": "web_search"}]))
    assert [(spec.name, spec.parameters) for spec in found.tools.client] == [("weather", SCHEMA)]
    assert found.left_out == (LeftOut("tools[1]", "there are no tools of type 'web_search' here"),)
    without: list[dict[str, Any]] = [{}, {"tools": []}, {"tools": None}]
    assert [turn(chat(**fields)).tools.given for fields in without] == [False] * 3


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        (None, None),
        ("", None),
        ("json", ResponseFormat("json_object")),
        (SCHEMA, ResponseFormat("json_schema", SCHEMA, strict=True)),
    ],
)
def test_a_format_is_json_or_a_schema(asked: Any, meant: ResponseFormat | None) -> None:
    assert turn(chat(format=asked)).response == meant


def test_logprobs_are_told_where_they_are_asked_for() -> None:
    assert turn(chat(logprobs=True, top_logprobs=3)).sampling.logprobs == 3
    assert refused(chat, top_logprobs=3) == "top_logprobs"


def test_headers_say_which_session_is_meant() -> None:
    found = turn(chat({"x-tenuto-session": "mine", "x-session-id": "a:b"}))
    assert (found.session_id, found.wants_events, found.hint is None) == ("mine", True, False)


@pytest.mark.parametrize("read", [chat, generate])
def test_a_request_without_words_asks_for_the_model_alone(read: Any) -> None:
    for nothing in ({"messages": [], "prompt": ""}, {"messages": None, "prompt": None, "keep_alive": 0}):
        asked = read(**nothing)
        assert (asked.model, asked.turn, asked.raw) == ("m", None, None)


def test_a_prompt_is_a_conversation_of_its_own_without_tools() -> None:
    found = turn(generate(system="Be kind.", images=[PNG]))
    assert found.items == (SystemItem("Be kind."), UserItem("hello", (SEEN,)))
    assert (found.tools.given, found.tools.client) == (True, ())


def test_a_raw_prompt_is_a_text() -> None:
    asked = generate(raw=True, options={"num_predict": 3, "stop": ["x"], "temperature": 0})
    assert asked.turn is None
    assert asked.raw is not None
    assert (asked.raw.text, asked.raw.max_tokens, asked.raw.stop, asked.raw.sampling.temperature) == (
        "hello",
        3,
        ("x",),
        0,
    )


@pytest.mark.parametrize(
    ("read", "fields", "param"),
    [
        (chat, {"messages": [{"role": "robot"}]}, "messages[0].role"),
        (chat, {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content"),
        (chat, {"messages": [{"role": "user", "images": ["?"]}]}, "messages[0].images[0]"),
        (chat, {"messages": [{"role": "assistant", "images": [PNG]}]}, "messages[0].images"),
        (chat, {"tools": [{"type": "function"}]}, "tools[0].function"),
        (chat, {"tools": [WEATHER, WEATHER]}, "tools[1].function.name"),
        (
            chat,
            {"tools": [{"function": {"name": "f", "parameters": {"type": "array"}}}]},
            "tools[0].function.parameters.type",
        ),
        (chat, {"format": "xml"}, "format"),
        (chat, {"format": {"type": "nothing"}}, "format"),
        (chat, {"think": "a lot"}, "think.bool"),
        (chat, {"options": {"top_k": 0.5}}, "options.top_k"),
        (chat, {"options": {"temperature": -1}}, "options.temperature"),
        (chat, {"options": {"presence_penalty": -3}}, "options.presence_penalty"),
        (chat, {"options": {"repeat_penalty": 11}}, "options.repeat_penalty"),
        (generate, {"context": [1, 2]}, "context"),
        (generate, {"template": "{{ .Prompt }}"}, "template"),
        (generate, {"raw": True, "system": "x"}, "system"),
        (generate, {"raw": True, "images": [PNG]}, "images"),
        (generate, {"raw": True, "format": "json"}, "format"),
        (generate, {"raw": True, "prompt": "", "images": [PNG]}, "images"),
        (generate, {"raw": True, "options": {"mirostat": 1}}, "options.mirostat"),
    ],
)
def test_what_is_wrong_is_told_by_its_field(read: Any, fields: dict[str, Any], param: str) -> None:
    assert refused(read, **fields) == param


def test_what_is_known_and_not_served_is_told_as_that() -> None:
    with pytest.raises(UnsupportedParameter, match="send the conversation to /api/chat"):
        generate(context=[1])
    assert generate(context=[], template="", suffix=None).turn is not None

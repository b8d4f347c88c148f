"""What a request for a response means. https://platform.openai.com/docs/api-reference/responses/create"""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.errors import InvalidRequest
from tenuto.pipelines.base import ToolChoice
from tenuto.pipelines.sampling_defaults import AskedSampling
from tenuto.runtime.dialects.openai.responses.callables import ClientTool, model_name, unwrapped, wrapped
from tenuto.runtime.dialects.openai.responses.input import Approval
from tenuto.runtime.dialects.openai.responses.request import ResponseRequest, Unlisted, read_responses
from tenuto.runtime.loop.requests import LeftOut, Limits, Reasoning, ResponseFormat, ToolSelection, Turn
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
from tenuto.sessions.principal import Principal
from tenuto.tools.registry import Exported
from tenuto.tools.spec import Annotations, Tool

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "name": "weather", "description": "Tells it.", "parameters": SCHEMA, "strict": True}
ADA = Principal("ada")
PIXEL = "data:image/png;base64,iVBORw0KGgo="
TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def exported(server: str, name: str, *, read_only: bool = False) -> Exported:
    spec = ToolSpec(name, "", {"type": "object"})
    full = f"{server}__{name}"
    return Exported(full, server, Tool(spec, Annotations(read_only=read_only)), ToolSpec(full, "", {"type": "object"}))


LISTED = {"files": [exported("files", "read", read_only=True), exported("files", "write")]}


def read(body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> ResponseRequest:
    text = json.dumps({"input": "hello"} | dict(body)).encode()
    found = read_responses(text, headers or {}, principal=ADA, listed=LISTED)
    assert isinstance(found, ResponseRequest)
    return found


def turn(headers: Mapping[str, str] | None = None, **body: Any) -> Turn:
    return read(body, headers).turn


def items(*wire: Any) -> list[Item]:
    return [*turn(input=[*wire]).items]


def message(role: str, *content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [*content]}


def said(text: str) -> dict[str, Any]:
    return message("assistant", {"type": "output_text", "text": text, "annotations": []})


def call(id: str, name: str = "weather", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": "{}", **more}


def output(id: str, output: Any = "sun") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": output}


def test_a_bare_request_takes_every_default() -> None:
    request = read({})
    assert request.turn == Turn(principal=ADA, model=None, items=(UserItem("hello"),))
    assert (request.stream, request.approval, request.asked.callables, request.asked.lists) == (False, None, {}, ())


def test_every_field_finds_its_place() -> None:
    body = {
        "model": "small",
        "instructions": "Be brief.",
        "stream": True,
        "temperature": 1,
        "top_p": 0.9,
        "max_output_tokens": 100,
        "max_tool_calls": 3,
        "top_logprobs": 2,
        "tools": [WEATHER, {"type": "mcp", "server_label": "files", "allowed_tools": ["read"]}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True}, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "user": "u1",
        "store": False,
        "metadata": {"a": "b"},
        "previous_response_id": "resp_ab",
        "include": ["reasoning.encrypted_content"],
        "client_metadata": {"x": "y"},
    }
    headers = {"x-tenuto-session": "s-1", "idempotency-key": "k"}
    found = read(body, headers)
    assert found.stream
    assert [one.label for one in found.asked.lists] == ["files"]
    assert found.turn == Turn(
        principal=ADA,
        model="small",
        items=(SystemItem("Be brief."), UserItem("hello")),
        session_id="s-1",
        tools=ToolSelection(
            given=True,
            client=(ToolSpec("weather", "Tells it.", SCHEMA, strict=True),),
            servers={"files": ("read",)},
            choice=ToolChoice.REQUIRED,
            parallel=False,
        ),
        sampling=AskedSampling(1, top_p=0.9, logprobs=2),
        reasoning=Reasoning(effort="low"),
        response=ResponseFormat("json_schema", SCHEMA, strict=True),
        limits=Limits(max_tokens=100, max_tool_rounds=3),
        user="u1",
        stored=False,
        wants_events=True,
        after="ab",
        is_instructed=True,
        idempotency_key="k",
        body_digest=found.turn.body_digest,
    )


# Input


def test_messages_of_every_role_become_items() -> None:
    assert items(
        message("system", {"type": "input_text", "text": "a"}),
        {"role": "developer", "content": "b"},
        {"role": "user", "content": [{"type": "input_text", "text": "c"}, {"type": "input_text", "text": "d"}]},
        said("e"),
        message("assistant", {"type": "refusal", "refusal": "f"}),
        {"role": "user", "content": "g"},
    ) == [SystemItem("a"), SystemItem("b"), UserItem("c\nd"), AssistantItem("ef"), UserItem("g")]


def test_what_the_model_said_in_one_round_is_one_item() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    assert items(
        {"role": "user", "content": "q"}, thought, said("a"), call("1"), call("2"), output("1"), output("2")
    ) == [
        UserItem("q"),
        AssistantItem("a", "hm", (ToolCall("1", "weather", "{}"), ToolCall("2", "weather", "{}"))),
        ToolResultItem("1", "weather", "sun"),
        ToolResultItem("2", "weather", "sun"),
    ]


def test_reasoning_without_content_says_nothing() -> None:
    """As Codex sends it back."""
    echoed: dict[str, Any] = {"type": "reasoning", "summary": [], "content": None, "encrypted_content": None}
    assert items({"role": "user", "content": "q"}, echoed, said("a"), {"role": "user", "content": "r"}) == [
        UserItem("q"),
        AssistantItem("a"),
        UserItem("r"),
    ]


def test_an_output_may_be_a_list_with_images() -> None:
    parts = [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": PIXEL}]
    *_, result = items(call("1"), output("1", parts))
    image = Attachment("image", "image/png", data="iVBORw0KGgo=")
    assert result == ToolResultItem("1", "weather", "look", attachments=(image,))


@pytest.mark.parametrize(
    ("part", "attachment"),
    [
        ({"type": "input_image", "image_url": PIXEL}, Attachment("image", "image/png", data="iVBORw0KGgo=")),
        (
            {"type": "input_image", "image_url": "https://a/b.png"},
            Attachment("image", "image/*", uri="https://a/b.png"),
        ),
        (
            {"type": "input_file", "filename": "a", "file_data": "data:text/plain;base64,QQ=="},
            Attachment("file", "text/plain", data="QQ=="),
        ),
        (
            {"type": "input_file", "file_url": "https://a/b"},
            Attachment("file", "application/octet-stream", uri="https://a/b"),
        ),
    ],
)
def test_a_users_message_carries_images_and_files(part: dict[str, Any], attachment: Attachment) -> None:
    assert items({"role": "user", "content": [part]}) == [UserItem("", (attachment,))]


def test_a_custom_tools_call_is_one_of_a_function_that_takes_a_text() -> None:
    made = {"type": "custom_tool_call", "call_id": "1", "name": "patch", "input": 'a "b"'}
    answered = {"type": "custom_tool_call_output", "call_id": "1", "output": "done"}
    found = items({"role": "user", "content": "q"}, made, answered)
    assert found == [
        UserItem("q"),
        AssistantItem(calls=(ToolCall("1", "patch", '{"input": "a \\"b\\""}'),)),
        ToolResultItem("1", "patch", "done"),
    ]


def test_what_a_server_did_is_its_own_round_before_the_clients_calls() -> None:
    made = {
        "type": "mcp_call",
        "id": "mcp_1",
        "server_label": "files",
        "name": "read",
        "arguments": '{"path": "a"}',
        "output": "text",
    }
    found = items({"role": "user", "content": "q"}, said("a"), call("1"), made, output("1"))
    server = ToolCall("mcp_1", "files__read", '{"path": "a"}', server=True)
    assert found == [
        UserItem("q"),
        AssistantItem("a", calls=(server,)),
        ToolResultItem("mcp_1", "files__read", "text", server=True),
        AssistantItem(calls=(ToolCall("1", "weather", "{}"),)),
        ToolResultItem("1", "weather", "sun"),
    ]


def test_a_servers_failure_is_a_result_that_says_so() -> None:
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no such file"}]}
    made = {"type": "mcp_call", "id": "m", "server_label": "files", "name": "read", "arguments": "", "error": error}
    *_, result = items({"role": "user", "content": "q"}, made)
    assert result == ToolResultItem("m", "files__read", "no such file", is_error=True, server=True)


def test_an_answer_to_an_approval_is_what_the_input_ends_with() -> None:
    asked = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "f", "name": "r", "arguments": "{}"}
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False, "reason": "no"}
    assert read({"input": [{"role": "user", "content": "q"}, asked, answer]}).approval == Approval(
        "mcpr_1", False, "no"
    )
    over = read({"input": [{"role": "user", "content": "q"}, asked, answer, {"role": "user", "content": "r"}]})
    assert over.approval is None
    assert over.turn.items == (UserItem("q"), UserItem("r"))


def test_items_of_elsewhere_are_left_out_and_told() -> None:
    found = read({"input": [{"role": "user", "content": "q"}, {"type": "web_search_call", "action": {"x": 1}}]})
    assert found.turn.items == (UserItem("q"),)
    assert [one.what for one in found.turn.left_out] == ["input[1]"]


@pytest.mark.parametrize(
    ("wire", "param"),
    [
        ({"type": "massage"}, "input[0].type"),
        ({"type": "item_reference", "id": "msg_1"}, "input[0]"),
        ({"id": "msg_1"}, "input[0]"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0].text"),
        ({"role": "user", "content": [{"type": "teapot"}]}, "input[0].content[0].type"),
        ({"role": "system", "content": [{"type": "input_image", "image_url": PIXEL}]}, "input[0].content[0].type"),
        ({"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}, "input[0].content[0].file_id"),
        ({"role": "user", "content": [{"type": "input_image"}]}, "input[0].content[0].image_url"),
        ({"type": "message", "content": "a"}, "input[0].role"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "input[0].call_id"),
        ({"type": "function_call_output", "output": "x"}, "input[0].call_id"),
        ({"type": "mcp_call", "name": "f"}, "input[0].server_label"),
        ({"type": "mcp_approval_response", "approve": True}, "input[0].approval_request_id"),
    ],
)
def test_an_item_that_cannot_be_understood_is_named(wire: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        items(wire)
    assert caught.value.param == param


# Tools


def test_functions_of_a_namespace_have_one_name_for_the_model() -> None:
    space = {"type": "namespace", "name": "mcp__git__", "description": "d", "tools": [WEATHER | {"strict": False}]}
    request = read({"tools": [space]})
    assert [(spec.name, spec.strict) for spec in request.turn.tools.client] == [("mcp__git__weather", False)]
    assert request.asked.callables == {"mcp__git__weather": ClientTool("weather", "mcp__git__")}
    (made,) = items(call("1", namespace="mcp__git__"))
    assert made == AssistantItem(calls=(ToolCall("1", "mcp__git__weather", "{}"),))


def test_a_custom_tool_takes_a_text() -> None:
    regex = {"type": "grammar", "syntax": "regex", "definition": "a+"}
    lark = {"type": "grammar", "syntax": "lark", "definition": "start: A"}
    tools = [
        {"type": "custom", "name": name, "format": form} for name, form in (("p", None), ("r", regex), ("l", lark))
    ]
    request = read({"tools": tools})
    plain, held, told = request.turn.tools.client
    assert plain.parameters == TEXT | {"additionalProperties": False}
    assert held.parameters["properties"] == {"input": {"type": "string", "pattern": "^(?:a+)$"}}
    assert "start: A" in told.description
    assert [one.what for one in request.turn.left_out] == ["tools[2].format"]


def test_hosted_tools_are_left_out_and_told() -> None:
    request = read({"tools": [WEATHER, {"type": "web_search", "filters": {}}]})
    assert [spec.name for spec in request.turn.tools.client] == ["weather"]
    assert request.turn.left_out == (LeftOut("tools[1]", "there are no tools of type 'web_search' here"),)


@pytest.mark.parametrize(
    ("approval", "asks"),
    [
        ("always", ("files__read", "files__write")),
        ("never", ()),
        ({"always": {"tool_names": ["write"]}}, ("files__write",)),
        ({"never": {"tool_names": ["read"]}}, ("files__write",)),
        ({"never": {"read_only": True}}, ("files__write",)),
        (None, ()),
    ],
)
def test_a_request_says_which_tools_need_approval(approval: Any, asks: tuple[str, ...]) -> None:
    tool = {"type": "mcp", "server_label": "files", "require_approval": approval}
    assert turn(tools=[tool]).tools.asks == asks


def test_allowed_tools_may_be_those_that_only_read() -> None:
    tool = {"type": "mcp", "server_label": "files", "allowed_tools": {"read_only": True}}
    assert turn(tools=[tool]).tools.servers == {"files": ("read",)}


@pytest.mark.parametrize("field", ["connector_id", "tunnel_id", "headers", "authorization"])
def test_servers_come_from_the_configuration_or_by_their_urls(field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        turn(tools=[{"type": "mcp", "server_label": "x", field: {"a": "b"} if field == "headers" else "secret"}])
    assert caught.value.param == f"tools[0].{field}"
    assert "secret" not in str(caught.value)


def test_a_server_by_its_url_is_to_be_listed_before_its_request_is_understood() -> None:
    tool = {"type": "mcp", "server_label": "x", "server_url": "https://x.org/m?k=s3cret", "authorization": "t0ken"}
    body = {"input": "a", "tools": [{**tool, "headers": {"X-Key": "k3y"}}]}
    found = read_responses(json.dumps(body).encode(), {}, principal=ADA, listed=LISTED)
    assert isinstance(found, Unlisted)
    (server,) = found.servers
    assert (server.label, server.url, server.param) == ("x", "https://x.org/m?k=s3cret", "tools[0].server_url")
    assert server.headers == {"X-Key": "k3y", "Authorization": "Bearer t0ken"}
    assert not any(secret in repr(found) + repr(server) for secret in ("s3cret", "t0ken", "k3y"))


FILES = {"type": "mcp", "server_label": "files"}


@pytest.mark.parametrize(
    ("choice", "means"),
    [
        ("none", (ToolChoice.NONE, None, None)),
        ("auto", (ToolChoice.AUTO, None, None)),
        ({"type": "function", "name": "weather"}, (ToolChoice.REQUIRED, "weather", None)),
        (FILES | {"name": "read"}, (ToolChoice.REQUIRED, None, ("files__read",))),
        (FILES, (ToolChoice.REQUIRED, None, ("files__read", "files__write"))),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}, FILES]},
            (ToolChoice.AUTO, None, ("weather", "files__read", "files__write")),
        ),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
            (ToolChoice.NONE, None, None),
        ),
        ({"type": "web_search_preview"}, (ToolChoice.AUTO, None, None)),
    ],
)
def test_a_choice_of_tools_in_all_forms(choice: Any, means: Any) -> None:
    tools = turn(tools=[WEATHER, FILES], tool_choice=choice).tools
    assert (tools.choice, tools.only, tools.allowed) == means


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"background": True, "store": False}, "background"),
        ({"previous_response_id": 1}, "previous_response_id"),
        ({"conversation": "a b"}, "conversation"),
        ({"conversation": "c", "previous_response_id": "resp_x"}, "previous_response_id"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"input": []}, "input"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].name"),
        ({"tools": [{"type": "mcp"}]}, "tools[0].server_label"),
        ({"tools": [FILES, FILES]}, "tools[1].server_label"),
        ({"tool_choice": {"type": "function", "name": "x"}, "tools": [WEATHER]}, "tool_choice.name"),
        ({"tool_choice": FILES | {"name": "x"}, "tools": [FILES]}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
        ({"max_output_tokens": "1"}, "max_output_tokens"),
        ({"metadata": "x"}, "metadata"),
        ({"metadata": {"a": 1}}, "metadata.a"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(body)
    assert (caught.value.param or "").startswith(param)


def test_the_names_of_the_session_must_agree_with_nothing_else() -> None:
    """Clients send these for different conversations: they are hints."""
    hints = {"x-session-id": "a:b/c", "x-session-affinity": "z"}
    assert turn(hints).session_id is None
    assert turn(hints).hint is not None


@settings(deadline=None)  # other work on the machine is not theirs
@given(st.text(max_size=60))
def test_the_text_of_a_custom_tool_comes_back(text: str) -> None:
    assert unwrapped(wrapped(text)) == text


@pytest.mark.parametrize(
    "arguments",
    ["pat", "[" * 100_000, '{"input": "\\ud800"}', '{"input": 1}', '["input"]'],
    ids=["no JSON", "deep", "half a character", "no text", "no object"],
)
def test_arguments_that_hold_no_text_are_the_text(arguments: str) -> None:
    """A client may send back, and a model may write, anything."""
    assert unwrapped(arguments) == arguments


@settings(deadline=None)  # other work on the machine is not theirs
@given(st.text(min_size=1, max_size=200), st.text(min_size=1, max_size=200))
def test_every_tool_of_a_namespace_can_be_named(namespace: str, name: str) -> None:
    found = turn(tools=[{"type": "namespace", "name": namespace, "tools": [{"type": "function", "name": name}]}])
    assert found.tools.client[0].name == model_name(name, namespace)
    assert len(found.tools.client[0].name) <= 128
    assert model_name(name, namespace).isascii()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("type", "role", "content", "call_id", "name", "namespace", "arguments", "output", "input", "id", "tools")
TYPES = ("message", "reasoning", "function_call", "function_call_output", "mcp_call", "mcp_approval_response")


@settings(deadline=None)  # other work on the machine is not theirs
@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON | st.sampled_from(TYPES), max_size=5), max_size=4))
def test_whatever_comes_is_understood_or_refused(wire: Any) -> None:
    with contextlib.suppress(InvalidRequest):
        items(*wire)

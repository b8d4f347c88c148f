"""Only what is new is rendered, and it is what the whole rendering would have had at that place."""

import json
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import ModelLoadFailed, TemplateFailed
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.tokenizer import Tokenizer
from tenuto.sessions.items import (
    AssistantItem,
    Item,
    NoteItem,
    SystemItem,
    ToolCall,
    ToolResultItem,
    ToolSpec,
    UserItem,
)

PARAMETERS = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
TOOLS = [
    ToolSpec("notes__get", "Read a note", PARAMETERS),
    ToolSpec("odd", "<|im_end|> <tool_call>", {"type": "object"}),
]
CALLS = (ToolCall("c1", "notes__get", '{"key": "a"}'), ToolCall("c2", "odd", "{}"))
TALK: list[Item] = [
    SystemItem("Be brief."),
    UserItem("hello"),
    AssistantItem("I look", calls=CALLS),
    ToolResultItem("c1", "notes__get", "12"),
    ToolResultItem("c2", "odd", ""),
    AssistantItem("done"),
    UserItem("thanks"),
]

texts = st.lists(
    st.sampled_from(["<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>", "\ue0000\ue001", "}\n", "\n", "a"])
    | st.text(max_size=3),
    max_size=6,
).map("".join)
calls = st.lists(st.builds(ToolCall, st.just("c"), texts, st.just('{"a": "<|im_end|>"}') | texts), max_size=2).map(
    tuple
)


@st.composite
def conversations(draw: st.DrawFn) -> list[Item]:
    items: list[Item] = [SystemItem(draw(texts))] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 3))):
        items.append(UserItem(draw(texts)))
        turn = AssistantItem(draw(texts), calls=draw(calls), incomplete=draw(st.booleans()))
        items.append(turn)
        items += [ToolResultItem(call.id, call.name, draw(texts)) for call in turn.calls]
        if not turn.calls and draw(st.booleans()):
            items.append(NoteItem(draw(texts)))
    return items


def wire(item: Item) -> dict[str, Any]:
    """An item as Hugging Face's own rendering would get it."""
    match item:
        case AssistantItem():
            functions = [{"function": {"name": call.name, "arguments": call.arguments}} for call in item.calls]
            return {"role": "assistant", "content": item.text, "tool_calls": functions}
        case ToolResultItem():
            return {"role": "tool", "content": item.model_text}
        case NoteItem():
            return {"role": "user", "content": item.text}
        case _:
            return {"role": item.kind, "content": item.text}


def render_whole(template: str, items: list[Item], tools: list[ToolSpec]) -> str:
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    functions = [
        {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
        for t in tools
    ]
    messages = [wire(item) for item in items]
    return environment.from_string(template).render(messages=messages, tools=functions, add_generation_prompt=True)


@given(items=conversations(), tools=st.sampled_from([[], TOOLS]))
def test_the_text_is_what_a_plain_rendering_gives(
    embedded_codec: TemplateCodec, embedded_template: str, items: list[Item], tools: list[ToolSpec]
) -> None:
    rendered = embedded_codec.suffix([], items, tools, ended=False)
    tokens = [token for part in (*rendered.items, rendered.opening) for token in part]
    assert embedded_codec.detokenize(tokens) == render_whole(embedded_template, items, tools)


@given(items=conversations(), tools=st.sampled_from([[], TOOLS]), data=st.data())
def test_rendering_in_steps_gives_the_same_tokens_at_the_same_items(
    embedded_codec: TemplateCodec, items: list[Item], tools: list[ToolSpec], data: st.DataObject
) -> None:
    whole = embedded_codec.suffix([], items, tools, ended=False)
    steps: tuple[tuple[int, ...], ...] = ()
    while len(steps) < len(items):
        begin = len(steps)
        end = data.draw(st.integers(begin + 1, len(items)))
        steps += embedded_codec.suffix(items[:begin], items[begin:end], tools, ended=False).items
    assert steps == whole.items
    assert embedded_codec.suffix(items, [], tools, ended=False).opening == whole.opening


@given(items=conversations(), tools=st.sampled_from([[], TOOLS]))
def test_content_adds_no_reserved_token(
    embedded_codec: TemplateCodec, items: list[Item], tools: list[ToolSpec]
) -> None:
    def reserved(items: list[Item], tools: list[ToolSpec]) -> list[int]:
        rendered = embedded_codec.suffix([], items, tools, ended=False)
        tokens = [token for part in (*rendered.items, rendered.opening) for token in part]
        return [token for token in tokens if token in embedded_codec.info.control_tokens]

    def harmless(item: Item) -> Item:
        match item:
            case AssistantItem():
                blank = tuple(ToolCall("c", "x", "{}") for _ in item.calls)
                return AssistantItem("x" if item.text else "", calls=blank)
            case ToolResultItem():
                return ToolResultItem("c", "x", "x")
            case SystemItem():
                return SystemItem("x" if item.text else "")
            case UserItem():
                return UserItem("x")
            case NoteItem():
                return NoteItem("x")

    plain_tools = [ToolSpec("x", "x", {"type": "object"}) for _ in tools]
    assert reserved(items, tools) == reserved([harmless(item) for item in items], plain_tools)


def test_after_a_sampled_turn_the_end_of_turn_is_not_written_again(embedded_codec: TemplateCodec) -> None:
    rendered = embedded_codec.suffix(TALK[:3], TALK[3:5], TOOLS, ended=True)
    text = embedded_codec.detokenize([*rendered.items[0], *rendered.items[1], *rendered.opening])
    assert text == (
        "\n<|im_start|>user\n<tool_response>\n12\n</tool_response>\n<tool_response>\n\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("turn", [AssistantItem("I was say", incomplete=True), AssistantItem("", incomplete=True)])
def test_a_turn_that_was_cut_is_closed_as_the_template_does(embedded_codec: TemplateCodec, turn: AssistantItem) -> None:
    for ended in (True, False):
        rendered = embedded_codec.suffix([UserItem("a"), turn], [UserItem("b")], [], ended=ended)
        assert embedded_codec.detokenize(rendered.items[0]) == "<|im_end|>\n<|im_start|>user\nb"


def test_the_tool_block_stands_once_in_the_order_that_models_know(embedded_codec: TemplateCodec) -> None:
    rendered = embedded_codec.suffix([], TALK[:2], TOOLS, ended=False)
    text = embedded_codec.detokenize([*rendered.items[0], *rendered.items[1]])
    assert text.count("# Read a note\nnotes__get\n- key: string\n") == 1
    assert "notes__get" not in embedded_codec.detokenize(
        [t for part in embedded_codec.suffix(TALK[:2], TALK[2:], TOOLS, ended=True).items[1:] for t in part]
    )


def codec_of(tokenizer: Tokenizer, template: str, tool_format: str | None = None) -> TemplateCodec:
    return TemplateCodec("test", tokenizer, template, tool_format)


def show(codec: TemplateCodec, items: list[Item], tools: list[ToolSpec] | None = None) -> str:
    rendered = codec.suffix([], items, tools or [], ended=False)
    return codec.detokenize([token for part in (*rendered.items, rendered.opening) for token in part])


def test_a_refusal_has_the_template_s_own_words(embedded_tokenizer: Tokenizer) -> None:
    template = (
        "{% if messages | length > 1 %}{{ raise_exception('one message only') }}{% endif %}{{ messages[0].content }}"
    )
    codec = codec_of(embedded_tokenizer, template)
    with pytest.raises(TemplateFailed, match=r"^one message only$"):
        codec.suffix([], [UserItem("a"), AssistantItem("b")], [], ended=False)


@pytest.mark.parametrize("template", ["{{ messages[0]['nothing'] + 1 }}", "{{ messages[7].content.x }}", "{{ 1 / 0 }}"])
def test_an_error_in_a_template_is_a_refusal(embedded_tokenizer: Tokenizer, template: str) -> None:
    with pytest.raises(TemplateFailed):
        codec_of(embedded_tokenizer, template).suffix([], [UserItem("a")], [], ended=False)


def test_a_template_that_cannot_be_read_fails_the_load(embedded_tokenizer: Tokenizer) -> None:
    with pytest.raises(ModelLoadFailed, match="chat template"):
        codec_of(embedded_tokenizer, "{% for %}")


def test_a_template_cannot_reach_into_python(embedded_tokenizer: Tokenizer) -> None:
    codec = codec_of(embedded_tokenizer, "{{ messages.__class__.__mro__ }}{{ messages[0].content }}")
    with pytest.raises(TemplateFailed):
        codec.suffix([], [UserItem("a")], [], ended=False)


def test_a_message_that_a_template_leaves_out_is_refused(embedded_tokenizer: Tokenizer) -> None:
    template = (
        "{% for m in messages %}{% if m.role != 'tool' %}<{{ m.role }}>{{ m.content }}<end>{% endif %}{% endfor %}"
    )
    call, result = AssistantItem(calls=(ToolCall("i", "look", "{}"),)), ToolResultItem("i", "look", "4")
    with pytest.raises(TemplateFailed, match="does not render the tool result message at item 2"):
        codec_of(embedded_tokenizer, template, "plain").suffix([], [UserItem("a"), call, result], [], ended=False)


def test_a_template_that_cuts_content_is_refused(embedded_tokenizer: Tokenizer) -> None:
    with pytest.raises(TemplateFailed, match="cuts the text"):
        codec_of(embedded_tokenizer, "{{ messages[0].content[:2] }}").suffix([], [UserItem("abc")], [], ended=False)


def test_a_template_that_walks_arguments_gets_a_mapping(embedded_tokenizer: Tokenizer) -> None:
    template = (
        "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}"
        "{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}={{ v }},{% endfor %}"
        "{{ c.function.arguments | tojson }}){% endfor %}<|im_end|>{% endfor %}"
    )
    codec = codec_of(embedded_tokenizer, template)
    call = ToolCall("c", "f", '{"a":"<|im_end|>",  "b": 2}')
    items: list[Item] = [UserItem("x"), AssistantItem("", calls=(call,))]
    rendered = codec.suffix([], items, [], ended=False)
    end = next(iter(codec.info.stop_tokens))
    assert show(codec, items) == 'user:x<|im_end|>assistant:f(a=<|im_end|>,b=2,{"a":"<|im_end|>",  "b": 2})<|im_end|>'
    assert [t for part in (*rendered.items, rendered.opening) for t in part].count(end) == 2


def test_a_template_may_walk_the_fields_of_a_tool(embedded_tokenizer: Tokenizer) -> None:
    template = (
        "{% for t in tools %}{% set f = t.function %}{{ f.name }}: {{ f.description }}{% for n, p in "
        "f.parameters.properties.items() %} {{ n }}{{ '*' if n in f.parameters.required }} "
        "{% if p.type == 'string' %}text{% else %}{{ p.type | upper }}{% endif %} {{ p | tojson }}{% endfor %}"
        "{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    properties = {"<tool_call>": {"type": "string"}, "n": {"type": "integer", "description": "<|im_end|>"}}
    tool = ToolSpec("t", "does <|im_end|>", {"type": "object", "properties": properties, "required": ["n"]})
    codec = codec_of(embedded_tokenizer, template)
    expected = 't: does <|im_end|> <tool_call> text {"type": "string"} n* INTEGER '
    expected += '{"type": "integer", "description": "<|im_end|>"}x'
    assert show(codec, [UserItem("x")], [tool]) == expected
    tokens = codec.suffix([], [UserItem("x")], [tool], ended=False).items[0]
    assert not codec.info.control_tokens.intersection(tokens)


def test_generation_tags_and_loop_controls_are_understood(embedded_tokenizer: Tokenizer) -> None:
    template = (
        "{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}{{ strftime_now('%Y') | length }}"
    )
    assert show(codec_of(embedded_tokenizer, template), [UserItem("hi")]) == "hi4"


def test_an_item_s_offset_is_right_after_the_content_before_it(embedded_codec: TemplateCodec) -> None:
    rendered = embedded_codec.suffix([], TALK, TOOLS, ended=False)
    shown = [embedded_codec.detokenize(part) for part in rendered.items]
    assert [text.split("\n")[-1] for text in shown] == [
        "Be brief.", "hello", "</tool_call>", "12", "", "done", "thanks",
    ]  # fmt: skip
    assert shown[3] == "<|im_end|>\n<|im_start|>user\n<tool_response>\n12"
    names = "\n<tools>\nnotes__get\nodd\n</tools>"  # the embedded model's template says them again after every request
    assert embedded_codec.detokenize(rendered.opening) == f"{names}<|im_end|>\n<|im_start|>assistant\n"

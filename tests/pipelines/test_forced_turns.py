"""Forced turns of models whose vocabularies differ from the embedded one: reasoning, and markers that are only text."""

from typing import Any

import pytest

from tenuto.pipelines.base import ToolChoice
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.turns import CallFinished, ReasoningDelta, TurnEvent
from tenuto.sessions.items import ToolSpec
from tests.pipelines.formats.vocabularies import ByteTokenizer
from tests.pipelines.masks import lets, passed

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}"
    '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments }}}\n</tool_call>{% endfor %}'
    "<end>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
THINKING = TEMPLATE.replace("assistant:{% endif", "assistant:<think>\n{% endif")
TOOLS = [ToolSpec("f", "", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


ALL = ("<tool_call>", "</tool_call>", "<think>", "</think>")


def tokenizer_of(*markers: str) -> ByteTokenizer:
    """With two tokens that end a turn."""
    return ByteTokenizer(("<stop>", *markers), stops=("<stop>",))


def follow(codec: TemplateCodec, tokenizer: ByteTokenizer, text: str) -> list[TurnEvent]:
    """The events of a forced turn of this text, each token of which the grammar must allow."""
    source = codec.grammar(TOOLS, ToolChoice.REQUIRED, parallel=True)
    assert source is not None
    constraint, parser = codec.constraint(source), codec.parser(calls=True)
    events: list[TurnEvent] = []
    for place, token in enumerate(tokenizer.template_tokens(text)):
        assert lets(constraint.mask(), token), f"{tokenizer.piece(token)!r} at {place} is masked"
        constraint.accept(token)
        events += parser.push(token)
    return events + parser.finish()


@pytest.mark.parametrize("markers", [ALL, (), ("<tool_call>", "</tool_call>"), ("<tool_call>",)])
@pytest.mark.parametrize("stop", ["<end>", "<stop>"])
def test_calls_are_forced_whichever_markers_are_tokens(markers: tuple[str, ...], stop: str) -> None:
    tokenizer = tokenizer_of(*markers)
    events = follow(TemplateCodec("m", tokenizer, TEMPLATE), tokenizer, f"{CALL}\n{CALL}{stop}")
    assert [event for event in events if isinstance(event, CallFinished)] == [
        CallFinished(index, "f", '{"a": 1}') for index in range(2)
    ]


@pytest.mark.parametrize(("template", "turn"), [(TEMPLATE, "<think>\nhm\n</think>\n\n"), (THINKING, "hm</think>\n\n")])
def test_a_model_may_reason_before_a_forced_call(template: str, turn: str) -> None:
    tokenizer = tokenizer_of(*ALL)
    events = follow(TemplateCodec("m", tokenizer, template), tokenizer, f"{turn}{CALL}<end>")
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "hm"
    assert events[-1] == CallFinished(0, "f", '{"a": 1}')


def test_a_forced_turn_cannot_end_without_a_call() -> None:
    tokenizer = tokenizer_of(*ALL)
    codec = TemplateCodec("m", tokenizer, TEMPLATE)
    source = codec.grammar(TOOLS, ToolChoice.REQUIRED, parallel=True)
    assert source is not None
    mask = codec.constraint(source).mask()
    assert [token for token in range(tokenizer.vocabulary) if lets(mask, token)] == [258, 260]


@pytest.mark.parametrize(("strict", "more"), [(None, {}), (None, {"additionalProperties": {"type": "integer"}})])
def test_an_argument_that_the_schema_leaves_open_may_be_written(strict: bool | None, more: dict[str, Any]) -> None:
    assert masked_at(ToolSpec("f", "", {**TOOLS[0].parameters, **more}, strict), '1, "b": 2') is None


def test_an_argument_that_a_strict_schema_does_not_name_is_masked() -> None:
    assert masked_at(ToolSpec("f", "", TOOLS[0].parameters, strict=True), '1, "b": 2') == ord(",")


def masked_at(tool: ToolSpec, value: str) -> int | None:
    """The first token that may not be sampled of a call with that argument."""
    tokenizer = tokenizer_of(*ALL)
    codec = TemplateCodec("m", tokenizer, TEMPLATE)
    source = codec.grammar([tool], ToolChoice.REQUIRED, parallel=True)
    assert source is not None
    tokens = tokenizer.template_tokens(CALL.replace("1", value))
    taken = passed(codec.constraint(source), tokens)
    return tokens[len(taken)] if len(taken) < len(tokens) else None

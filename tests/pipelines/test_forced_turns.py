"""Forced turns of models whose vocabularies differ from the embedded one: reasoning, and markers that are only text."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import llguidance
import pytest
from llguidance import TokenizerWrapper

from tenuto.pipelines.base import Constraint, ToolChoice
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.turns import CallFinished, ReasoningDelta, TurnEvent
from tenuto.sessions.items import ToolSpec

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}"
    '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments }}}\n</tool_call>{% endfor %}'
    "<end>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
THINKING = TEMPLATE.replace("assistant:{% endif", "assistant:<think>\n{% endif")
TOOLS = [ToolSpec("f", "", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


class ByteTokenizer:
    """A token for each byte, two that end a turn, and some markers."""

    def __init__(self, *markers: str) -> None:
        self.tokens = [bytes([byte]) for byte in range(256)] + [b"<end>", b"<stop>"] + [m.encode() for m in markers]
        self.stop_tokens = frozenset({256, 257})
        self.control_tokens = self.stop_tokens
        self.user_defined: Mapping[str, int] = {marker: 258 + index for index, marker in enumerate(markers)}
        self.bos: int | None = None
        self.text_bos: int | None = None
        self.special_texts: Mapping[str, str] = {}
        self.eos_token_id, self.bos_token_id = 256, None
        self.special_token_ids = [*self.stop_tokens, *self.user_defined.values()]

    @property
    def vocabulary(self) -> int:
        return len(self.tokens)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)

    def template_tokens(self, text: str) -> list[int]:
        tokens: list[int] = []
        while text:
            found = next((t for t in range(256, len(self.tokens)) if text.startswith(self.piece(t).decode())), None)
            tokens += text[0].encode() if found is None else [found]
            text = text[1:] if found is None else text[len(self.piece(found).decode()) :]
        return tokens

    def plain_tokens(self, text: str) -> list[int]:
        return list(text.encode())

    def piece(self, token: int) -> bytes:
        return self.tokens[token]

    def grammar_tokenizer(self) -> Any:
        return self._grammar_tokenizer

    @cached_property
    def _grammar_tokenizer(self) -> Any:
        return llguidance.LLTokenizer(TokenizerWrapper(self))


ALL = ("<tool_call>", "</tool_call>", "<think>", "</think>")


def allows(constraint: Constraint, token: int) -> bool:
    mask = constraint.mask()
    return mask is None or bool(mask[token // 32] >> (token % 32) & 1)


def follow(codec: TemplateCodec, tokenizer: ByteTokenizer, text: str) -> list[TurnEvent]:
    """The events of a forced turn of this text, each token of which the grammar must allow."""
    source = codec.grammar(TOOLS, ToolChoice.REQUIRED, parallel=True)
    assert source is not None
    constraint, parser = codec.constraint(source), codec.parser(calls=True)
    events: list[TurnEvent] = []
    for place, token in enumerate(tokenizer.template_tokens(text)):
        assert allows(constraint, token), f"{tokenizer.piece(token)!r} at {place} is masked"
        constraint.accept(token)
        events += parser.push(token)
    return events + parser.finish()


@pytest.mark.parametrize("markers", [ALL, (), ("<tool_call>", "</tool_call>"), ("<tool_call>",)])
@pytest.mark.parametrize("stop", ["<end>", "<stop>"])
def test_calls_are_forced_whichever_markers_are_tokens(markers: tuple[str, ...], stop: str) -> None:
    tokenizer = ByteTokenizer(*markers)
    events = follow(TemplateCodec("m", tokenizer, TEMPLATE), tokenizer, f"{CALL}\n{CALL}{stop}")
    assert [event for event in events if isinstance(event, CallFinished)] == [
        CallFinished(index, "f", '{"a": 1}') for index in range(2)
    ]


@pytest.mark.parametrize(("template", "turn"), [(TEMPLATE, "<think>\nhm\n</think>\n\n"), (THINKING, "hm</think>\n\n")])
def test_a_model_may_reason_before_a_forced_call(template: str, turn: str) -> None:
    tokenizer = ByteTokenizer(*ALL)
    events = follow(TemplateCodec("m", tokenizer, template), tokenizer, f"{turn}{CALL}<end>")
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "hm"
    assert events[-1] == CallFinished(0, "f", '{"a": 1}')


def test_a_forced_turn_cannot_end_without_a_call() -> None:
    tokenizer = ByteTokenizer(*ALL)
    codec = TemplateCodec("m", tokenizer, TEMPLATE)
    source = codec.grammar(TOOLS, ToolChoice.REQUIRED, parallel=True)
    assert source is not None
    constraint = codec.constraint(source)
    assert [token for token in range(tokenizer.vocabulary) if allows(constraint, token)] == [258, 260]


@pytest.mark.parametrize(("strict", "more"), [(None, {}), (None, {"additionalProperties": {"type": "integer"}})])
def test_an_argument_that_the_schema_leaves_open_may_be_written(strict: bool | None, more: dict[str, Any]) -> None:
    assert masked_at(ToolSpec("f", "", {**TOOLS[0].parameters, **more}, strict), '1, "b": 2') is None


def test_an_argument_that_a_strict_schema_does_not_name_is_masked() -> None:
    assert masked_at(ToolSpec("f", "", TOOLS[0].parameters, strict=True), '1, "b": 2') == ord(",")


def masked_at(tool: ToolSpec, value: str) -> int | None:
    """The first token that may not be sampled of a call with that argument."""
    tokenizer = ByteTokenizer(*ALL)
    codec = TemplateCodec("m", tokenizer, TEMPLATE)
    source = codec.grammar([tool], ToolChoice.REQUIRED, parallel=True)
    assert source is not None
    constraint = codec.constraint(source)
    for token in tokenizer.template_tokens(CALL.replace("1", value)):
        if not allows(constraint, token):
            return token
        constraint.accept(token)
    return None

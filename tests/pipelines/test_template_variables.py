"""Variables of a chat template: their one form, what a template makes of them, and what a codec's ledgers do."""

import queue
import threading
import time
from typing import Any

import pytest

from tenuto.errors import TemplateFailed
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.scripted import SWITCHED_TEMPLATE, TEMPLATE, ScriptedTokenizer
from tenuto.pipelines.template_variables import TemplateVariables
from tenuto.pipelines.varied import VariedCodecs
from tenuto.sessions.items import AssistantItem, Item, ToolSpec, UserItem
from tests.patience import HANGS_S
from tests.pipelines.families import QWEN

TOOL = ToolSpec("look", "Looks.", {"type": "object"})
OFF = TemplateVariables.of({"enable_thinking": False})
HIGH = TemplateVariables.of({"reasoning_effort": "high"})
LOW = TemplateVariables.of({"reasoning_effort": "low"})
TALK: list[Item] = [UserItem("a"), AssistantItem("b"), UserItem("c")]


def codec(template: str = SWITCHED_TEMPLATE) -> TemplateCodec:
    return TemplateCodec("m", ScriptedTokenizer(), template)


def whole(one: TemplateCodec, items: list[Item]) -> str:
    rendered = one.suffix([], items, [TOOL], ended=False)
    return one.detokenize([token for span in (*rendered.items, rendered.opening) for token in span])


def test_variables_have_one_form_whatever_their_order() -> None:
    one, other = TemplateVariables.of({"a": 1, "b": [True]}), TemplateVariables.of({"b": [True], "a": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert one.values == {"a": 1, "b": [True]}
    assert not TemplateVariables.of({})
    assert one.only(["a"]) == TemplateVariables.of({"a": 1})


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, [[[[[]]]]], "x" * 5000])
def test_a_value_that_is_no_bounded_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"a value|the value|characters"):
        TemplateVariables.of({"a": value})


def test_a_template_names_the_variables_that_it_looks_at() -> None:
    assert {"enable_thinking", "reasoning_effort"} <= codec().info.variables
    assert not codec(TEMPLATE).info.variables & {"enable_thinking", "reasoning_effort", "messages", "tools"}


def test_variables_are_written_where_the_template_has_them() -> None:
    assert whole(codec().with_variables(OFF), TALK).endswith("<|assistant|><think></think>")
    assert "<|tools|>Reasoning: high<|end|>" in whole(codec().with_variables(HIGH), TALK)
    assert whole(codec().with_variables(TemplateVariables()), TALK) == whole(codec(TEMPLATE), TALK)


def test_those_that_the_template_does_not_look_at_make_no_other_codec() -> None:
    one = codec()
    assert one.with_variables(TemplateVariables.of({"fancy": 1})) is one
    assert one.with_variables(OFF) is one.with_variables(OFF).with_variables(OFF)
    assert one.with_variables(OFF).with_variables(TemplateVariables()).fingerprint([TOOL]) == one.fingerprint([TOOL])


def test_only_what_shows_in_the_past_names_another_ledger() -> None:
    one = codec()
    plain, off, high, low = (one.with_variables(each) for each in (TemplateVariables(), OFF, HIGH, LOW))
    assert plain.fingerprint([TOOL]) == off.fingerprint([TOOL])
    assert len({each.fingerprint([TOOL]) for each in (plain, high, low)}) == 3
    assert len({each.family for each in (plain, off, high, low)}) == 1
    assert len({each.fingerprint([TOOL])[:8] for each in (plain, high, low)}) == 1
    assert high.fingerprint([])[:8] != high.fingerprint([TOOL])[:8]


@pytest.mark.parametrize("variables", [OFF, HIGH, TemplateVariables.of({"reasoning_effort": "12345"})])
def test_what_is_new_is_rendered_as_in_the_whole(variables: TemplateVariables) -> None:
    one = codec().with_variables(variables)
    past: list[Item] = [item for turn in range(6) for item in (UserItem(f"{turn}?"), AssistantItem(f"{turn}"))]
    new = [UserItem("new")]
    rendered = one.suffix(past, new, [TOOL], ended=False)
    tail = one.detokenize([token for span in (*rendered.items, rendered.opening) for token in span])
    assert whole(one, [*past, *new]).endswith(tail)


def is_found_not_to_look_back(one: TemplateCodec) -> bool:
    """Nobody waits for it: until it is known the whole is rendered."""
    until = time.monotonic() + HANGS_S
    while one.looks_back is not None and time.monotonic() < until:
        time.sleep(0.01)
    return one.looks_back is None


def test_nobody_waits_for_a_trial_and_one_that_fails_leaves_room_for_the_next() -> None:
    varied: VariedCodecs[str] = VariedCodecs()
    may_go_on, tried = threading.Event(), queue.SimpleQueue[str]()

    def fails() -> None:
        assert may_go_on.wait(HANGS_S)
        raise ValueError("no template of ours")

    varied.find_out(fails)
    varied.find_out(lambda: tried.put("second"))
    assert varied.keep(OFF, "a codec", is_dear=True) == varied.get(OFF)
    assert tried.empty(), "one at a time"
    may_go_on.set()
    assert tried.get(timeout=HANGS_S) == "second"


def test_only_what_a_template_names_is_tried_and_only_so_often() -> None:
    one = codec()
    assert is_found_not_to_look_back(one.with_variables(OFF))
    assert one.with_variables(HIGH).looks_back is not None, "the template does not name this word"
    assert not one.has_at_hand(LOW)
    assert one.with_variables(LOW)
    assert one.has_at_hand(LOW)


def test_what_was_sampled_stays_where_its_turn_was_opened_with_other_variables() -> None:
    one = codec()
    off = one.with_variables(OFF)
    opening = off.suffix([], TALK[:1], [], ended=False).opening
    said = (*opening, *off.tokenize("b"), *one.info.stop_tokens)
    for each in (one, off):
        assert each.suffix([], TALK, [TOOL], ended=False, said={1: said}).items[1] == said


def test_a_text_in_a_variable_is_content() -> None:
    template = SWITCHED_TEMPLATE
    one = codec(template).with_variables(TemplateVariables.of({"reasoning_effort": "<|end|><think> x"}))
    rendered = one.suffix([], [UserItem("a")], [], ended=False)
    tokens = [token for span in (*rendered.items, rendered.opening) for token in span]
    plain = codec(template).suffix([], [UserItem("a")], [], ended=False)
    marks = [token for token in tokens if token in one.info.control_tokens]
    before = [token for span in (*plain.items, plain.opening) for token in span if token in one.info.control_tokens]
    assert len(marks) == len(before) + 2, "the turn of the template's own, and nothing else"
    assert "<|end|><think> x" in one.detokenize(tokens)


def test_a_template_may_refuse_a_value() -> None:
    refusing = "{%- if mode == 'bad' %}{{ raise_exception('no such mode') }}{% endif -%}" + TEMPLATE
    one = codec(refusing).with_variables(TemplateVariables.of({"mode": "bad"}))
    with pytest.raises(TemplateFailed, match="no such mode"):
        one.suffix([], TALK, [], ended=False)


def test_a_switch_in_the_manner_of_qwen_opens_an_answer_behind_its_reasoning() -> None:
    switched = QWEN.replace(
        "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}",
        "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}"
        "{%- if enable_thinking is defined and not enable_thinking -%}{{ '<think>\\n\\n</think>\\n\\n' }}{%- endif -%}",
    )
    one = codec(switched)
    off = one.with_variables(OFF)
    assert whole(off, TALK) == whole(one, TALK) + "<think>\n\n</think>\n\n"
    assert off.fingerprint([TOOL]) == one.fingerprint([TOOL])
    assert is_found_not_to_look_back(off)
    assert one.looks_back is None


@pytest.mark.parametrize("value", [{"<|end|><|user|>": "x"}, {"x": "<|end|>"}, ["<|end|>"], "<|end|>"])
def test_no_text_of_a_variable_becomes_a_control_token(value: Any) -> None:
    plain, varied = codec(), codec().with_variables(TemplateVariables.of({"reasoning_effort": value}))
    controls = plain.info.control_tokens
    written = varied.suffix([], [UserItem("a")], [], ended=False).items[0]
    usual = plain.with_variables(LOW).suffix([], [UserItem("a")], [], ended=False).items[0]
    assert [token for token in written if token in controls] == [token for token in usual if token in controls]
    assert str(value) in varied.detokenize(written)

"""New items are rendered after a short stand-in for the past exactly where that changes nothing."""

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from tenuto.errors import TemplateFailed
from tenuto.pipelines.chat_template import ChatTemplate
from tenuto.pipelines.known_templates import is_known_not_to_look_back
from tenuto.pipelines.placeholders import Placeholder
from tenuto.pipelines.scripted import SWITCHED_TEMPLATE, TEMPLATE
from tenuto.pipelines.stand_in import stand_in
from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolCall, ToolResultItem, ToolSpec, UserItem
from tests.pipelines.families import DEEPSEEK, SHORT_SIGHTED

SPECIALS = {"bos_token": "<s>", "eos_token": "</s>"}
TOOLS = (ToolSpec("look", "Looks.", {"type": "object"}), ToolSpec("ask", "", {"type": "object"}))

words = st.sampled_from(["", "a", "b", "user", "<tool_response>", "</think>", "look"])
calls = st.lists(st.sampled_from(["look", "ask"]), max_size=2)


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[Item]:
    """A request and what came of it; sometimes two requests, or none, and a system message where it does not belong."""
    items: list[Item] = [UserItem(draw(words)) for _ in range(draw(st.sampled_from([1, 1, 1, 1, 2, 0])))]
    if draw(st.integers(0, 20)) == 0:
        items.append(SystemItem(draw(words)))
    for round in range(draw(st.sampled_from([0, 0, 1, 2]))):
        names = draw(calls) or ["look"]
        made = tuple(ToolCall(f"id{number}{round}{i}", name, '{"a": 1}') for i, name in enumerate(names))
        items.append(AssistantItem(draw(words), draw(words), made))
        items += [ToolResultItem(call.id, call.name, draw(words)) for call in made]
    items.append(AssistantItem(draw(words), draw(words), incomplete=draw(st.integers(0, 9)) == 0))
    return items


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[Item], list[Item]]:
    """A past, and what is new after it."""
    items: list[Item] = [SystemItem(draw(words))] if draw(st.booleans()) else []
    for number in range(draw(st.integers(1, 8))):
        items += draw(turns(number))
    cut = draw(st.integers(1, len(items)))
    return items[:cut], items[cut:][: draw(st.integers(0, 4))]


def written(template: ChatTemplate, before: list[Item], new: list[Item], tools: tuple[ToolSpec, ...]) -> object:
    """What the template writes after the whole past, as text."""
    return as_text(template._suffix(before, new, tools))


def as_text(suffix: object) -> list[list[str]]:
    spans = suffix.spans  # type: ignore[attr-defined]  # a Suffix, which is not exported
    return [[part.content if isinstance(part, Placeholder) else part for part in span] for span in spans]


def accepts(template: ChatTemplate, before: list[Item], tools: tuple[ToolSpec, ...]) -> bool:
    """Whether a session can have come to this: its template took each turn when it was new."""
    try:
        for count in range(1, len(before) + 1):
            template._suffix(before[:count], [], tools)
    except TemplateFailed:
        return False
    return True


known = {name: ChatTemplate(text, SPECIALS) for name, text in {**SHORT_SIGHTED, "scripted": TEMPLATE}.items()}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(known)), conversations(), st.sampled_from([(), TOOLS, TOOLS[:1]]))
def test_after_a_stand_in_the_same_is_written_as_after_the_whole_past(
    name: str, conversation: tuple[list[Item], list[Item]], tools: tuple[ToolSpec, ...]
) -> None:
    template = known[name]
    assert template.looks_back is None
    before, new = conversation
    assume(accepts(template, before, tools))
    try:
        whole = written(template, before, new, tools)
    except TemplateFailed:
        with pytest.raises(TemplateFailed):
            template.suffix(before, new, tools)
    else:
        assert as_text(template.suffix(before, new, tools)) == whole


# Pieces of templates that look around in one way or another.
STATE = "{%- set ns = namespace(n=0, called=false, word='', role='') -%}"
LOOKS = [
    "{{ '[even]' if loop.index0 % 2 == 0 else '[odd]' }}",
    "{{ '[late]' if loop.index > NUMBER }}",
    "{{ '[first]' if loop.first }}",
    "{{ '[last]' if loop.last }}",
    "{{ '[after ' + messages[loop.index0 - 1].role + ']' if not loop.first }}",
    "{{ '[two after ' + messages[loop.index0 - 2].role + ']' if loop.index0 > 1 }}",
    "{{ '[begins with ' + messages[0].role + ']' }}",
    "{{ '[goes on with ' + messages[1].role + ']' if messages | length > 1 }}",
    "{{ '[of ' ~ (messages | length) ~ ']' }}",
    "{{ '[more than a few]' if messages | length > NUMBER }}",
    "{{ '[left ' ~ loop.revindex ~ ']' }}",
    "{% if message.role == 'user' %}{% set ns.n = ns.n + 1 %}{% endif %}{{ '[many]' if ns.n > NUMBER }}",
    "{% if message.tool_calls %}{% set ns.called = true %}{% endif %}{{ '[called]' if ns.called }}",
    "{% if message.tool_calls %}{% set ns.n = ns.n + 1 %}{% endif %}{{ '[often]' if ns.n > NUMBER }}",
    "{% if message.content == 'look' %}{% set ns.word = 'look' %}{% endif %}{{ '[' + ns.word + ']' }}",
    "{% if message.role == 'assistant' %}{% set ns.role = 'x' %}{% elif message.role == 'user' %}"
    "{% set ns.role = '' %}{% endif %}{{ '[' + ns.role + ']' }}",
    "{% if message.reasoning_content %}{% set ns.word = 'r' %}{% endif %}{{ '[' + ns.word + ']' }}",
    "{{ '[said]' if (messages[:loop.index0] | selectattr('content', 'equalto', message.content) | list) }}",
    "{{ '[requests ' ~ (messages | selectattr('role', 'equalto', 'user') | list | length) ~ ']' }}",
    "{{ '[system ' ~ (messages | selectattr('role', 'equalto', 'system') | list | length) ~ ']' }}",
    "{{ '[tools]' if tools }}",
]
BODY = (
    "<{{ message.role }}>{{ message.reasoning_content or '' }}{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<call>{{ call.function.name }}{{ call.function.arguments }}"
    "{% endfor %}<end>"
)


@st.composite
def templates(draw: st.DrawFn) -> str:
    looks = draw(st.lists(st.sampled_from(LOOKS), min_size=1, max_size=3))
    where = draw(st.sampled_from(["", "user", "tool", "assistant"]))
    inside = "".join(looks).replace("NUMBER", str(draw(st.integers(2, 30))))
    if where:
        inside = f"{{% if message.role == '{where}' %}}{inside}{{% endif %}}"
    end = draw(st.sampled_from(["", "{{ '[' ~ ns.n ~ ns.word ~ ns.role ~ ']' }}"]))
    return f"{STATE}{{% for message in messages %}}{inside}{BODY}{{% endfor %}}{end}{{{{ '<assistant>' }}}}"


@pytest.mark.slow
@settings(max_examples=8, deadline=None, phases=(Phase.explicit, Phase.generate))  # what is drawn here hardly shrinks
@given(templates(), st.lists(conversations(), min_size=8, max_size=8), st.sampled_from([(), TOOLS]))
def test_a_template_that_is_said_not_to_look_back_does_not(
    text: str, talks: list[tuple[list[Item], list[Item]]], tools: tuple[ToolSpec, ...]
) -> None:
    template = ChatTemplate(text, SPECIALS)
    if template.looks_back is None:
        for before, new in talks:
            assert as_text(template.suffix(before, new, tools)) == written(template, before, new, tools)


@pytest.mark.parametrize("looks", [*LOOKS, DEEPSEEK])
def test_whether_a_template_looks_back_is_told(looks: str) -> None:
    text = looks if looks is DEEPSEEK else f"{STATE}{{% for message in messages %}}{looks}{BODY}{{% endfor %}}"
    template = ChatTemplate(text.replace("NUMBER", "20"), SPECIALS)
    short_sighted = (
        "loop.last",
        "after ' + messages[loop.index0 - 1]",
        "revindex",
        "ns.role",
        "'[tools]'",
    )
    if any(look in looks for look in (*short_sighted, "loop.first")):
        assert template.looks_back is None
    else:
        assert template.looks_back is not None


def test_a_template_that_counts_further_than_can_be_tried_looks_back() -> None:
    text = "{% for message in messages %}{{ '[late]' if loop.index > 500 }}{{ message.content }}<end>{% endfor %}"
    assert ChatTemplate(text, {}).looks_back == "its chat template names the number 500, more than can be tried"


def test_a_template_that_takes_one_message_only_is_rendered_whole() -> None:
    text = "{% if messages | length > 1 %}{{ raise_exception('one only') }}{% endif %}{{ messages[0].content }}"
    assert ChatTemplate(text, {}).looks_back == "its chat template takes no conversation of several turns"


def test_a_refusal_names_the_item_of_the_whole_conversation() -> None:
    text = "{% for m in messages %}{% if m.role != 'tool' %}<{{ m.role }}>{{ m.content }}<end>{% endif %}{% endfor %}"
    template = ChatTemplate(text, {})
    assert template.looks_back is None
    call, result = AssistantItem(calls=(ToolCall("i", "look", "{}"),)), ToolResultItem("i", "look", "4")
    with pytest.raises(TemplateFailed, match="does not render the tool result message at item 22"):
        template.suffix([UserItem("a"), AssistantItem("b")] * 10, [UserItem("c"), call, result], ())


def test_a_stand_in_has_the_last_request_and_the_last_round() -> None:
    call = ToolCall("i", "look", "{}")
    past: list[Item] = [SystemItem("s"), UserItem("1"), AssistantItem("2"), UserItem("3"), AssistantItem(calls=(call,))]
    past += [ToolResultItem("i", "look", "4"), AssistantItem("5", calls=(call,)), ToolResultItem("i", "look", "6")]
    assert stand_in(past) == [past[0], past[3], *past[6:]]
    assert stand_in([*past, UserItem("7")]) == [past[0], past[3], *past[6:], UserItem("7")]
    assert stand_in(past[:3]) == past[:3]


def test_a_stand_in_has_an_answer_after_which_the_model_went_on_unasked() -> None:
    call = AssistantItem(calls=(ToolCall("i", "look", "{}"),))
    result = ToolResultItem("i", "look", "4")
    past: list[Item] = [UserItem("1"), AssistantItem("2"), UserItem("3"), AssistantItem("4"), call, result]
    assert stand_in(past) == past[2:]
    assert stand_in([*past, call, result]) == [*past[2:4], call, result]


def test_a_stand_in_of_a_past_without_a_request_has_what_is_written_as_one() -> None:
    round: list[Item] = [AssistantItem(calls=(ToolCall("i", "look", "{}"),)), ToolResultItem("i", "look", "4")]
    note: list[Item] = [SystemItem("s")]
    assert stand_in([*round, *round, *note, *round, *round]) == [*round, *note, *round]
    assert stand_in([*note, *round, *round]) == [*note, *round]


def test_the_templates_that_come_with_us_are_known_and_rightly_so(embedded_template: str) -> None:
    for text in (embedded_template, TEMPLATE, SWITCHED_TEMPLATE):
        assert is_known_not_to_look_back(text), "its digest is not that in known_templates.py"
        assert ChatTemplate(text, SPECIALS).found_to_look_back() is None
    assert not is_known_not_to_look_back(DEEPSEEK)

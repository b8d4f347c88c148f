"""A chat template that loops, or makes endless text, is refused soon, whatever it does it with."""

import time

import pytest

from tenuto.errors import ModelLoadFailed, TemplateFailed
from tenuto.pipelines.chat_template import ChatTemplate
from tenuto.sessions.items import AssistantItem, Item, UserItem

TALK = "{% for m in messages %}{{ m.content }}{% endfor %}"
MANY = "{% for a in range(9999) %}{% for b in range(9999) %}"
ENDS = "{% endfor %}{% endfor %}"
SIXTY = "{% for i in range(60) %}"
DOUBLED = "{% set n = namespace(x=['ab']) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
HOSTILE = {
    "nested loops": MANY + "{{ a }}" + ENDS,
    "nested loops without a body": MANY + ENDS,
    "a loop with a condition that never holds": "{% for a in range(9999) %}{% for b in range(9999) if b < 0 %}" + ENDS,
    "a wide text": "{{ 'x'.center(10**9) }}",
    "a wide text by a filter": "{{ 'x' | center(10**9) }}",
    "a wide text of a variable": "{{ messages[0].role.ljust(10**9) }}",
    "a repeated text": "{{ 'x' * 500000000 }}",
    "a repeated list": "{{ ([1] * 10**9) | length }}",
    "a text that doubles": "{% set n = namespace(t='ab') %}" + SIXTY + "{% set n.t = n.t + n.t %}{% endfor %}",
    "a text that is joined": "{% set n = namespace(t='ab') %}" + SIXTY + "{% set n.t = n.t ~ n.t %}{% endfor %}",
    "a set block that doubles": "{% set n = namespace(t='ab') %}{% for i in range(60) %}{% set t %}{{ n.t }}{{ n.t }}"
    "{% endset %}{% set n.t = t %}{% endfor %}",
    "a list of itself that is printed": DOUBLED + "{{ n.x }}",
    "a list of itself as JSON": DOUBLED + "{{ n.x | tojson }}",
    "a list of itself that is compared": DOUBLED + "{% set a = n.x %}" + DOUBLED + "{{ a == n.x }}",
    "a list of itself that is formatted": DOUBLED + "{{ '%s' % (n.x,) }}",
    "a list of itself in a message": DOUBLED + "{{ raise_exception(n.x) }}",
    "a macro's arguments": "{% macro f(k) %}{% if k %}{{ f(k - 1, varargs, varargs) }}{% else %}{{ varargs }}"
    "{% endif %}{% endmacro %}{{ f(40, 'x') }}",
    "a macro that calls itself twice": "{% macro f(k) %}{% if k %}{{ f(k - 1) }}{{ f(k - 1) }}{% endif %}{% endmacro %}"
    "{{ f(60) }}",
    "a power": "{{ 10 ** 10000000000 }}",
    "a number that is squared": "{% set n = namespace(k=3) %}" + SIXTY + "{% set n.k = n.k * n.k %}{% endfor %}",
    "a precise number": "{{ 1.5 | round(10**9, 'ceil') }}",
    "a format": "{{ '%1000000000d' % 1 }}",
    "a format by a method": "{{ '{:1000000000}'.format(1) }}",
    "a format by a width": "{{ '{:{}}'.format(1, 10**9) }}",
    "a format by a filter": "{{ '%*d' | format(10**9, 1) }}",
    "bytes of a number": "{{ (1).to_bytes(10**9, 'big') }}",
    "a replacement": "{% set x = 'x' * 30000 %}{{ x.replace('', x) }}",
    "an indentation": "{% set x = '\\n' * 9999 %}{{ x | indent(10**7, true) }}",
    "a batch": "{{ [1] | batch(10**9, 0) | list }}",
    "a search": "{% set t = 'x' * 10000000 %}{% for i in range(99999) %}{% if 'xy' in t %}{% endif %}{% endfor %}",
    "a cut": "{% set l = range(99999) | list %}{% for i in range(99999) %}{% set k = l[1:] %}{% endfor %}",
    "a list that grows while it is gone through": "{% set l = [1] %}{% for i in l %}{% set _ = l.append(i) %}"
    "{% endfor %}",
    "a list that holds itself": "{% set l = [] %}{% set _ = l.append([l]) %}{{ l }}",
    "a list that grows after it was weighed": "{% set a = [] %}{% set b = [a] * 9999 %}{% if b | join %}{% endif %}"
    "{% set _ = a.append('x' * 30000) %}{{ b | tojson }}",
    "a recursive loop": "{% for a in [1, 2] recursive %}{{ loop([1, 2]) if loop.depth0 < 60 }}{% endfor %}",
}
BOUND_S = 15.0
"""Processor time; on a quiet machine it is a second."""


@pytest.mark.slow
@pytest.mark.parametrize("what", HOSTILE)
def test_a_template_that_would_take_for_ever_is_refused(what: str) -> None:
    began = time.thread_time()
    with pytest.raises(ModelLoadFailed, match="chat template"):
        ChatTemplate(HOSTILE[what] + TALK, {})
    assert time.thread_time() - began < BOUND_S


@pytest.mark.slow
def test_a_template_that_loops_for_some_messages_only_is_refused_for_those() -> None:
    template = ChatTemplate("{% if messages[0].content == 'loop' %}" + MANY + ENDS + "{% endif %}" + TALK, {})
    assert template.suffix([], [UserItem("hello")], []).items
    with pytest.raises(TemplateFailed, match=r"takes more than [0-9]+ steps to render this conversation"):
        template.suffix([], [UserItem("loop")], [])
    assert template.suffix([], [UserItem("hello")], []).items


@pytest.mark.slow
def test_a_long_conversation_has_room_in_proportion(embedded_template: str) -> None:
    items: list[Item] = [UserItem("hello"), AssistantItem("hi")] * 5000
    rendered = ChatTemplate(embedded_template, {}).suffix([], items, [])
    assert len(rendered.items) == len(items)


def test_a_template_may_change_the_lists_that_it_has_made() -> None:
    kept = "{% set n = namespace(k=[]) %}{% for m in messages %}{% set _ = n.k.append(loop.index) %}{% endfor %}"
    told = "{% if n.k.pop(0) != 1 or n.k | length != messages | length - 1 %}{{ raise_exception('else') }}{% endif %}"
    assert ChatTemplate(kept + told + TALK, {}).suffix([], [UserItem("one"), UserItem("two")], []).items


@pytest.mark.parametrize(
    "change", ["messages.append(messages[0])", "messages.pop()", "messages[0].clear()", "[1].sort()"]
)
def test_a_template_changes_nothing_else(change: str) -> None:
    with pytest.raises((ModelLoadFailed, TemplateFailed), match="unsafe"):
        ChatTemplate("{% set _ = " + change + " %}" + TALK, {}).suffix([], [UserItem("hello")], [])


@pytest.mark.parametrize(
    "text",
    ["{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "{% for a in 'ab' %}" * 30 + "{% endfor %}" * 30, "x" * 2_000_000],
)
def test_a_template_that_cannot_be_compiled_is_an_error(text: str) -> None:
    with pytest.raises(ModelLoadFailed, match="chat template cannot be read"):
        ChatTemplate(text + TALK, {})

"""Which format a model is taken to speak, and how that is said."""

import pytest

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.codec import TemplateCodec
from tests.pipelines.formats.vocabularies import ByteTokenizer

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}"
    '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments }}}\n</tool_call>{% endfor %}'
    "<end>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)


def test_the_format_and_its_reason_are_told() -> None:
    told = TemplateCodec("m", ByteTokenizer([]), TEMPLATE).info.tool_format
    assert told.startswith("hermes: the model's chat template writes a call as '")
    assert TemplateCodec("m", ByteTokenizer([]), TEMPLATE, "llama3").info.tool_format == "llama3: as it was set"


PLAIN = "{% for m in messages %}{{ m.role }}:{{ m.content }}<end>{% endfor %}"
UNKNOWN, SILENT = (
    "plain: no format writes a call as the template does: '",
    "plain: the model's chat template knows tools",
)
TOLD = "generic: the model's chat template knows no tools, so it is told how to call them"


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (PLAIN, TOLD),
        (PLAIN.replace("<end>", "<end>{# tools come later #}"), TOLD),
        ("{{ raise_exception('no system') if messages[0].role == 'system' }}" + PLAIN, TOLD),
        ("{{ raise_exception('no system') if messages[0].role == 'tool' }}" + PLAIN, TOLD),
        ("{{ tools | tojson if tools }}" + PLAIN, UNKNOWN),
        (PLAIN.replace("<end>", "{{ m.tool_calls or '' }}<end>"), UNKNOWN),
        ("{{ tools_of_mine + ' are tools' }}" + PLAIN, SILENT),
        (PLAIN.replace("<end>", "{{ raise_exception('call no tools') if m.tool_calls }}<end>"), SILENT),
    ],
    ids=["none", "comment", "no system", "refuses a role", "list", "calls", "refuses all", "refuses calls"],
)  # fmt: skip
def test_a_template_that_knows_no_tools_is_told_from_one_that_refuses_or_writes_them(template: str, told: str) -> None:
    assert TemplateCodec("m", ByteTokenizer([]), template).info.tool_format.startswith(told)
    set_plain = TemplateCodec("m", ByteTokenizer([]), template, "plain").info.tool_format
    assert set_plain == "plain: as it was set"


def test_a_format_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ModelLoadFailed, match=r"no tool-call format 'lama3'; there are .*hermes, .*llama3, "):
        TemplateCodec("m", ByteTokenizer([]), TEMPLATE, "lama3")

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
    plain = TemplateCodec("m", ByteTokenizer([]), "{% for m in messages %}{{ m.content }}{% endfor %}").info.tool_format
    assert plain == "plain: the model's chat template writes no calls"


def test_a_format_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ModelLoadFailed, match=r"no tool-call format 'lama3'; there are .*hermes, .*llama3, "):
        TemplateCodec("m", ByteTokenizer([]), TEMPLATE, "lama3")

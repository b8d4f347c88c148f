"""What is particular to calls whose arguments stand in tags."""

import json

import pytest

from tenuto.pipelines.base import ToolChoice
from tenuto.pipelines.constraints import Grammars
from tenuto.pipelines.formats import FORMATS
from tenuto.pipelines.turns import CallFinished
from tenuto.sessions.items import JsonObject, ToolSpec
from tests.pipelines.formats.vocabularies import ByteTokenizer, markers_of, read, surroundings
from tests.pipelines.masks import passed


def arguments(name: str, text: str, tool: ToolSpec, cuts: range = range(0)) -> JsonObject:
    (call,) = (
        event for event in read(name, text, ids=True, cuts=cuts, tools=[tool]) if isinstance(event, CallFinished)
    )
    found: JsonObject = json.loads(call.arguments)
    return found


def let_through(name: str, text: str, schema: JsonObject) -> str:
    """How much of a forced call of `f` the grammar lets through."""
    tokenizer = ByteTokenizer(markers_of(name))
    form = FORMATS[name](surroundings(tokenizer.facts, template=""))
    made = Grammars(tokenizer.grammar_tokenizer, tokenizer.facts, tokenizer.vocabulary, form)
    source = made.source([ToolSpec("f", "", schema)], ToolChoice.REQUIRED, parallel=False)
    assert source is not None
    tokens = passed(made.constraint(source), tokenizer.template_tokens(text))
    return b"".join(map(tokenizer.piece, tokens)).decode("utf-8", "ignore")


def object_of(**properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@pytest.mark.parametrize("cuts", [range(0), range(300)], ids=["whole", "streamed"])
class TestReading:
    def test_a_value_in_a_cdata_section_may_hold_what_closes_values(self, cuts: range) -> None:
        text = '<function name="f"><param name="a"><![CDATA[<b>x</param> ]] > y]]></param></function>'
        tool = ToolSpec("f", "", object_of(a={"type": "string"}))
        assert arguments("minicpm", text, tool, cuts) == {"a": "<b>x</param> ]] > y"}

    def test_a_text_that_begins_like_a_cdata_section_is_text(self, cuts: range) -> None:
        text = '<function name="f"><param name="a"><![C</param></function>'
        assert arguments("minicpm", text, ToolSpec("f", "", object_of(a={"type": "string"})), cuts) == {"a": "<![C"}

    def test_lists_and_objects_may_be_written_as_python_does(self, cuts: range) -> None:
        text = "<seed:tool_call>\n<function=f>\n<parameter=a>['x', None]</parameter>\n</function>\n</seed:tool_call>"
        tool = ToolSpec("f", "", object_of(a={"type": "array"}))
        assert arguments("seed-oss", text, tool, cuts) == {"a": ["x", None]}

    def test_the_white_space_between_tags_may_be_any(self, cuts: range) -> None:
        text = "<tool_call>f<arg_key>a</arg_key><arg_value>b</arg_value></tool_call>"
        spaced = text.replace("><", ">\n <").replace("f<", "f\n\n<")
        tool = ToolSpec("f", "", object_of(a={"type": "string"}))
        assert arguments("glm", text, tool, cuts) == arguments("glm", spaced, tool, cuts) == {"a": "b"}


def test_a_key_of_any_characters_that_its_tags_do_not_need_is_held() -> None:
    text = "<tool_call>f\n<arg_key>zip code ☃</arg_key>\n<arg_value>1</arg_value>\n</tool_call><end>"
    assert let_through("glm", text, object_of(**{"zip code ☃": {"type": "integer"}})) == text


def test_the_digits_of_a_pattern_are_those_of_ascii() -> None:
    text = "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>{}</arg_value>\n</tool_call><end>"
    schema = object_of(a={"type": "string", "pattern": r"^\d$"})
    assert let_through("glm", text.format("5"), schema) == text.format("5")
    assert let_through("glm", text.format("٥"), schema).endswith("<arg_value>")

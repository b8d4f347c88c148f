"""Schemas of tools whose arguments stand in tags, where JSON can be held to them and tags cannot, or not at all."""

from typing import Any

import pytest

from tenuto.pipelines.base import ToolChoice
from tenuto.pipelines.constraints import Grammars
from tenuto.pipelines.formats import FORMATS
from tenuto.sessions.items import ToolSpec
from tests.pipelines.formats.vocabularies import TOOLS, ByteTokenizer, markers_of, surroundings

WHATEVER = {"$defs": {"whatever": True}}


def grammars(name: str) -> Grammars:
    tokenizer = ByteTokenizer(markers_of(name))
    form = FORMATS[name](surroundings(tokenizer.facts))
    return Grammars(tokenizer.grammar_tokenizer, tokenizer.facts, tokenizer.vocabulary, form)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/whatever"}}, **WHATEVER},
        {"$ref": "#/$defs/whatever", **WHATEVER},
    ],
    ids=["an argument", "all of them"],
)
def test_a_schema_may_refer_to_one_that_allows_anything(schema: dict[str, Any]) -> None:
    source = grammars("qwen3-coder").source([ToolSpec("h", "", schema)], ToolChoice.REQUIRED, parallel=True)
    assert source is not None
    assert source.lark


@pytest.mark.parametrize("choice", [ToolChoice.AUTO, ToolChoice.REQUIRED])
def test_a_schema_that_tags_cannot_be_held_to_leaves_the_other_tools_held(choice: ToolChoice) -> None:
    one: dict[str, Any] = {"a": {"$ref": "#/properties/b"}, "b": {"type": "integer"}}
    odd = ToolSpec("odd", "", {"type": "object", "properties": one})
    source = grammars("qwen3-coder").source([odd, *TOOLS], choice, parallel=True)
    assert source is not None
    (fault,) = source.unenforced
    assert fault.startswith("the schema of odd is not enforced")
    assert '"type": "integer"' in source.lark

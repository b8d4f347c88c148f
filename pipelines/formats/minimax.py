"""The formats of MiniMax: M1, with JSON objects in a section, M2, with the arguments in <parameter> tags, and M3, with
arguments in tags of their names."""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.json_body import JsonBody
from tenuto.pipelines.formats.nested_body import NestedBody
from tenuto.pipelines.formats.tagged_body import TaggedBody
from tenuto.pipelines.formats.tagged_call import Tags

_TAGS = Tags(name_close='">\n', key_open='<parameter name="', key_close='">', value_close="</parameter>\n")
_M2 = Block(
    TaggedBody(_TAGS), "<minimax:tool_call>\n", '<invoke name="', "</invoke>\n", "", "</minimax:tool_call>"
)  # fmt: skip
_M1 = Block(JsonBody(ends=True), opener="<tool_calls>\n", separator="\n", closer="\n</tool_calls>")
_MARK = "]<]minimax[>["
_M3 = Block(
    NestedBody(_MARK, '">'), f"{_MARK}<tool_call>\n", f'{_MARK}<invoke name="', f"{_MARK}</invoke>\n", "",
    f"{_MARK}</tool_call>",
)  # fmt: skip


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    if f'{_MARK}<invoke name="f">{_MARK}<a>b{_MARK}</a>{_MARK}</invoke>' in surroundings.call:
        return m3(surroundings)
    if '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">b</parameter>' in surroundings.call:
        return m2(surroundings)
    return m1(surroundings) if '<tool_calls>\n{"name": "f", "arguments": {"a": "b"}}' in surroundings.call else None


def m2(surroundings: Surroundings) -> CallFormat:
    """That of M2."""
    return CallFormat("minimax-m2", surroundings.vocabulary, (_M2,), reasoning_of(surroundings))


def m1(surroundings: Surroundings) -> CallFormat:
    """That of M1."""
    return CallFormat("minimax-m1", surroundings.vocabulary, (_M1,), reasoning_of(surroundings))


def m3(surroundings: Surroundings) -> CallFormat:
    """That of M3."""
    reasoning = reasoning_of(surroundings, "<mm:think>", "</mm:think>")
    return CallFormat("minimax-m3", surroundings.vocabulary, (_M3,), reasoning)

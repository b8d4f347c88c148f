"""The format of GLM 4.5 and later, with the arguments in <arg_key> and <arg_value> tags.

Ling 3, Spark 2.5 and Laguna write the same, Hunyuan 3 the same in tags of its own; the white space is the template's.
"""

import re

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.tagged_body import TaggedBody
from tenuto.pipelines.formats.tagged_call import Tags

_CALL = re.compile(r"<tool_call>f(\s*)<arg_key>a</arg_key>(\s*)<arg_value>b</arg_value>(\s*)</tool_call>")
_SECTION = re.compile(
    r"<tool_calls(:\w+)>\n<tool_call\1>f<tool_sep\1>\n<arg_key\1>a</arg_key\1>\n"
    r"<arg_value\1>b</arg_value\1>\n</tool_call\1>\n</tool_calls\1>"
)


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    if found := _CALL.search(surroundings.call):
        return _of(surroundings, *found.groups())
    return hunyuan(surroundings) if _SECTION.search(surroundings.call) else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it, with the white space of GLM 4.5."""
    return _of(surroundings, "\n", "\n", "\n")


def _of(surroundings: Surroundings, after_name: str, after_key: str, after_value: str) -> CallFormat:
    tags = Tags(after_name, "<arg_key>", f"</arg_key>{after_key}<arg_value>", f"</arg_value>{after_value}")
    between = after_name[:1]
    block = Block(TaggedBody(tags), call_open="<tool_call>", call_close="</tool_call>", between=between)
    return CallFormat("glm", surroundings.vocabulary, (block,), reasoning_of(surroundings))


def hunyuan(surroundings: Surroundings) -> CallFormat:
    """That of Hunyuan 3, whose tags all end with the name of an edition."""
    found = re.search(r"<tool_calls(:\w+)>", surroundings.call)
    own = found[1] if found else ":opensource"
    tags = Tags(
        f"<tool_sep{own}>\n", f"<arg_key{own}>", f"</arg_key{own}>\n<arg_value{own}>", f"</arg_value{own}>\n"
    )  # fmt: skip
    section = Block(
        TaggedBody(tags), f"<tool_calls{own}>\n", f"<tool_call{own}>", f"</tool_call{own}>\n", "", f"</tool_calls{own}>"
    )  # fmt: skip
    reasoning = reasoning_of(surroundings, f"<think{own}>", f"</think{own}>")
    return CallFormat("hunyuan", surroundings.vocabulary, (section,), reasoning)

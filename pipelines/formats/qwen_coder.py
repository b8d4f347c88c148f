"""The format of Qwen3-Coder, Qwen 3.5 and Nemotron 3: arguments in <parameter=...> tags, in a <function=...>."""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.tagged_body import TaggedBody
from tenuto.pipelines.formats.tagged_call import Tags

_TAGS = Tags(name_close=">\n", key_open="<parameter=", key_close=">\n", value_close="\n</parameter>\n")
_CALL = Block(
    TaggedBody(_TAGS), opener="<tool_call>\n", call_open="<function=", call_close="</function>",
    separator="\n", closer="\n</tool_call>",
)  # fmt: skip
_BARE = Block(TaggedBody(_TAGS), call_open="<function=", call_close="</function>")
"""As the models write it at times."""


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    call = surroundings.call
    return of(surroundings) if "<tool_call>\n<function=f>\n<parameter=a>\nb\n</parameter>" in call else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    return CallFormat("qwen3-coder", surroundings.vocabulary, (_CALL, _BARE), reasoning_of(surroundings))

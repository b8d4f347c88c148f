"""The format of MiniCPM 5: <function> with the arguments in <param> tags."""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.tagged_body import TaggedBody
from tenuto.pipelines.formats.tagged_call import Tags

_TAGS = Tags(
    name_close='">', key_open='<param name="', key_close='">', value_close="</param>", quotes=("<![CDATA[", "]]>")
)
_CALL = Block(TaggedBody(_TAGS), call_open='<function name="', call_close="</function>")


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    return of(surroundings) if '<function name="f"><param name="a">b</param></function>' in surroundings.call else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    return CallFormat("minicpm", surroundings.vocabulary, (_CALL,), reasoning_of(surroundings))

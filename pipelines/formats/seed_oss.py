"""The format of Seed-OSS: arguments in <parameter=...> tags, in a <function=...>; reasoning in tags of its own."""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.tagged_body import TaggedBody
from tenuto.pipelines.formats.tagged_call import Tags

_TAGS = Tags(name_close=">\n", key_open="<parameter=", key_close=">", value_close="</parameter>\n")
_CALL = Block(
    TaggedBody(_TAGS), opener="<seed:tool_call>\n", call_open="<function=", call_close="</function>\n",
    closer="</seed:tool_call>",
)  # fmt: skip


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    return of(surroundings) if "<seed:tool_call>\n<function=f>\n<parameter=a>b" in surroundings.call else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    reasoning = reasoning_of(surroundings, "<seed:think>", "</seed:think>")
    return CallFormat("seed-oss", surroundings.vocabulary, (_CALL,), reasoning)

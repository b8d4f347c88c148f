"""The format of Muse Glimmer: messages to recipients, of which those to itself are reasoning, those to tools calls."""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.tagged_body import TaggedBody
from tenuto.pipelines.formats.tagged_call import Tags

_MESSAGE, _NEXT = "<|message|>", "<|eom|><|start|>assistant"
_TAGS = Tags(
    name_extra=(f'{_MESSAGE}<atem:function_calls>\n<atem:invoke name="', ""), name_close='">\n',
    key_open='<atem:parameter name="', key_close='">', value_close="</atem:parameter>\n",
)  # fmt: skip
_CALL = Block(
    TaggedBody(_TAGS), call_open="to=", call_close="</atem:invoke>\n</atem:function_calls>", between=f"{_NEXT} ",
    behind=_MESSAGE, others=("self", "user"),
)  # fmt: skip


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    return (
        of(surroundings)
        if f'to=f{_MESSAGE}<atem:function_calls>\n<atem:invoke name="f">' in surroundings.call
        else None
    )


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it: the template opens a turn before the recipient."""
    reasoning = reasoning_of(surroundings, f" to=self{_MESSAGE}", _NEXT, mark="to=self")
    said = f" to=user{_MESSAGE}"
    return CallFormat(
        "muse-glimmer", surroundings.vocabulary, (_CALL,), reasoning, (_NEXT, said.lstrip()), (" ", ""), (said, "")
    )

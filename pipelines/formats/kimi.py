"""The formats of Kimi: K2, with `functions.NAME:NUMBER` and JSON in a section, and K3, with all of it between tags."""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.named_body import NamedBody
from tenuto.pipelines.formats.tagged_body import TaggedBody
from tenuto.pipelines.formats.tagged_call import Tags

_ARGUMENTS = "<|tool_call_argument_begin|>"
_SECTION = Block(
    NamedBody(before="functions.", between=_ARGUMENTS, id=(":", "[0-9]+")),
    "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_end|>", "", "<|tool_calls_section_end|>",
)  # fmt: skip


def _open(name: str) -> str:
    return f"<|open|>{name}<|sep|>"


def _close(name: str) -> str:
    return f"<|close|>{name}<|sep|>"


_TAGS = Tags(
    name_close='"<|sep|>', name_extra=('" index="', "[0-9]{1,3}"), key_open='<|open|>argument key="',
    key_type='" type="', key_close='"<|sep|>', value_close=_close("argument"),
)  # fmt: skip
_TOOLS = Block(
    TaggedBody(_TAGS), opener=_open("tools"), call_open='<|open|>call tool="', call_close=_close("call"),
    closer=_close("tools"),
)  # fmt: skip
_SAID = (_open("response"), _close("response"))


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it; some of its templates cannot be rendered with a call."""
    if '<|open|>call tool="f" index="1"<|sep|>' in surroundings.call:
        return k3(surroundings)
    return of(surroundings) if _ARGUMENTS in surroundings.template else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    return CallFormat("kimi-k2", surroundings.vocabulary, (_SECTION,), reasoning_of(surroundings))


def k3(surroundings: Surroundings) -> CallFormat:
    """That of K3: a turn is its reasoning, its response and its calls, each between tags."""
    reasoning = reasoning_of(surroundings, _open("think"), _close("think"), mark="<|open|>")
    unsaid = (*_SAID, _close("message"))
    around = ("".join(_SAID), _close("message"))
    return CallFormat("kimi-k3", surroundings.vocabulary, (_TOOLS,), reasoning, unsaid, around, _SAID)

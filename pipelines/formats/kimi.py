"""The format of Kimi K2: `functions.NAME:NUMBER` and the arguments as JSON, in a section of calls."""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.named_body import NamedBody

_ARGUMENTS = "<|tool_call_argument_begin|>"
_SECTION = Block(
    NamedBody(before="functions.", between=_ARGUMENTS, id=(":", "[0-9]+")),
    "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_end|>", "", "<|tool_calls_section_end|>",
)  # fmt: skip


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it; some of its templates cannot be rendered with a call."""
    return of(surroundings) if _ARGUMENTS in surroundings.template else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    return CallFormat("kimi-k2", surroundings.vocabulary, (_SECTION,), reasoning_of(surroundings))

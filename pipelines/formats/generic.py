"""The format of models whose chat template knows no tools: JSON in tags, as they are told in words.

How that is said, and how calls and results of the past are written for them, is in `told_tools`.
"""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.json_body import JsonBody

NAME = "generic"
OPENER, CLOSER = "<tool_call>\n", "\n</tool_call>"
_TAGGED = Block(JsonBody(), call_open=OPENER, call_close=CLOSER)
_BARE = Block(JsonBody(ends=True, full=True), held=False)
"""As models write it that forget the tags."""


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    return CallFormat(NAME, surroundings.vocabulary, (_TAGGED, _BARE), reasoning_of(surroundings))

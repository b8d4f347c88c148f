"""The Hermes format: calls as JSON objects between <tool_call> and </tool_call>, reasoning between <think> tags.

Used by Nous Hermes, Qwen 2.5 and 3, and the embedded model.
"""

import re

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.json_body import JsonBody

# Others share the opener and write something else after it, so the template's own call decides.
_CALL = re.compile(r'<tool_call>\s*\{\s*"name":\s*"f",\s*"arguments":\s*\{"a": "b"\}\s*\}\s*</tool_call>')
_BLOCK = Block(JsonBody(), call_open="<tool_call>\n", call_close="\n</tool_call>")


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    return of(surroundings) if _CALL.search(surroundings.call) else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    return CallFormat("hermes", surroundings.vocabulary, (_BLOCK,), reasoning_of(surroundings))

"""The format of Llama 4 and other models that write a list of calls as Python does: [f(a="x"), g()]."""

import re

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.pythonic_body import PythonicBody

_BARE = Block(PythonicBody(), separator=", ", listed=True)
_MARKED = Block(PythonicBody(), opener="<|python_start|>", separator=", ", closer="<|python_end|>", listed=True)
_CALL = re.compile(r"""(<\|python_start\|>)?\[f\(a=["']b["']\)\](<\|python_end\|>)?""")


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    found = _CALL.search(surroundings.call)
    # With other markers around it, it is another family's.
    if found is None or surroundings.call[found.end() :].startswith("<|tool_call_end|>"):
        return None
    return of(surroundings)


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    return CallFormat("llama4", surroundings.vocabulary, (_BARE, _MARKED), reasoning_of(surroundings))

"""The format of Functionary 3.1: the tool's name in a tag, and JSON in it."""

import re

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.named_body import NamedBody

_TAGGED = Block(NamedBody(between=">"), call_open="<function=", call_close="</function>", between="")
_CALL = re.compile(r'<function=f>\{"a": "b"\}</function>')


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    return of(surroundings) if _CALL.search(surroundings.call) else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    return CallFormat("functionary-v3.1", surroundings.vocabulary, (_TAGGED,), reasoning_of(surroundings))

"""The formats of Functionary: 3.1, with the tool's name in a tag and JSON in it, and 3.2, with recipients."""

import re

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.named_body import NamedBody

_TAGGED = Block(NamedBody(between=">"), call_open="<function=", call_close="</function>", between="")
_TO = NamedBody(between="\n", ends=True)
_FIRST = Block(_TO, between=">>>", chained=True)
_LATER = Block(_TO, call_open=">>>", between="", behind="\n{", others=("all",))
_CALL = re.compile(r'<function=f>\{"a": "b"\}</function>')


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    if '>>>f\n{"a": "b"}' in surroundings.call:
        return recipients(surroundings)
    return of(surroundings) if _CALL.search(surroundings.call) else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    return CallFormat("functionary-v3.1", surroundings.vocabulary, (_TAGGED,), reasoning_of(surroundings))


def recipients(surroundings: Surroundings) -> CallFormat:
    """That of 3.2: the template opens a turn with `>>>`, and then there is whom it is for: `all`, or a tool."""
    unsaid, spoken = (">>>all\n",), ("all\n", "")
    return CallFormat(
        "functionary-v3.2", surroundings.vocabulary, (_FIRST, _LATER), reasoning_of(surroundings), unsaid, spoken=spoken
    )

"""The formats of Mistral: a list of JSON objects after [TOOL_CALLS], and from tokeniser 11 on a name before each."""

import re

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.json_body import JsonBody
from tenuto.pipelines.formats.named_body import NamedBody

_ID = "[a-zA-Z0-9]{9}"
_LISTED = Block(JsonBody(ends=True, last=("id", _ID)), opener="[TOOL_CALLS]", separator=", ", listed=True)
_NAMED = Block(
    NamedBody(between="[ARGS]", id=("[CALL_ID]", _ID), ends=True), call_open="[TOOL_CALLS]", between=""
)  # fmt: skip
_WITHOUT_ID = Block(NamedBody(between="[ARGS]", ends=True), call_open="[TOOL_CALLS]", between="")
_LIST_CALL = re.compile(r'\[TOOL_CALLS\]\s*\[\s*\{"name": "f", "arguments": \{"a": "b"\}')
_NAMED_CALL = re.compile(r'\[TOOL_CALLS\]f(\[CALL_ID\][^\[]*)?\[ARGS\]\{"a": "b"\}')


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    if found := _NAMED_CALL.search(surroundings.call):
        return _format("mistral-named", surroundings, _NAMED if found[1] else _WITHOUT_ID)
    return listed(surroundings) if _LIST_CALL.search(surroundings.call) else None


def listed(surroundings: Surroundings) -> CallFormat:
    """The older form."""
    return _format("mistral", surroundings, _LISTED)


def named(surroundings: Surroundings) -> CallFormat:
    """The newer form."""
    return _format("mistral-named", surroundings, _WITHOUT_ID)


def _format(name: str, surroundings: Surroundings, block: Block) -> CallFormat:
    return CallFormat(name, surroundings.vocabulary, (block,), reasoning_of(surroundings, "[THINK]", "[/THINK]"))

"""The formats of GigaChat: one JSON object, in 3.1 after <|function_call|>, in 3.0 in a message of its own."""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.json_body import JsonBody

_CALL = Block(JsonBody(ends=True), call_open="<|function_call|>", between="")
_MESSAGE = Block(JsonBody(ends=True), call_open="<|message_sep|>\n\nfunction call<|role_sep|>\n", between="")


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    if '<|function_call|>{"name": "f", "arguments": {"a": "b"}}' in surroundings.call:
        return of(surroundings)
    found = 'function call<|role_sep|>\n{"name": "f", "arguments": {"a": "b"}}' in surroundings.call
    return message(surroundings) if found else None


def of(surroundings: Surroundings) -> CallFormat:
    """That of 3.1."""
    return CallFormat("gigachat", surroundings.vocabulary, (_CALL,), reasoning_of(surroundings))


def message(surroundings: Surroundings) -> CallFormat:
    """That of 3.0."""
    return CallFormat("gigachat-3.0", surroundings.vocabulary, (_MESSAGE,), reasoning_of(surroundings))

"""The format of Firefunction 2: a JSON list of calls after `functools`."""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.json_body import JsonBody

LIST = Block(JsonBody(ends=True), opener="functools", separator=", ", listed=True, bracketed=True)


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    return of(surroundings) if ' functools[{"name": "f", "arguments": {"a": "b"}}]' in surroundings.call else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    return CallFormat("firefunction", surroundings.vocabulary, (LIST,), reasoning_of(surroundings))

"""The format of Granite 3: a JSON list of calls after <|tool_call|>. Granite 4 speaks Hermes."""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.json_body import JsonBody

_LIST = Block(JsonBody(ends=True), opener="<|tool_call|>", separator=", ", listed=True)


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template tells of it: it never writes a call."""
    return (
        of(surroundings) if "respond only with <|tool_call|> followed by a JSON list" in surroundings.template else None
    )


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    return CallFormat("granite", surroundings.vocabulary, (_LIST,), reasoning_of(surroundings))

"""The format of Phi 4 mini: a JSON list of calls between <|tool_call|> and <|/tool_call|>."""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.firefunction import LIST
from tenuto.pipelines.formats.json_body import JsonBody

_LIST = Block(JsonBody(ends=True), opener="<|tool_call|>", separator=", ", closer="<|/tool_call|>", listed=True)


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template writes the list of tools as this family does; it never writes a call."""
    return of(surroundings) if "<|tool|>" in surroundings.template and "<|/tool|>" in surroundings.template else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it, and as it is written without the special tokens."""
    return CallFormat("phi4", surroundings.vocabulary, (_LIST, LIST), reasoning_of(surroundings))

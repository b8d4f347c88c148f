"""The format of LFM2: a list of calls as Python writes them, between markers."""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.pythonic_body import PythonicBody

_LIST = Block(PythonicBody(), opener="<|tool_call_start|>", separator=", ", closer="<|tool_call_end|>", listed=True)


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template or vocabulary speaks it: some of the templates write no calls."""
    text = surroundings.template
    named = any(mark in text for mark in ("<|tool_list_start|>", "List of tools: [", _LIST.opener))
    known = named or _LIST.opener in surroundings.vocabulary.markers
    return of(surroundings) if known else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    return CallFormat("lfm2", surroundings.vocabulary, (_LIST,), reasoning_of(surroundings))

"""The format of Nemotron Nano 2: a JSON list of calls between <TOOLCALL> and </TOOLCALL>. Apriel's differs in the tags.

Nemotron 3 speaks Qwen3-Coder's.
"""

from tenuto.pipelines.formats.base import Reasoning, Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.json_body import JsonBody

_BODY = JsonBody(ends=True)
_NEMOTRON = Block(_BODY, opener="<TOOLCALL>", separator=", ", closer="</TOOLCALL>", listed=True)
_APRIEL = Block(_BODY, opener="<tool_calls>", separator=", ", closer="</tool_calls>", listed=True)
_ARRIVED = "[BEGIN FINAL RESPONSE]"


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    if '<TOOLCALL>[{"name": "f", "arguments": {"a": "b"}}]</TOOLCALL>' in surroundings.call:
        return of(surroundings)
    found = '<tool_calls>[{"name": "f", "arguments": {"a": "b"}' in surroundings.call
    return apriel(surroundings) if found else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    return CallFormat("nemotron", surroundings.vocabulary, (_NEMOTRON,), reasoning_of(surroundings))


def apriel(surroundings: Surroundings) -> CallFormat:
    """That of Apriel, which reasons from the beginning of a turn up to where its answer begins."""
    reasoning = reasoning_of(surroundings, "<thinking>", "</thinking>")
    if _ARRIVED in surroundings.template:
        begun = surroundings.opening.endswith("Here are my reasoning steps:\n")
        reasoning = Reasoning("Here are my reasoning steps:\n", _ARRIVED, begun)
    return CallFormat("apriel", surroundings.vocabulary, (_APRIEL,), reasoning)

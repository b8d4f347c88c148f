"""The format of Solar Open: an id, the tool's name and the arguments as JSON, each behind a token of its own."""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.named_body import NamedBody

_BODY = NamedBody(first="[a-zA-Z0-9_-]{1,64}", before="<|tool_call:name|>", between="<|tool_call:args|>")
# What closes the calls ends the turn as well.
_CALLS = Block(_BODY, "<|tool_calls|>", "<|tool_call:begin|>", "<|tool_call:end|>", "", "<|calls|>")


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    return of(surroundings) if '<|tool_call:name|>f<|tool_call:args|>{"a": "b"}' in surroundings.call else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it: its reasoning is a message of its own."""
    reasoning = reasoning_of(surroundings, "<|think|>", "<|end|><|begin|>assistant")
    return CallFormat("solar-open", surroundings.vocabulary, (_CALLS,), reasoning, ("<|content|>", "<|flush|>"))

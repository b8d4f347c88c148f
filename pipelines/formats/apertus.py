"""The format of Apertus: a JSON list between <|tools_prefix|> and <|tools_suffix|>, each call an object of one key."""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.named_body import NamedBody

_BODY = NamedBody(before='{"', between='": ', after="}", ends=True)
_LIST = Block(_BODY, opener="<|tools_prefix|>", separator=", ", closer="<|tools_suffix|>", listed=True)


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    return of(surroundings) if '<|tools_prefix|>[{"f": {"a": "b"}}]' in surroundings.call else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    reasoning = reasoning_of(surroundings, "<|inner_prefix|>", "<|inner_suffix|>")
    return CallFormat("apertus", surroundings.vocabulary, (_LIST,), reasoning)

"""The format of Llama 3: a turn that calls is one JSON object with a name and parameters.

After <|python_tag|> there is the same object, or a call of a built-in tool: brave_search.call(query="x").
"""

import re

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.either_body import EitherBody
from tenuto.pipelines.formats.json_body import JsonBody
from tenuto.pipelines.formats.json_call import Keys
from tenuto.pipelines.formats.pythonic_body import PythonicBody

_BODY = JsonBody(Keys(arguments="parameters", before=("type",)), ends=True)
_BUILT_IN = EitherBody(_BODY, PythonicBody(suffix=".call"), frozenset({"brave_search", "wolfram_alpha"}))
_BLOCKS = (Block(_BODY), Block(_BUILT_IN, call_open="<|python_tag|>", between=""))
_CALL = re.compile(r'^[^{]*\{"name": "f", "parameters": \{"a": "b"\}\}')


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    return of(surroundings) if _CALL.search(surroundings.call) else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    return CallFormat("llama3", surroundings.vocabulary, _BLOCKS, reasoning_of(surroundings))

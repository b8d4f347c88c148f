"""The format of Cohere's Command R7B, A and later: a list of actions, and thinking, each between markers."""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.json_body import JsonBody
from tenuto.pipelines.formats.json_call import Keys

_KEYS = Keys("tool_name", "parameters", before=("tool_call_id",))
_ACTIONS = Block(
    JsonBody(_KEYS, ends=True, first=("tool_call_id", "[0-9]{1,3}")), opener="<|START_ACTION|>",
    separator=",\n    ", closer="<|END_ACTION|>", listed=True,
    padding=("\n    ", "\n"),
)  # fmt: skip


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    call = surroundings.call
    return of(surroundings) if "<|START_ACTION|>" in call and '"tool_name": "f"' in call else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    reasoning = reasoning_of(surroundings, "<|START_THINKING|>", "<|END_THINKING|>")
    return CallFormat("command-r", surroundings.vocabulary, (_ACTIONS,), reasoning, _TEXT)


_TEXT = ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")
"""What stands around an answer."""

"""The format of Cohere's Command R and R+: a list of actions as JSON in a fence after `Action:`."""

from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.json_body import JsonBody
from tenuto.pipelines.formats.json_call import Keys

_ACTIONS = Block(
    JsonBody(Keys("tool_name", "parameters"), ends=True, inside=("\n        ", "\n    ")), opener="Action:\n```json\n",
    separator=",\n    ", closer="```", listed=True, padding=("\n    ", "\n"),
)  # fmt: skip
_ON_ONE_LINE = Block(
    JsonBody(Keys("tool_name", "parameters"), ends=True), "Action: ```json", closer="```", listed=True, held=False
)
_CALL = "Action:\n```json\n["


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    call = surroundings.call
    return of(surroundings) if _CALL in call and '"tool_name": "f"' in call else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    return CallFormat("command-r-plus", surroundings.vocabulary, (_ACTIONS, _ON_ONE_LINE), reasoning_of(surroundings))

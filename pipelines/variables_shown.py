"""Whether a template's variables show in what it writes of a past, or only in what opens the model's turn: by trying.

Where they show in the past, tokens that were rendered without them are not what the model would have read. Pure.
"""

from collections.abc import Callable, Iterator, Sequence

from tenuto.errors import TemplateFailed
from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolCall, ToolResultItem, ToolSpec, UserItem

Written = Callable[[Sequence[Item], Sequence[Item], Sequence[ToolSpec]], list[list[str]]]
"""What a template writes for new items after a past, and then what opens the model's turn. Raises TemplateFailed."""

_SYSTEM = SystemItem("Be brief.")
_TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
_CALL = ToolCall("call_0", "look", '{"at": "here"}')


def shows(one: Written, other: Written) -> bool:
    """Whether two ways of rendering write any of some conversations differently, but for what opens the last turn."""
    return any(_past(one, items, tools) != _past(other, items, tools) for items, tools in _conversations())


def _past(written: Written, items: Sequence[Item], tools: Sequence[ToolSpec]) -> list[list[str]] | None:
    try:
        return written((), items, tools)[:-1]
    except TemplateFailed:
        return None


def _conversations() -> Iterator[tuple[Sequence[Item], Sequence[ToolSpec]]]:
    asked, thought = UserItem("first"), AssistantItem("answer", "reason")
    called = (AssistantItem("text", "why", (_CALL,)), ToolResultItem("call_0", "look", "result"))
    for lead in ((), (_SYSTEM,)):
        for tools in ((), (_TOOL,)):
            yield (*lead, asked), tools
            yield (*lead, asked, AssistantItem("answer"), UserItem("second")), tools
            yield (*lead, asked, thought, UserItem("second"), thought, UserItem("third")), tools
            yield (*lead, asked, *called), tools
            yield (*lead, asked, *called, thought, UserItem("second"), *called), tools

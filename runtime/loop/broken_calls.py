"""What the model is told of a call that could not be read, and when it is told. Pure."""

from collections.abc import Sequence

from tenuto.pipelines.base import ToolChoice
from tenuto.runtime.loop.options import RunOptions
from tenuto.sessions.items import Item, NoteItem


def may_tell(options: RunOptions, since: Sequence[Item]) -> bool:
    """Whether a run may tell it, whose items are `since`: once, and where the server itself runs tools.

    A client that runs all tools expects what the model said, and decides for itself.
    """
    if (
        options.choice is ToolChoice.NONE
        or options.max_tool_rounds == 0
        or any(isinstance(item, NoteItem) for item in since)
    ):
        return False
    return any(tool.name not in options.client_tools for tool in options.callable(options.choice))


def note(reason: str) -> NoteItem:
    """What the model reads."""
    return NoteItem(
        "[note of the server; the user does not see it]\n"
        f"What you wrote looks like a tool call, but cannot be read as one: {reason}. No tool was called. "
        "To call a tool, write the whole call again in the form that you were given, with the tool's name and its "
        "arguments. Else answer without a call."
    )

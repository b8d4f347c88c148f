"""A request's items in the forms in which matching and splicing look at them, each made once. Pure."""

import hashlib
from collections.abc import Sequence
from functools import cached_property

from tenuto.sessions.items import AssistantItem, Item, ToolResultItem, item_to_json
from tenuto.sessions.orphans import adopted
from tenuto.sessions.visible import VisibleHistory, canonical


class RequestItems:
    """A request's items. What is asked of it first takes as long as there are items; `read` does all of that at once.

    It may be read in another thread, if nobody asks meanwhile.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items

    def read(self) -> None:
        """Make all forms."""
        _ = self.digest, self.to_compare, self.first_assistant

    @cached_property
    def canonical(self) -> list[Item]:
        """The items as sessions keep them, where they are a whole history."""
        return canonical(adopted(self.items))

    @cached_property
    def history(self) -> VisibleHistory:
        """What is visible of them, with digests."""
        history = VisibleHistory()
        history.digest(self.canonical)
        return history

    @cached_property
    def first_assistant(self) -> int:
        """The first visible item that is the assistant's; how many there are where none is."""
        seen = self.history.visible
        return next((place for place, one in enumerate(seen) if isinstance(one.item, AssistantItem)), len(seen))

    @cached_property
    def to_compare(self) -> list[int]:
        """The visible items of which equal digests leave something to compare: reasoning or calls."""
        return [place for place, one in enumerate(self.history.visible) if _leaves_more(one.item)]

    @cached_property
    def digest(self) -> str:
        """Names the items as they came."""
        return hashlib.sha256("\n".join(map(item_to_json, self.items)).encode()).hexdigest()


def _leaves_more(item: Item) -> bool:
    if isinstance(item, AssistantItem):
        return bool(item.reasoning or item.calls)
    return isinstance(item, ToolResultItem) and bool(item.call_id)

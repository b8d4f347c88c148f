"""How much text the event loop looks at by itself: what is more goes to a worker thread."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.sessions.items import Item, ToolResultItem, UserItem


@dataclass(frozen=True, slots=True)
class Amount:
    """So many items with so many characters in all."""

    items: int
    characters: int

    def holds(self, items: Sequence[Item]) -> bool:
        """Whether these are no more than that."""
        return len(items) <= self.items and sum(map(_characters, items)) <= self.characters


def _characters(item: Item) -> int:
    """What there is to read of an item, and what it carries."""
    carried = item.attachments if isinstance(item, UserItem | ToolResultItem) else ()
    return len(item.text) + sum(len(one.data or "") for one in carried)


RENDERED = Amount(items=64, characters=1 << 14)
"""Rendered and tokenised on the event loop at most: a few milliseconds."""
DIGESTED = Amount(items=256, characters=1 << 18)
"""Digested for matching on the event loop at most."""

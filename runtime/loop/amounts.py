"""How much text the event loop looks at by itself: what is more goes to a worker thread."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.sessions.items import Item


@dataclass(frozen=True, slots=True)
class Amount:
    """So many items with so many characters in all."""

    items: int
    characters: int

    def holds(self, items: Sequence[Item]) -> bool:
        """Whether these are no more than that."""
        return len(items) <= self.items and sum(len(item.text) for item in items) <= self.characters


RENDERED = Amount(items=64, characters=1 << 14)
"""Rendered and tokenised on the event loop at most: a few milliseconds."""
DIGESTED = Amount(items=256, characters=1 << 18)
"""Digested for matching on the event loop at most."""

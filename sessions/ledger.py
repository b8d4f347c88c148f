"""The exact token ids of a session for one codec fingerprint. No text, no rendering, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Ledger:
    """The truth of what a model saw. `offsets[i]` is where the tokens of the session's item i begin.

    A ledger may cover fewer items than its session, never more. An item's tokens begin right after the content of the
    item before it, so the glue between two items belongs to the later one.
    """

    fingerprint: str
    tokens: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    @property
    def items(self) -> int:
        """How many items are covered."""
        return len(self.offsets)

    def append(self, tokens: Sequence[int]) -> None:
        """Add one item's tokens."""
        self.offsets.append(len(self.tokens))
        self.tokens.extend(tokens)

    def cut(self, items: int) -> None:
        """Keep the first `items` items. Keeping more than there are changes nothing."""
        if items < len(self.offsets):
            del self.tokens[self.offsets[items] :]
            del self.offsets[items:]

    def span(self, item: int) -> list[int]:
        """The tokens of one item."""
        end = self.offsets[item + 1] if item + 1 < len(self.offsets) else len(self.tokens)
        return self.tokens[self.offsets[item] : end]

    def copy(self, items: int) -> "Ledger":
        """A ledger of its own over the first `items` items."""
        twin = Ledger(self.fingerprint, list(self.tokens), list(self.offsets))
        twin.cut(items)
        return twin

"""The exact token ids of a session for one codec fingerprint. No text, no rendering, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tenuto.sessions.tokens import NOTHING, Prefix, Tokens


@dataclass(slots=True)
class Ledger:
    """The truth of what a model saw. `offsets[i]` is where the tokens of the session's item i begin.

    A ledger may cover fewer items than its session, never more. An item's tokens begin right after the content of the
    item before it, so the glue between two items belongs to the later one.
    """

    fingerprint: str
    tokens: Tokens = field(default_factory=Tokens)
    offsets: list[int] = field(default_factory=list)

    @property
    def items(self) -> int:
        """How many items are covered."""
        return len(self.offsets)

    def append(self, tokens: Sequence[int]) -> None:
        """Add one item's tokens."""
        begin = len(self.tokens)
        self.tokens.extend(tokens)
        self.offsets.append(begin)

    def cut(self, items: int) -> None:
        """Keep the first `items` items. Keeping more than there are changes nothing."""
        if items < len(self.offsets):
            self.tokens.cut(self.offsets[items])
            del self.offsets[items:]

    def span(self, item: int) -> list[int]:
        """The tokens of one item."""
        return self.tokens[self.offsets[item] : self.end(item + 1)]

    def end(self, items: int) -> int:
        """How many tokens the first `items` items have; all where it covers no more."""
        return self.offsets[items] if items < len(self.offsets) else len(self.tokens)

    def prefix(self, items: int) -> Prefix:
        """The name of the tokens of the first `items` items."""
        return self.tokens.prefix(self.end(items)) if items else NOTHING

    def copy(self, items: int | None = None) -> "Ledger":
        """A ledger of its own over the first `items` items, or over all."""
        if items is None:
            items = self.items
        return Ledger(self.fingerprint, self.tokens.copy(self.end(items) if items else 0), self.offsets[:items])

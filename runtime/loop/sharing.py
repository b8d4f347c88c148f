"""Which prefixes principals may share: the system and tool block, where a setting says so. Nothing of what they say."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal

from cachetools import LRUCache

from tenuto.pipelines.base import Codec
from tenuto.sessions.items import Item, SystemItem, ToolSpec, UserItem
from tenuto.sessions.ledger import Ledger

Sharing = Literal["none", "system", "all"]
"""`all` is the engine's to carry out."""

_KNOWN_BLOCKS = 64
_ANYTHING = (UserItem("a"), UserItem("b"))
"""Two texts without a token in common."""


@dataclass(slots=True)
class SharedPrefixes:
    """How many of a ledger's leading tokens its principal may have in common with others. Event-loop thread only."""

    sharing: Sharing = "none"
    _blocks: LRUCache[str, tuple[int, ...]] = field(default_factory=lambda: LRUCache(_KNOWN_BLOCKS))

    def of(self, ledger: Ledger, items: Sequence[Item], codec: Codec, tools: Sequence[ToolSpec]) -> int:
        """The length of the named prefix; 0 where there is none, or none may be shared.

        `items` are those of the session, whose first ones the ledger covers; `tools` are what it was rendered with.
        """
        if self.sharing != "system" or not items:
            return 0
        leading = sum(1 for _ in takewhile(lambda item: isinstance(item, SystemItem), items))
        if leading:
            return ledger.offsets[leading] if leading < ledger.items else 0
        block = self._block(ledger.fingerprint, codec, tools) if isinstance(items[0], UserItem) else ()
        # A template may write the day of the rendering into it.
        return len(block) if tuple(ledger.tokens[: len(block)]) == block else 0

    def _block(self, fingerprint: str, codec: Codec, tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        """What stands before the first words of a user: the tools, and what the template says by itself."""
        known = self._blocks.get(fingerprint)
        if known is None:
            known = self._blocks[fingerprint] = tool_block(codec, tools)
        return known


def tool_block(codec: Codec, tools: Sequence[ToolSpec]) -> tuple[int, ...]:
    """What stands before the first words of a user: the tools, and what the template says by itself.

    Raises:
        TemplateFailed: the template takes no such conversation.
    """
    one, other = (codec.suffix((), (said,), tools, ended=False).items[0] for said in _ANYTHING)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    return one[:same]

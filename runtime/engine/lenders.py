"""Whose cache serves the beginning of a sequence: of its own principal's, and of what others lend. Engine thread only.

Sequences are listed with the tokens that they had when they were placed or when they stopped, and not with each one
that is sampled. How many of these have a cache now is asked of who knows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tenuto.runtime.engine.messages import THE_SERVER
from tenuto.runtime.engine.prefixes import Prefixes
from tenuto.runtime.engine.sequence import Sequence
from tenuto.sessions.tokens import Tokens

_LOOKS = 16
"""Of so many that serve equally well, the one with the least beside it is taken: all that it holds is copied."""
_ONE = ""
"""The group where all are in one."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The first `tokens` of what `lender` holds. `is_told`: whoever is given them may know that they had a cache."""

    lender: str
    tokens: int
    is_told: bool = True


class Lenders:
    """The sequences that have a cache in a slot or in host memory.

    `lends_all`: a principal's serve every other, as far as they are the same.
    """

    def __init__(self, *, can_truncate: bool, lends_all: bool) -> None:
        self._can_truncate, self._lends_all = can_truncate, lends_all
        self._by_principal: Prefixes[str] = Prefixes()
        self._named: Prefixes[str] = Prefixes()
        self._all: Prefixes[str] = Prefixes()
        self._who: dict[str, tuple[str, int]] = {}
        """Whose each is, and how many of its tokens it names."""

    @property
    def tokens(self) -> int:
        """How many tokens are held to find them by."""
        return sum(prefixes.tokens for prefixes in (self._by_principal, self._named, self._all))

    def put(self, sequence: Sequence, tokens: Tokens, length: int | None = None) -> None:
        """List the first `length` of these tokens, or all, as a sequence's, in place of what was listed of it."""
        id, ids, named = sequence.id, tokens.ids(length), sequence.named
        self._who[id] = sequence.principal, named
        if sequence.principal != THE_SERVER or not named:  # what the server names is lent whole, or not at all
            self._by_principal.put(sequence.principal, id, ids)
            if self._lends_all:
                self._all.put(_ONE, id, ids)
        self._named.put(_ONE, id, ids[:named] if named <= len(ids) else ids[:0])

    def remove(self, id: str) -> None:
        """A sequence has no cache any more."""
        if self._who.pop(id, None) is not None:
            for prefixes in (self._by_principal, self._named, self._all):
                prefixes.remove(id)

    def best(self, sequence: Sequence, least: int, held: Callable[[str], int]) -> tuple[Offer | None, Offer | None]:
        """What serves most of a sequence, `least` tokens or more: of its own principal's, and, where that is more, of
        what others lend. `held` says how many tokens of a sequence have a cache now.

        Others lend what the server has had read, as far as it is the same. Of what the server has named, and of what
        others have named that name the very same, they lend all or nothing: who could have a part of what others wrote
        could find it out token by token.
        """
        whole, ids = not self._can_truncate, sequence.tokens.ids(len(sequence.tokens) - 1)
        mine = self._longest(self._by_principal.matches(sequence.principal, ids, whole=whole), sequence, least, held)
        least = max(least, mine.tokens + 1) if mine is not None else least
        lent = self._whole(self._named.matches(_ONE, ids, whole=True), sequence, least, held)
        for prefixes, group in ((self._by_principal, THE_SERVER), (self._all, _ONE)):
            least = max(least, lent.tokens + 1) if lent is not None else least
            if (offer := self._longest(prefixes.matches(group, ids, whole=whole), sequence, least, held)) is not None:
                lent = replace(offer, is_told=False)
        return mine, lent

    def usable(self, held: int, common: int) -> int:
        """How much of a cache of `held` tokens serves where `common` of them are wanted."""
        return common if common == held or self._can_truncate else 0

    def _longest(
        self, matches: Iterable[tuple[int, str]], sequence: Sequence, least: int, held: Callable[[str], int]
    ) -> Offer | None:
        best: Offer | None = None
        most, fewest = least - 1, 0
        for looked, (common, id) in enumerate(matches):
            if common < most or (best is None and common == most) or (best is not None and looked >= _LOOKS):
                break
            if id == sequence.id:
                continue
            holds = held(id)
            tokens = self.usable(holds, sequence.uncut(min(common, holds)))
            if tokens > most or (best is not None and tokens == most and holds < fewest):
                best, most, fewest = Offer(id, tokens), tokens, holds
        return best

    def _whole(
        self, matches: Iterable[tuple[int, str]], sequence: Sequence, least: int, held: Callable[[str], int]
    ) -> Offer | None:
        for common, id in matches:
            if common < least:
                return None
            principal, named = self._who[id]
            is_servers = principal == THE_SERVER
            if id == sequence.id or not (is_servers or (named == sequence.named and principal != sequence.principal)):
                continue
            holds = held(id)
            if holds >= named and sequence.uncut(named) == named and self.usable(holds, named):
                return Offer(id, named, is_told=is_servers)
        return None

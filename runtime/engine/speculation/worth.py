"""How long a draft is worth its time: from what steps have taken, and how likely guesses are right. Pure.

A step over some rows takes as long as they need, and longer by what each drafted token adds. A token that is right
saves its row's share of a step. Where only some of the rows have a draft, a backend may need a second pass for the
longer ones: so all drafts of a step have one length.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

LENGTHS = (16, 12, 8, 6, 4, 3, 2, 1)
_NEW = 0.1
"""What the last step counts in a mean."""
_MEASURES, _FEWEST = 7, 3
"""Of so many steps without drafts the middle one is what such a step takes, and of fewer nothing is known."""
_SPIKE = 2.0
"""How many times longer than expected is believed: the machine may have been busy with something else."""
_TOKEN_SHARE, _SPLIT_SHARE = 0.5, 0.3
"""Before any is known: what a drafted token adds, of a row's share, and what a second pass takes, of a step."""
AGAIN = 64
"""After so many steps with drafts one without is measured anew, and after so many without, one with."""
_PROBED = 4


@dataclass(frozen=True, slots=True)
class Offer:
    """A draft of so many tokens, of which each is right with this chance if those before it are."""

    tokens: int
    chance: float


class Worth:
    """Learns what steps take. `observe` every step in which all rows decode."""

    def __init__(self) -> None:
        self._plain: dict[int, deque[float]] = {}
        """Seconds of the last steps without drafts, by their rows."""
        self._token: float | None = None
        """Seconds that a drafted token adds."""
        self._split: float | None = None
        """Seconds that a step takes longer in which not all rows have a draft."""
        self._since: dict[int, int] = {}
        """How many steps with drafts there were since one without, by rows."""
        self._refused = 0

    def observe(self, rows: int, drafts: int, tokens: int, seconds: float) -> None:
        """A step over so many rows, of which so many had drafts of so many tokens together, has taken so long."""
        if not drafts:
            self._plain.setdefault(rows, deque(maxlen=_MEASURES)).append(seconds)
            self._since[rows] = 0
            return
        self._since[rows] = self._since.get(rows, 0) + 1
        plain = self._plain_s(rows)
        if plain is None:
            return
        drafted = tokens * self._token_s(plain / rows)
        expected = plain + drafted + (0.0 if drafts == rows else self._split_s(plain))
        more = max(min(seconds, _SPIKE * expected) - plain, 0.0)
        if drafts == rows:
            self._token = _mean(self._token, more / tokens)
        else:
            self._split = _mean(self._split, max(more - drafted, 0.0))

    def length(self, rows: int, offers: Sequence[Offer], room: int) -> int:
        """How long the drafts of the next step are to be, of `room` tokens at most together; 0: none is worth it.

        Who offers fewer tokens goes without.
        """
        plain = self._plain_s(rows)
        if plain is None or not offers or self._since.get(rows, 0) >= AGAIN:
            return 0
        best, most = 0, 0.0
        for length in LENGTHS:
            gain = self._gain(plain, rows, [one for one in offers if one.tokens >= length], length, room)
            if gain > most:
                best, most = length, gain
        if best:
            self._refused = 0
            return best
        self._refused += 1
        if self._refused < AGAIN:
            return 0
        self._refused = 0
        return min(_PROBED, room, max(one.tokens for one in offers))

    def _gain(self, plain: float, rows: int, offers: Sequence[Offer], length: int, room: int) -> float:
        count = min(len(offers), room // length)
        if not count:
            return 0.0
        right = sorted((_right(one.chance, length) for one in offers), reverse=True)[:count]
        split = 0.0 if count == rows else self._split_s(plain)
        return sum(right) * plain / rows - count * length * self._token_s(plain / rows) - split

    def _plain_s(self, rows: int) -> float | None:
        measured = sorted(self._plain.get(rows, ()))
        return measured[(len(measured) - 1) // 2] if len(measured) >= _FEWEST else None

    def _token_s(self, share: float) -> float:
        """What a drafted token adds to a step of which each row has this share."""
        return share * _TOKEN_SHARE if self._token is None else self._token

    def _split_s(self, plain: float) -> float:
        return plain * _SPLIT_SHARE if self._split is None else self._split


def _right(chance: float, length: int) -> float:
    """How many tokens of a draft are likely right."""
    return float(length) if chance >= 1 else chance * (1 - chance**length) / (1 - chance)


def _mean(before: float | None, now: float) -> float:
    return now if before is None else before + (now - before) * _NEW

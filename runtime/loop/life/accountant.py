"""The bytes of all models that are loaded or being loaded, weights and caches, and the budget that they keep to."""

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """Bytes that are in memory once for all who hold them: the weights of a file. `key` tells them from others."""

    key: Hashable
    nbytes: int


@dataclass(frozen=True, slots=True)
class Holding:
    """What one holds: its own bytes, and a share beside them."""

    own: int
    share: Share | None = None

    @property
    def nbytes(self) -> int:
        """All of it, as if nobody else had the share."""
        return self.own + (0 if self.share is None else self.share.nbytes)


NOTHING = Holding(0)


def together(holdings: Iterable[Holding]) -> int:
    """What these hold together: each share once, by the most that one of them knows of it."""
    own, shares = 0, dict[Hashable, int]()
    for holding in holdings:
        own += holding.own
        if (share := holding.share) is not None:
            shares[share.key] = max(share.nbytes, shares.get(share.key, 0))
    return own + sum(shares.values())


class Accountant:
    """Who holds how many bytes. Event-loop thread only.

    A load takes its bytes before any memory, and gives them back when the memory is free: so what is held is never less
    than what is used. `budget` None: it only counts.
    """

    def __init__(self, budget: int | None = None) -> None:
        self.budget = budget
        self._held: dict[Hashable, Holding] = {}
        self.used = 0
        self.high_water = 0
        """The most that was held at any moment."""

    def fits(self, holding: Holding, without: Collection[Hashable] = ()) -> bool:
        """Whether so much is free; where these have gone, if any are named."""
        return self.short(holding, without) == 0

    def short(self, holding: Holding, without: Collection[Hashable] = ()) -> int:
        """How much must come free before so much is, when these have gone."""
        if self.budget is None:
            return 0
        staying = (held for holder, held in self._held.items() if holder not in without)
        return max(0, together([*staying, holding]) - self.budget)

    def held(self, holder: Hashable) -> int:
        """What one holds."""
        return self._held.get(holder, NOTHING).nbytes

    def take(self, holder: Hashable, holding: Holding) -> None:
        """Let one hold so much, which fits, in the place of what it held."""
        self._held[holder] = holding
        self.used = together(self._held.values())
        self.high_water = max(self.high_water, self.used)
        assert self.budget is None or self.used <= self.budget, "nobody takes what is not free"

    def free(self, holder: Hashable) -> None:
        """One holds nothing any more; a share goes with the last who held it."""
        self._held.pop(holder, None)
        self.used = together(self._held.values())

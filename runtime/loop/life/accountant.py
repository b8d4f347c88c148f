"""The bytes of all models that are loaded or being loaded, weights and caches, and the budget that they keep to."""

from collections.abc import Hashable


class Accountant:
    """Who holds how many bytes. Event-loop thread only.

    A load takes its bytes before any memory, and gives them back when the memory is free: so what is held is never less
    than what is used. `budget` None: it only counts.
    """

    def __init__(self, budget: int | None = None) -> None:
        self.budget = budget
        self._held: dict[Hashable, int] = {}
        self.used = 0
        self.high_water = 0
        """The most that was held at any moment."""

    def fits(self, nbytes: int) -> bool:
        """Whether so much is free."""
        return self.budget is None or self.used + nbytes <= self.budget

    def short(self, nbytes: int) -> int:
        """How much must come free before so much is."""
        return 0 if self.budget is None else max(0, self.used + nbytes - self.budget)

    def held(self, holder: Hashable) -> int:
        """What one holds."""
        return self._held.get(holder, 0)

    def take(self, holder: Hashable, nbytes: int) -> None:
        """Let one hold so much, which fits, in the place of what it held."""
        self.used += nbytes - self._held.get(holder, 0)
        self._held[holder] = nbytes
        self.high_water = max(self.high_water, self.used)
        assert self.budget is None or self.used <= self.budget, "nobody takes what is not free"

    def free(self, holder: Hashable) -> None:
        """One holds nothing any more."""
        self.used -= self._held.pop(holder, 0)

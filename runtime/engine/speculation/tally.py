"""How often guesses were right, of late. Pure."""

_FIRST, _FIRST_WEIGHT = 0.6, 2.0


class Tally:
    """Counts guessed tokens that were verified; older ones count less."""

    def __init__(self, memory: float) -> None:
        """`memory`: how many of the last ones count, about."""
        self._kept = 1 - 1 / memory
        self._right = self._all = 0.0

    def add(self, right: int, *, ended: bool) -> None:
        """So many tokens were right, and where it `ended` there, the one behind them was wrong."""
        for is_right in (*[1] * right, *([0] if ended else [])):
            self._right = self._right * self._kept + is_right
            self._all = self._all * self._kept + 1

    def chance(self, prior: float = _FIRST, weight: float = _FIRST_WEIGHT) -> float:
        """How likely the next one is right, where so many earlier ones would have been right as the prior says."""
        return (self._right + prior * weight) / (self._all + weight)

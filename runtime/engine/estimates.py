"""Running estimates: how long something takes, with its spread, and how fast something goes. Pure: no clock."""

_LEAST_WEIGHT = 0.1
"""Of the newest, so that what has changed is seen after some ten."""


class Estimate:
    """How long something takes. Until it has been measured, `expected_s` more or less as much."""

    __slots__ = ("_count", "expected_s", "spread_s")

    def __init__(self, expected_s: float) -> None:
        self.expected_s = self.spread_s = expected_s
        self._count = 0

    @property
    def is_known(self) -> bool:
        """Whether anything has been measured."""
        return self._count > 0

    def add(self, seconds: float) -> None:
        """It has taken so long. After the first, the spread is as wide as that was long: once says little."""
        self._count += 1
        if self._count == 1:
            self.expected_s = self.spread_s = seconds
            return
        weight = max(1 / self._count, _LEAST_WEIGHT)
        distance = seconds - self.expected_s
        self.expected_s += weight * distance
        self.spread_s += weight * (abs(distance) - self.spread_s)


class Rate:
    """How much goes in a second, over about the last `window_s` seconds of it.

    `per_s` is what it is taken to be at first, which counts as much as `weight_s` of measuring: what is small says
    little.
    """

    __slots__ = ("_amount", "_seconds", "_window_s")

    def __init__(self, per_s: float, weight_s: float = 0.1, window_s: float = 1.0) -> None:
        self._amount, self._seconds, self._window_s = per_s * weight_s, weight_s, window_s

    def add(self, amount: float, seconds: float) -> None:
        """So much has taken so long."""
        if amount <= 0 or seconds < 0:
            return
        self._amount += amount
        self._seconds += seconds
        if self._seconds > self._window_s:
            self._amount *= self._window_s / self._seconds
            self._seconds = self._window_s

    @property
    def per_s(self) -> float:
        """Now."""
        return self._amount / self._seconds

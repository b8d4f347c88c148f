"""For how long paused sequences are expected to wait: as hinted, else as long as those without a hint do."""

from tenuto.runtime.engine.estimates import Estimate
from tenuto.runtime.engine.messages import State
from tenuto.runtime.engine.sequence import Expected, Sequence
from tenuto.runtime.engine.waste import MOST_WAIT_S, left_s

UNKNOWN_S = 10.0
"""How long a pause is taken to be before any was measured."""


class Waits:
    """Of one engine. It reads no clock: `now` is the engine's, which never goes back."""

    def __init__(self) -> None:
        self._unhinted = Estimate(UNKNOWN_S)

    def hinted(self, expected_s: float, spread_s: float, now: float) -> Expected | None:
        """What a hint says; None where that is no time."""
        if not (expected_s >= 0 and spread_s >= 0):  # nor is what is no number
            return None
        return Expected(now, now + min(expected_s, MOST_WAIT_S), min(spread_s, MOST_WAIT_S))

    def resumed(self, sequence: Sequence, now: float) -> None:
        """A paused sequence goes on: one of which nothing was hinted says how long others may wait."""
        if sequence.paused_at is not None and sequence.expected is None:
            self._unhinted.add(max(now - sequence.paused_at, 0.0))
        sequence.paused_at = sequence.expected = None

    def left_s(self, sequence: Sequence, now: float) -> float:
        """For how long a sequence is expected to wait yet: not at all where it waits for the engine alone."""
        if sequence.state is State.WAITING:
            return 0.0
        if (expected := sequence.expected) is not None:
            return left_s(expected.at - expected.since, expected.spread_s, now - expected.since)
        elapsed = 0.0 if sequence.paused_at is None else now - sequence.paused_at
        return left_s(self._unhinted.expected_s, self._unhinted.spread_s, elapsed)

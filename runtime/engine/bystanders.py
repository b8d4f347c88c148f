"""How much prefill steps may carry, so that those who decode in them are not slowed down too much. Pure: the times come
from outside.

A step that feeds prompts takes longer than one that only decodes, and everybody who decodes waits for it. What each
takes is measured as it comes, by how many decode; no model is known beforehand. Where even a small piece of a prompt
takes longer than it may, steps without any follow, until the average is what it is to be.
"""

LEAST = 32
"""Tokens of prefill in a step that has any: to feed fewer takes nearly as long."""
_STALE = 32
"""After so many steps with prefill, one without is due, to be measured by."""
_MOST_IN_A_ROW = 16
"""So many steps may have no prefill, one after the other, while there is some to be done."""
_LONGER, _SHORTER, _SPIKE = 0.2, 0.5, 2.0
"""How much a new measurement counts that is above or below the others: what disturbs a step makes it longer. And how
many times more than expected is believed at once."""


class Bystanders:
    """Of one engine. `most`: how many times as long as without prefill steps may take on average while there is some
    to be done; None: as it comes. `chunk`: the most tokens of prefill beside others that decode.
    """

    def __init__(self, most: float | None, chunk: int) -> None:
        self._most, self._chunk = most, chunk
        self._least = min(LEAST, chunk)
        self._alone: dict[int, float] = {}
        """Seconds of a step without prefill, by how many decode in it."""
        self._since: dict[int, int] = {}
        """Steps with prefill since then, by the same."""
        self._token_s: float | None = None
        """Seconds that a token of prefill adds to a step."""
        self._owed_s = 0.0
        """How much longer steps have taken than they may, together."""
        self._without = 0
        """Steps in a row without prefill, though there was some to be done."""
        self._is_wanted = False
        self.slowdown = 0.0
        """How many times as long steps take while there is prefill as they do without, of late; 0: there was none."""

    def chunk(self, decoding: int) -> int:
        """The most tokens of prefill in the next step, in which so many decode, and for which there is some. 0: it is
        to have none, so that the average holds, or there is something to measure by."""
        self._is_wanted = True
        if self._most is None or not decoding:
            return self._chunk
        alone = self._alone.get(decoding)
        is_stale = alone is None or self._since.get(decoding, 0) >= _STALE
        is_held = self._owed_s > 0 and self._without < _MOST_IN_A_ROW
        if (is_stale and not self._without) or is_held:
            self._without += 1
            return 0
        self._without = 0
        if alone is None or self._token_s is None:
            return self._least
        room = (self._most - 1) * alone
        fits = self._chunk if room >= self._chunk * self._token_s else int(room / self._token_s)
        return max(self._least, fits)

    def stepped(self, decoding: int, prefill: int, seconds: float) -> None:
        """Learn what a step took in which so many sequences decoded, and so many tokens of prompts were fed."""
        if not prefill:
            self._alone[decoding] = _learnt(self._alone.get(decoding), seconds)
            self._since[decoding] = 0
        alone = self._alone.get(decoding) if decoding else 0.0
        if alone is None:
            return
        if prefill:
            self._since[decoding] = self._since.get(decoding, 0) + 1
            self._token_s = _learnt(self._token_s, max(0.0, seconds - alone) / prefill)
        if alone:
            self._account(alone, seconds if prefill else alone)

    def _account(self, alone: float, seconds: float) -> None:
        """A step took so long beside what it would have taken alone."""
        if self._is_wanted:
            ratio = min(seconds / alone, 4 * _MOST_IN_A_ROW)
            self.slowdown += 0.1 * (ratio - self.slowdown) if self.slowdown else ratio
        self._is_wanted = False
        if self._most is not None:
            # Bounded, since a step that the machine was busy with something else in says little.
            one = (self._most - 1) * alone
            owed = self._owed_s + seconds - alone - one
            self._owed_s = min(max(-one, owed), _MOST_IN_A_ROW * one)


def _learnt(known: float | None, measured: float) -> float:
    """The estimate after a measurement. A step that the machine was busy with something else in says little."""
    if not known:
        return measured
    believed = min(measured, _SPIKE * known)
    return known + (_LONGER if believed > known else _SHORTER) * (believed - known)

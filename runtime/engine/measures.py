"""How fast one engine computes and moves caches, as measured while it does. Engine thread only, but for `read`."""

from tenuto.runtime.engine.estimates import Rate
from tenuto.runtime.engine.waste import Speeds

MOST_PREFILL = 1e5
"""Tokens a second. Faster ones are scripts."""
_UNKNOWN_PREFILL = 1000.0


class Measures:
    """Of one engine."""

    def __init__(self) -> None:
        self.out, self.back = Rate(1e9), Rate(1e9)
        self.read = Rate(400e6, 0.5, 5.0)
        """Any thread may add to it; what two add at once may count as one."""
        self.prefill = 0.0
        """How many tokens prefill computes in a second; 0 until it has computed some."""

    def computed(self, tokens: int, seconds: float) -> None:
        """A step has computed so many tokens of prompts, beside whatever else."""
        if tokens and seconds > 0:
            speed = tokens / seconds
            self.prefill += (speed - self.prefill) * (0.1 if self.prefill else 1.0)

    def speeds(self) -> Speeds:
        """As the policy takes them."""
        prefill = min(self.prefill or _UNKNOWN_PREFILL, MOST_PREFILL)
        return Speeds(self.out.per_s, self.back.per_s, self.read.per_s, prefill)

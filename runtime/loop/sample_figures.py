"""What servers have had the model read and say in one run: figures, and what is left of their budgets. Pure."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class SampleFigures:
    """Of one server: requests, and tokens."""

    requests: int = 0
    prompt: int = 0
    computed: int = 0
    sampled: int = 0

    @property
    def total(self) -> int:
        """What counts against a budget. What had a cache counts too, so that it does not depend on others."""
        return self.prompt + self.sampled


@dataclass(slots=True)
class RunSamples:
    """Of all servers of a run, by their names. Event-loop thread only."""

    of: dict[str, SampleFigures] = field(default_factory=dict)
    _reserved: dict[str, int] = field(default_factory=dict)

    def left(self, server: str, budget: int) -> int:
        """What a server has left of a budget, less what others of its requests may still take."""
        return budget - self.of.get(server, SampleFigures()).total - self._reserved.get(server, 0)

    def reserve(self, server: str, tokens: int) -> None:
        """A request is about to take so many tokens at most."""
        self._reserved[server] = self._reserved.get(server, 0) + tokens

    def settle(self, server: str, reserved: int, prompt: int, computed: int, sampled: int) -> None:
        """It is over, and has taken these."""
        self._reserved[server] -= reserved
        figures = self.of.setdefault(server, SampleFigures())
        figures.requests += 1
        figures.prompt += prompt
        figures.computed += computed
        figures.sampled += sampled

    def dump(self) -> dict[str, Any]:
        """What is kept with the run's figures; nothing where nobody has asked."""
        return {"samples": {name: asdict(each) for name, each in self.of.items()}} if self.of else {}

    def restore(self, kept: dict[str, Any]) -> None:
        """Take what `dump` gave."""
        self.of = {name: SampleFigures(**each) for name, each in kept.get("samples", {}).items()}

"""What may come next in one round: by what holds it, and by what was said before. Engine thread only."""

from dataclasses import dataclass
from enum import StrEnum

from tenuto.pipelines.base import Constraint
from tenuto.runtime.engine.speculation.lookup import Lookup
from tenuto.runtime.engine.speculation.tally import Tally
from tenuto.sessions.tokens import Tokens

_MEMORY = 12.0
_PRIOR_WEIGHT = 3.0


class Origin(StrEnum):
    """Where a guess comes from."""

    GRAMMAR = "grammar"
    """Only this text may follow; whether the model spells it so is the guess."""
    LONG = "long_repetition"
    SHORT = "short_repetition"


@dataclass(frozen=True, slots=True)
class Guess:
    """Tokens that may come next, and how likely each is, if those before it are right."""

    tokens: tuple[int, ...]
    origin: Origin
    chance: float


class Guesses:
    """Of one round."""

    def __init__(self) -> None:
        self._lookup = Lookup()
        self._tallies = {origin: Tally(_MEMORY) for origin in Origin}

    def next(
        self, tokens: Tokens, constraint: Constraint | None, most: int, priors: dict[Origin, float]
    ) -> Guess | None:
        """What may come next, at most so many tokens; None where nothing is to be guessed."""
        repeated = self._lookup.guess(tokens, most)
        origin = Origin.LONG if self._lookup.is_sure else Origin.SHORT
        if constraint is not None and not (repeated and origin is Origin.LONG):
            forced = constraint.forced()[:most]
            if forced:
                repeated, origin = list(forced), Origin.GRAMMAR
        if not repeated:
            return None
        return Guess(tuple(repeated), origin, self._tallies[origin].chance(priors[origin], _PRIOR_WEIGHT))

    def verified(self, origin: Origin, right: int, *, ended: bool) -> None:
        """So many tokens of a guess were right, and where it `ended` there, the one behind them was wrong."""
        self._tallies[origin].add(right, ended=ended)

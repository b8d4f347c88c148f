"""Which rows of a step carry a draft, and what became of it. Engine thread only."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.runtime.engine.sequence import Sequence as TokenSequence
from tenuto.runtime.engine.speculation.guesses import Guess, Origin
from tenuto.runtime.engine.speculation.tally import Tally
from tenuto.runtime.engine.speculation.worth import LENGTHS, Offer, Worth

_MEMORY = 200.0


@dataclass(frozen=True, slots=True)
class Draft:
    """What is fed behind a sequence's tokens, to be verified."""

    tokens: tuple[int, ...]
    origin: Origin


class Speculation:
    """Of one engine, whose backend verifies at most `most` drafted tokens a step. `context` bounds a sequence."""

    def __init__(self, most: int, vocabulary: int, context: int) -> None:
        self._most, self._vocabulary, self._context = most, vocabulary, context
        self._worth = Worth()
        self._tallies = {origin: Tally(_MEMORY) for origin in Origin}
        self.drafted = self.accepted = 0

    def drafts(self, sampled: Sequence[TokenSequence], rows: int, room: int) -> dict[str, Draft]:
        """Drafts for some of these, after whose tokens one is sampled, in a step of so many rows.

        `room`: how many tokens the step may carry beside the rows' own.
        """
        room = min(room, self._most)
        if room <= 0:
            return {}
        priors = {origin: tally.chance() for origin, tally in self._tallies.items()}
        guesses: dict[str, Guess] = {}
        for sequence in sampled:
            guess = self._guess(sequence, min(room, LENGTHS[0]), priors)
            if guess is not None:
                guesses[sequence.id] = guess
        offers = [Offer(len(guess.tokens), guess.chance) for guess in guesses.values()]
        length = self._worth.length(rows, offers, room)
        if not length:
            return {}
        long = sorted((id for id in guesses if len(guesses[id].tokens) >= length), key=lambda id: -guesses[id].chance)
        return {id: Draft(guesses[id].tokens[:length], guesses[id].origin) for id in long[: room // length]}

    def _guess(self, sequence: TokenSequence, most: int, priors: dict[Origin, float]) -> Guess | None:
        opened = sequence.open
        assert opened is not None
        # One more is sampled behind the draft.
        left = min(opened.window, opened.round.max_tokens - opened.sampled, self._context - len(sequence.tokens)) - 1
        if left <= 0:
            return None
        guess = opened.guesses.next(sequence.tokens, opened.constraint, min(most, left), priors)
        if guess is None:
            return None
        # What ends a round costs nothing to wait for, and what stands for an image cannot be sampled.
        ends = opened.round.stop_tokens
        fit = next((at for at, token in enumerate(guess.tokens) if token in ends or token >= self._vocabulary), None)
        if fit is None:
            return guess
        return Guess(guess.tokens[:fit], guess.origin, guess.chance) if fit else None

    def verified(self, sequence: TokenSequence, draft: Draft, right: int, *, ended: bool) -> None:
        """So many tokens of a draft were right, and where it `ended` there, the one behind them was wrong."""
        self.drafted += len(draft.tokens)
        self.accepted += right
        self._tallies[draft.origin].add(right, ended=ended)
        if sequence.open is not None:
            sequence.open.guesses.verified(draft.origin, right, ended=ended)

    def stepped(self, rows: int, drafts: Sequence[Draft], seconds: float) -> None:
        """A step in which all rows decode has taken so long."""
        self._worth.observe(rows, len(drafts), sum(len(draft.tokens) for draft in drafts), seconds)

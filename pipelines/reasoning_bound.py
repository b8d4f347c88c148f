"""A bound on a round's reasoning: after so many tokens its closing marker is forced. Engine thread only."""

from collections.abc import Sequence
from enum import Enum, auto

from tenuto.pipelines.backend import Bitmask
from tenuto.pipelines.base import Constraint, ReasoningBound
from tenuto.pipelines.grammar_course import all_but, only
from tenuto.pipelines.reasoning_watch import ReasoningWatch
from tenuto.pipelines.vocabulary import Vocabulary

_MOST_TO_FINISH = 3
"""So many tokens may follow to finish a character."""


class _State(Enum):
    FREE = auto()
    CLOSING = auto()
    """What closes the reasoning is forced."""
    LEADING = auto()
    """It is closed; what leads on to the answer is forced."""
    LED = auto()
    """One more token, and none that would lead back."""


class BoundedReasoning:
    """Implements Constraint over another one, whose turns go on as if the model had closed its reasoning by itself.

    A function of the tokens alone, so that a round that goes on elsewhere is held to the same. Where the other
    constraint does not allow the marker, the model goes on until it does.
    """

    def __init__(self, bound: ReasoningBound, held: Constraint, vocabulary: Vocabulary) -> None:
        self._bound, self._held = bound, held
        self._size = len(vocabulary.pieces)
        self._watch = ReasoningWatch(bound.opener, bound.closer, vocabulary, begun=bound.begun)
        self._state, self._forced = _State.FREE, 0
        self._look()

    def mask(self) -> Bitmask | None:
        """The tokens allowed next, valid until the next call; None where all are."""
        allowed = self._held.mask()
        match self._state:
            case _State.FREE:
                return allowed
            case _State.CLOSING | _State.LEADING:
                wanted = only([self._due[self._forced]], self._size)
            case _State.LED:
                wanted = all_but(self._bound.back, self._size)
        if allowed is None:
            return wanted
        both: Bitmask = allowed & wanted[: len(allowed)]
        return both if both.any() else allowed

    def accept(self, token: int) -> None:
        """Go on by a token that has been sampled."""
        self._held.accept(token)
        self._watch.push(token)
        match self._state:
            case _State.CLOSING if token == self._due[self._forced]:
                self._go_on(_State.LEADING)
            case _State.LEADING if token == self._due[self._forced]:
                self._go_on(_State.LED if self._bound.back else _State.FREE)
            case _:  # also where the other constraint did not allow what is due
                self._state = _State.FREE
        self._look()

    def forced(self) -> Sequence[int]:
        """What closes the reasoning and leads on, or what the other constraint leaves no choice of."""
        return self._held.forced() if self._state in (_State.FREE, _State.LED) else self._due[self._forced :]

    @property
    def _due(self) -> tuple[int, ...]:
        return self._bound.closing if self._state is _State.CLOSING else self._bound.leading

    def _go_on(self, after: _State) -> None:
        self._forced += 1
        if self._forced == len(self._due):
            self._state, self._forced = after, 0
        if self._state is _State.LEADING and not self._bound.leading:
            self._state = _State.FREE

    def _look(self) -> None:
        """Close where the bound is reached, and no character is half written."""
        watch = self._watch
        over = watch.tokens - self._bound.tokens
        if (
            self._state is _State.FREE
            and watch.inside
            and over >= (_MOST_TO_FINISH if watch.is_within_character else 0)
        ):
            self._state, self._forced = _State.CLOSING, 0

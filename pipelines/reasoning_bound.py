"""A bound on a round's reasoning: after so many tokens its closing marker is forced. Engine thread only."""

import codecs
from enum import Enum, auto

from tenuto.pipelines.backend import Bitmask
from tenuto.pipelines.base import Constraint, ReasoningBound
from tenuto.pipelines.grammar_course import only
from tenuto.pipelines.vocabulary import Vocabulary

_MOST_TO_FINISH = 3
"""So many tokens may follow to finish a character."""


class _State(Enum):
    START = auto()  # nothing but white space so far
    OUTSIDE = auto()
    INSIDE = auto()
    CLOSING = auto()


class BoundedReasoning:
    """Implements Constraint over another one, whose turns go on as if the model had closed its reasoning by itself.

    A function of the tokens alone, so that a round that goes on elsewhere is held to the same. Where the other
    constraint does not allow the marker, the model goes on until it does.
    """

    def __init__(self, bound: ReasoningBound, held: Constraint, vocabulary: Vocabulary) -> None:
        self._bound, self._held, self._pieces = bound, held, vocabulary.pieces
        self._size = len(vocabulary.pieces)
        self._state = _State.INSIDE if bound.begun else _State.START
        self._left = bound.tokens
        self._forced = 0
        self._tail = b""
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._watch_bound()

    def mask(self) -> Bitmask | None:
        """The tokens allowed next, valid until the next call; None where all are."""
        allowed = self._held.mask()
        if self._state is not _State.CLOSING:
            return allowed
        forced = only([self._bound.closing[self._forced]], self._size)
        if allowed is None:
            return forced
        both: Bitmask = allowed & forced[: len(allowed)]
        return both if both.any() else allowed

    def accept(self, token: int) -> None:
        """Go on by a token that has been sampled."""
        self._held.accept(token)
        self._tail = (self._tail + self._pieces[token])[-256:]
        match self._state:
            case _State.START | _State.OUTSIDE:
                self._outside(token)
            case _State.INSIDE:
                self._inside(token)
            case _State.CLOSING:
                self._close(token)

    def _outside(self, token: int) -> None:
        opener = self._bound.opener
        if token == opener:
            self._enter()
        elif self._state is _State.START:
            begun = self._tail.lstrip()
            if isinstance(opener, str) and begun.startswith(opener.encode()):
                self._enter()
            elif begun and not (isinstance(opener, str) and opener.encode().startswith(begun)):
                self._state = _State.OUTSIDE

    def _enter(self) -> None:
        self._state, self._tail = _State.INSIDE, b""
        self._characters.reset()
        self._watch_bound()

    def _inside(self, token: int) -> None:
        self._left -= 1
        closer = self._bound.closer
        if token == closer or (isinstance(closer, str) and closer.encode() in self._tail):
            self._state = _State.OUTSIDE
            return
        self._characters.decode(self._pieces[token])
        self._watch_bound()

    def _watch_bound(self) -> None:
        """Close where the bound is reached, and no character is half written."""
        pending, _ = self._characters.getstate()
        if self._state is _State.INSIDE and self._left <= (-_MOST_TO_FINISH if pending else 0):
            self._state, self._forced = _State.CLOSING, 0

    def _close(self, token: int) -> None:
        if token != self._bound.closing[self._forced]:  # the other constraint did not allow it
            self._state = _State.INSIDE
            self._inside(token)
            return
        self._forced += 1
        if self._forced == len(self._bound.closing):
            self._state = _State.OUTSIDE

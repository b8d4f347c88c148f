"""Whose image is fed next: in a step of its own, in turn with everybody else's tokens. Engine thread only.

Embeddings of images are made in another thread, and nobody's decoding waits for them.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tenuto.errors import GenerationFailed
from tenuto.pipelines.images import Embeddings, ImageEncoder
from tenuto.runtime.engine.sequence import Sequence as TokenSequence

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ImageReady:
    """Embeddings are there that somebody has waited for."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A sequence, and the embeddings of the piece that it is to be fed, or why there are none."""

    sequence: TokenSequence
    made: Embeddings | Exception


class ImageTurns:
    """Asks for embeddings and gives out turns. `ready` may be called by another thread."""

    def __init__(self, encoder: ImageEncoder | None, ready: Callable[[], None]) -> None:
        self._encoder, self._ready = encoder, ready
        self._was_last = False

    def choose(self, waiting: Sequence[TokenSequence], *, others: bool) -> Turn | None:
        """The turn of the first of these whose embeddings are there; None where nobody's are, or `others` are due."""
        due = bool(waiting) and not (self._was_last and others)
        turn = self._first(waiting) if due else None
        self._was_last = turn is not None
        return turn

    def _first(self, waiting: Sequence[TokenSequence]) -> Turn | None:
        for sequence in waiting:
            placed = sequence.next_piece
            assert placed is not None, "it waits for one"
            try:
                if self._encoder is None:
                    raise GenerationFailed("this model reads no images")
                made = self._encoder.embeddings(placed.piece, self._ready)
            except Exception as error:  # what an image does to the library is its own sequence's affair
                logger.exception("an image of sequence %s cannot be read", sequence.id)
                return Turn(sequence, error)
            if made is not None:
                return Turn(sequence, made)
        return None

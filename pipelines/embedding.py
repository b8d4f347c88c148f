"""What a model that embeds is: an encoder of texts, and an embedder, with the plain facts that pass through them.

Such a model makes a vector, or a score, of a whole text at once: it has no slots, keeps no cache and says nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import ReferenceType

import numpy as np
from numpy.typing import NDArray

from tenuto.pipelines.backend import BackendInfo

TextTokens = NDArray[np.int32]
"""A text as a model reads it, with the tokens that it wants around it."""
Vectors = NDArray[np.float32]
"""A row for each text."""


@dataclass(frozen=True, slots=True)
class EncoderInfo:
    """Facts about a model's tokens."""

    model: str
    vocabulary: int


class TextEncoder(Protocol):
    """Texts to the tokens that a model embeds: immutable, without weights, safe for any thread.

    What a text says never becomes control tokens.
    """

    @property
    def info(self) -> EncoderInfo:
        """Facts that do not change."""

    def encode(self, text: str) -> TextTokens:
        """A text. It has no tokens where it is empty and the model wants none around it."""

    def pair(self, query: str, document: str) -> TextTokens:
        """A question and a text that may answer it, as a model that ranks wants them."""

    def cut(self, tokens: TextTokens, most: int) -> TextTokens:
        """No more than `most` of a text's tokens: its beginning, and what the model wants at its end."""


@dataclass(frozen=True, slots=True)
class EmbedderInfo:
    """Facts about a model that embeds. Its `backend` has no slots: `context` is what one text may hold."""

    backend: BackendInfo
    width: int
    """How many numbers a vector has."""
    texts: int
    """How many a step takes at most; together they have at most `batch_tokens`, unless one has more by itself."""
    ranks: bool = False
    """Whether its vectors are scores of pairs, of which the first number counts."""


class Embedder(Protocol):
    """The weights. Engine thread only, but for construction."""

    @property
    def info(self) -> EmbedderInfo:
        """Facts that do not change."""

    def embed(self, texts: Sequence[TextTokens]) -> Vectors:
        """One step: vectors of length 1, or scores as they are. What is not finite is told as it is.

        Raises:
            ValueError: the step is invalid.
            GenerationFailed: the step failed.
        """

    def close(self) -> None:
        """Free all."""


@dataclass(frozen=True, slots=True)
class EmbeddingPipeline:
    """One backend's implementation of a model that embeds."""

    encoder: TextEncoder
    embedder: Embedder
    trial: str = "not needed"
    """In words, how it went when the model was opened in a process of its own first."""
    weights: ReferenceType[Any] | None = None
    """Leads to the weights for as long as somebody holds them; None where there are none to speak of."""


def check_texts(texts: Sequence[TextTokens], info: EmbedderInfo, vocabulary: int) -> None:
    """Hold a step to what every embedder takes, before anything is computed.

    Raises:
        ValueError: the step is invalid.
    """
    if not 1 <= len(texts) <= info.texts:
        raise ValueError(f"a step takes 1 to {info.texts} texts")
    if len(texts) > 1 and sum(map(len, texts)) > info.backend.batch_tokens:
        raise ValueError(f"a step of several texts takes up to {info.backend.batch_tokens} tokens")
    for text in texts:
        if not 1 <= len(text) <= info.backend.context:
            raise ValueError(f"a text has 1 to {info.backend.context} tokens")
        if text.min() < 0 or text.max() >= vocabulary:
            raise ValueError(f"each token is in the vocabulary of {vocabulary}")


def normalised(vectors: Vectors) -> Vectors:
    """Each row with length 1; zeros stay zeros."""
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1, keepdims=True))
    scaled: Vectors = (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    return scaled

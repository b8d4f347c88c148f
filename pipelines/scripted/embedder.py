"""Vectors and scores of texts by their bytes alone: the same everywhere, with steps that can be slow or fail."""

import time
from collections.abc import Sequence

import numpy as np

from tenuto.errors import GenerationFailed
from tenuto.pipelines.backend import BackendInfo, Weights
from tenuto.pipelines.embedding import EmbedderInfo, EncoderInfo, TextTokens, Vectors, check_texts, normalised
from tenuto.pipelines.scripted.script import Embeds, Script
from tenuto.pipelines.scripted.tokenizer import END, PIECES

_BYTES = 256


class ScriptedTextEncoder:
    """A text is its bytes and an end, a pair is both texts with their ends."""

    def __init__(self, model: str) -> None:
        self._info = EncoderInfo(model, len(PIECES))

    @property
    def info(self) -> EncoderInfo:
        """Facts that do not change."""
        return self._info

    def encode(self, text: str) -> TextTokens:
        """A text."""
        return np.array([*text.encode(errors="replace"), END], np.int32)

    def pair(self, query: str, document: str) -> TextTokens:
        """A question and a text."""
        return np.concatenate([self.encode(query), self.encode(document)])

    def cut(self, tokens: TextTokens, most: int) -> TextTokens:
        """No more than `most` of a text's tokens: its beginning and its end."""
        return tokens if len(tokens) <= most else np.concatenate([tokens[: most - 1], tokens[-1:]])


class ScriptedEmbedder:
    """A model that embeds, or ranks, as its script says."""

    def __init__(self, script: Script) -> None:
        embeds = script.embeds or Embeds()
        self._delay_s, self._fails = embeds.delay_ms / 1000, embeds.fail_contains
        facts = BackendInfo(
            context=script.cells,
            slots=0,
            cells=0,
            batch_tokens=script.batch_tokens,
            bytes_per_token=0,
            description="a script",
            runs_on="a script",
            weights=Weights("script", "script"),
        )
        self._info = EmbedderInfo(facts, 1 if embeds.ranks else embeds.width, embeds.texts, embeds.ranks)

    @property
    def info(self) -> EmbedderInfo:
        """Facts that do not change."""
        return self._info

    def embed(self, texts: Sequence[TextTokens]) -> Vectors:
        """One step.

        Raises:
            ValueError: the step is invalid.
            GenerationFailed: the script wants it to fail.
        """
        check_texts(texts, self._info, len(PIECES))
        if self._delay_s:
            time.sleep(self._delay_s)
        if self._fails is not None and any(self._fails.encode() in _bytes(text) for text in texts):
            raise GenerationFailed("the script made this step fail")
        if self._info.ranks:
            return np.array([[_score(text)] for text in texts], np.float32)
        return normalised(np.stack([self._vector(text) for text in texts]))

    def close(self) -> None:
        """Nothing to free."""

    def _vector(self, text: TextTokens) -> Vectors:
        numbers = np.arange(1, self._info.width + 1)
        mixed = (text[:, None] * 31 + 7) * (numbers * 17 + 3) % 101 - 50
        vector: Vectors = mixed.sum(axis=0).astype(np.float32)
        return vector


def _bytes(text: TextTokens) -> bytes:
    return text[text < _BYTES].astype(np.uint8).tobytes()


def _score(pair: TextTokens) -> float:
    end = int(np.flatnonzero(pair == END)[0]) if END in pair else len(pair)
    query, words = set(_bytes(pair[:end]).split()), _bytes(pair[end:]).split()
    return sum(word in query for word in words) / len(words) if words else 0.0

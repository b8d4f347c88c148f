"""Watches a turn for a text that opens calls, where no token of the vocabulary shows it. Engine thread only.

Most steps cost a search in a few bytes. Only while such a text may be about to be finished is there anything to mask.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

from cachetools import LRUCache, cachedmethod

from tenuto.pipelines.formats.alphabet import Alphabet
from tenuto.pipelines.formats.base import TextOpeners
from tenuto.pipelines.vocabulary import Vocabulary


class Pieces:
    """The entries of a vocabulary in the order of their bytes, in which they are put when first asked for."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    @cached_property
    def _ordered(self) -> tuple[list[bytes], list[int]]:
        entries = enumerate(self._vocabulary.pieces)
        known = sorted((piece, token) for token, piece in entries if token not in self._vocabulary.reserved)
        return [piece for piece, _ in known], [token for _, token in known]

    @cached_property
    def _all(self) -> bytes:
        return b"\xff".join(self._ordered[0])  # a byte that no text has

    def beginning_with(self, text: bytes) -> Sequence[int]:
        """The tokens that begin with a text."""
        pieces, tokens = self._ordered
        return tokens[bisect_left(pieces, text) : bisect_left(pieces, text + b"\xff")]

    def holding(self, text: bytes) -> Sequence[int]:
        """The tokens that have a text in them."""
        if text not in self._all:
            return ()
        return [token for piece, token in zip(*self._ordered, strict=True) if text in piece]


class Openers:
    """What is looked for, as one vocabulary has it. Immutable."""

    def __init__(self, vocabulary: Vocabulary, pieces: Pieces, wanted: TextOpeners) -> None:
        self._alphabet = Alphabet(vocabulary, [*wanted.texts, *wanted.heads, wanted.think, wanted.thought])
        self._vocabulary, self._pieces = vocabulary, pieces
        self.wanted = wanted
        self.texts, self.heads = (tuple(map(self._bytes, texts)) for texts in (wanted.texts, wanted.heads))
        self.think, self.thought = self._bytes(wanted.think.strip()), self._bytes(wanted.thought.strip())
        self._completing: LRUCache[Any, frozenset[int]] = LRUCache(1024)
        self._looking = Lock()

    def _bytes(self, text: str) -> bytes:
        return self._encoded(self._alphabet.stream(text.lstrip()))

    @staticmethod
    def _encoded(stream: str) -> bytes:
        return stream.encode("utf-8", "surrogatepass")

    def piece(self, token: int) -> bytes:
        """What a token adds to the stream."""
        sign = self._alphabet.sign(token)
        if sign is not None:
            return self._encoded(sign)
        return b"" if token in self._vocabulary.reserved else self._vocabulary.pieces[token]

    def tokens(self, stream: bytes, tokenize: Callable[[bytes], list[int]]) -> list[int]:
        """Tokens that write a stretch of the stream."""
        found: list[int] = []
        rest = b""
        place = 0
        while place < len(stream):
            token = self._alphabet.token_of(stream[place : place + 3])
            if token is None:
                rest += stream[place : place + 1]
                place += 1
                continue
            found += [*tokenize(rest), token] if rest else [token]
            rest, place = b"", place + 3
        return found + (tokenize(rest) if rest else [])

    @cachedmethod(lambda self: self._completing, lock=lambda self: self._looking)
    def completing(self, rest: bytes) -> frozenset[int]:
        """The tokens that write the rest of an opener, and perhaps more."""
        token = self._alphabet.token_of(rest[:3])
        if token is not None:
            return frozenset({token}) if len(rest) == 3 else frozenset()
        return frozenset(self._pieces.beginning_with(rest))

    @cached_property
    def holding(self) -> frozenset[int]:
        """The tokens with a whole opener in them."""
        return self._holding(self.texts)

    @cached_property
    def holding_first(self) -> frozenset[int]:
        """The same of those that count at the beginning alone."""
        return self._holding(self.heads)

    def _holding(self, texts: Sequence[bytes]) -> frozenset[int]:
        return frozenset(token for text in texts for token in self._pieces.holding(text))


class Watch:
    """One turn, as far as it matters."""

    def __init__(self, openers: Openers) -> None:
        self._openers = openers
        self._longest = max(map(len, openers.texts), default=1)
        self._seen = b""
        self._start = True
        """Nothing but white space has come, and what may become the beginning of something that counts there."""
        self._reasons = openers.wanted.begun
        self.begun: list[tuple[bytes, int]] = []
        """The openers with whose beginning the turn ends so far, and how many of their bytes have come."""

    @property
    def is_first(self) -> bool:
        """Whether what counts at the beginning alone may come."""
        return self._start and not self._reasons

    def push(self, token: int) -> bytes | None:
        """Read on; gives what has come from an opener's first byte on, once it is whole."""
        self._seen += self._openers.piece(token)
        while self._turn_reasoning():
            pass
        self.begun = []
        if self._reasons:
            self._seen = self._seen[-len(self._openers.thought) :]
            return None
        return (self._first() if self._start else None) or self._anywhere()

    def again(self) -> None:
        """The calls that had begun are over."""
        self._seen, self._start, self.begun = b"", False, []

    def _turn_reasoning(self) -> bool:
        """Go over the next marker of reasoning that has come, if there is one."""
        openers = self._openers
        if not openers.think:
            return False
        if self._reasons:
            _, marker, rest = self._seen.partition(openers.thought)
            if marker:
                self._seen, self._reasons, self._start = rest, False, True
            return bool(marker)
        if self._start and self._seen.lstrip().startswith(openers.think):
            self._seen = self._seen.lstrip()[len(openers.think) :]
            self._reasons = True
        return self._reasons

    def _first(self) -> bytes | None:
        begun = self._seen.lstrip()
        if not begun:
            return None
        if begun.startswith(self._openers.heads):
            return begun
        self.begun = [(text, len(begun)) for text in self._openers.heads if text.startswith(begun)]
        self._start = bool(self.begun) or self._openers.think.startswith(begun)
        return None

    def _anywhere(self) -> bytes | None:
        texts = self._openers.texts
        found = [at for text in texts if (at := self._seen.find(text)) >= 0]
        if found:
            return self._seen[min(found) :]
        if not self._start:
            self._seen = self._seen[-self._longest :]
        for text in texts:
            self.begun += [(text, size) for size in range(1, len(text)) if self._seen.endswith(text[:size])]
        return None

"""The course of a grammar in one round: when it begins to hold, what it allows, where it ends. Engine thread only."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import numpy as np
from llguidance import LLMatcher
from llguidance.numpy import fill_next_token_bitmask

from tenuto.errors import GenerationFailed
from tenuto.pipelines.backend import Bitmask
from tenuto.pipelines.base import GrammarSource
from tenuto.pipelines.text_openers import Openers, Watch

_MARKER = re.compile(rb"\xff\[(\d+)\]")
"""How llguidance writes a token that is no text."""
_MARKERS = re.compile(rb"(\xff\[\d+\])")


_MOST_FORCED = 4096
"""So many bytes of what alone may follow are spelled at a time: a schema may hold a constant of megabytes."""
_MOST_TOLD = 64


class GrammarConstraint:
    """Implements Constraint.

    Three states: free (no matcher yet, or none any more), held (a matcher is at work), and over, where nothing is left
    but to end the turn: after a grammar without an opener, and after one that comes once.
    """

    def __init__(
        self,
        source: GrammarSource,
        start: LLMatcher | None,
        stops: frozenset[int],
        vocabulary_size: int,
        openers: Openers | None = None,
        tokenize: Callable[[bytes], list[int]] = list,
    ) -> None:
        self._source = source
        self._start = start
        self._stops = stops
        self._size = vocabulary_size
        self._over = False
        self._from_first = source.opener is None and source.texts is None
        self._matcher = start.deep_copy() if start is not None and self._from_first else None
        self._openers, self._tokenize = openers, tokenize
        self._watch = None if openers is None else Watch(openers)
        self._free = all_but(source.banned, vocabulary_size) if source.banned else None
        self._only_stops = only(stops, vocabulary_size)
        self._spelled: deque[int] = deque()
        """What is left of the text that was spelled last, as long as the model spells it so."""
        # llguidance writes whole rows of its own width; the model's logits may be wider.
        self._row = np.zeros((1, _words(vocabulary_size)), dtype=np.int32)

    def mask(self) -> Bitmask | None:
        """The tokens allowed next, valid until the next call; None where all are.

        Raises:
            GenerationFailed: the grammar has come to a place where nothing may follow.
        """
        if self._over:
            return self._only_stops
        if self._matcher is None:
            return self._free if self._watch is None else self._outside(self._watch)
        allowed = self._allowed(self._matcher)
        if self._matcher.is_accepting():
            allowed |= self._only_stops
        if self._free is not None:
            allowed &= self._free
        if not allowed.any():
            raise GenerationFailed("the grammar allows no token here")
        return allowed

    def accept(self, token: int) -> None:
        """Go on by a token that has been sampled.

        Raises:
            GenerationFailed: the grammar does not allow it.
        """
        if self._spelled and self._spelled.popleft() != token:
            self._spelled.clear()
        if self._matcher is None:
            if not self._over:
                self._look_for_opener(token)
            return
        if token in self._stops and self._matcher.is_accepting():
            self._end()
            return
        self._matcher.consume_token(token)
        self._check(self._matcher)
        if self._matcher.is_stopped():
            self._end()

    def forced(self) -> Sequence[int]:
        """A guess at how the model spells what alone may follow; empty where more than one thing may."""
        if self._matcher is None:
            return ()
        if not self._spelled:
            # Asked of a copy: what it fails of would fail the round.
            text = self._matcher.deep_copy().compute_ff_bytes()[:_MOST_FORCED]
            for piece in _MARKERS.split(text):
                marker = _MARKER.fullmatch(piece)
                self._spelled.extend(self._tokenize(piece) if marker is None else [int(marker[1])])
        return list(islice(self._spelled, _MOST_TOLD))

    def _look_for_opener(self, token: int) -> None:
        begun = None if self._watch is None else self._watch.push(token)
        if self._start is None:
            return
        if token == self._source.opener:
            self._matcher = self._start.deep_copy()
        elif begun is not None and self._openers is not None:
            self._matcher = self._after(begun)
            if self._matcher is not None and self._matcher.is_stopped():
                self._end()

    def _after(self, begun: bytes) -> LLMatcher | None:
        """The grammar after its first bytes; None where they do not fit it, as may be with what was not masked."""
        assert self._start is not None
        assert self._openers is not None
        matcher = self._start.deep_copy()
        tokens = self._openers.tokens(begun, self._tokenize)
        return matcher if matcher.try_consume_tokens(tokens) == len(tokens) else None

    def _outside(self, watch: Watch) -> Bitmask | None:
        """Outside of calls: no token may finish an opener, but as the grammar goes on with it."""
        assert self._openers is not None
        completing = set(self._openers.holding) | (self._openers.holding_first if watch.is_first else frozenset())
        for text, size in watch.begun:
            completing |= self._openers.completing(text[size:])
        if not completing:
            return self._free
        mask = all_but(self._source.banned | completing, self._size)
        if self._start is not None:
            for text, size in watch.begun:
                matcher = self._after(text[:size])
                if matcher is not None:
                    mask |= only(self._openers.completing(text[size:]), self._size) & self._allowed(matcher)
        return mask

    def _allowed(self, matcher: LLMatcher) -> Bitmask:
        fill_next_token_bitmask(matcher, self._row)
        self._check(matcher)
        allowed: Bitmask = self._row.view(np.uint32)[0]
        return allowed

    def _end(self) -> None:
        self._matcher = None
        self._over = self._from_first or self._source.once
        if self._watch is not None:
            self._watch.again()

    def _check(self, matcher: LLMatcher) -> None:
        if matcher.is_error():
            raise GenerationFailed(f"the grammar failed: {first_line(matcher.get_error())}")


def first_line(error: str) -> str:
    """What an error says, without its place in the grammar."""
    return error.strip().partition("\n")[0]


def _words(size: int) -> int:
    return (size + 31) // 32


def only(tokens: Iterable[int], size: int) -> Bitmask:
    """A mask that allows these tokens."""
    mask = np.zeros(_words(size), dtype=np.uint32)
    for token in tokens:
        mask[token // 32] |= np.uint32(1 << (token % 32))
    return mask


def all_but(tokens: Iterable[int], size: int) -> Bitmask:
    """A mask that allows all but these tokens."""
    return ~only(tokens, size)

"""The course of a grammar in one round: when it begins to hold, what it allows, where it ends. Engine thread only."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np
from llguidance import LLMatcher
from llguidance.numpy import fill_next_token_bitmask

from tenuto.errors import GenerationFailed
from tenuto.pipelines.backend import Bitmask
from tenuto.pipelines.base import GrammarSource
from tenuto.pipelines.text_openers import Openers, Watch
from tenuto.pipelines.vocabulary import Vocabulary

_MOST_FORCED = 16
"""So many tokens of what alone may follow are looked for at a time: a schema may hold a constant of megabytes, or stand
for one in a few bytes."""
_MOST_BEGINNINGS = 64
"""Where more tokens are allowed, they are not taken for the beginnings of one text."""


class GrammarConstraint:
    """Implements Constraint.

    Three states: free (no matcher yet, or none any more), held (a matcher is at work), and over, where nothing is left
    but to end the turn: after a grammar without an opener, and after one that comes once.
    """

    def __init__(
        self,
        source: GrammarSource,
        start: LLMatcher | None,
        vocabulary: Vocabulary,
        vocabulary_size: int,
        openers: Openers | None = None,
        tokenize: Callable[[bytes], list[int]] = list,
    ) -> None:
        self._source = source
        self._start = start
        self._vocabulary, self._stops = vocabulary, vocabulary.stops
        self._size = vocabulary_size
        self._over = False
        self._from_first = source.opener is None and source.texts is None
        self._matcher = start.deep_copy() if start is not None and self._from_first else None
        self._openers, self._tokenize = openers, tokenize
        self._watch = None if openers is None else Watch(openers)
        self._free = all_but(source.banned, vocabulary_size) if source.banned else None
        self._only_stops = only(self._stops, vocabulary_size)
        self._spelled: deque[int] = deque()
        """What is left of the text that was spelled last, as long as the model spells it so."""
        self._ahead = _MOST_FORCED
        # llguidance writes whole rows of its own width; the model's logits may be wider.
        self._row = np.zeros((1, _words(vocabulary_size)), dtype=np.int32)
        self._row_ahead = self._row.copy()
        self._held: Bitmask | None = None
        """What the matcher allows next, as far as that was asked."""

    def mask(self) -> Bitmask | None:
        """The tokens allowed next, valid until the next call; None where all are.

        Raises:
            GenerationFailed: the grammar has come to a place where nothing may follow.
        """
        if self._over:
            return self._only_stops
        if self._matcher is None:
            return self._free if self._watch is None else self._outside(self._watch)
        if self._held is None:
            self._held = self._inside(self._matcher)
        return self._held

    def accept(self, token: int) -> None:
        """Go on by a token that has been sampled.

        Raises:
            GenerationFailed: the grammar does not allow it.
        """
        self._held = None
        self._compare(token)
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
            self._spelled.extend(self._spelling(self._only_way(self._matcher)))
        return list(self._spelled)

    def _compare(self, token: int) -> None:
        """See whether the model spells as was guessed: the less it does, the less is looked for."""
        if not self._spelled:
            return
        if self._spelled.popleft() != token:
            self._spelled.clear()
            self._ahead = max(self._ahead // 2, 1)
        elif not self._spelled:
            self._ahead = min(self._ahead * 2, _MOST_FORCED)

    def _only_way(self, matcher: LLMatcher) -> list[int]:
        """Tokens of what alone may follow, the longest ones.

        The library tells the whole text at once (`compute_ff_bytes`): that takes seconds where it is long, and fails
        all copies of the matcher where it is longer.
        """
        way: list[int] = []
        allowed, copy = self.mask(), None
        while allowed is not None and (token := self._longest(allowed)) is not None:
            copy = copy or matcher.deep_copy()  # which takes the longer, the more has been said
            if not copy.consume_token(token):
                break
            way.append(token)
            if len(way) == self._ahead or copy.is_stopped() or copy.is_accepting():
                break
            fill_next_token_bitmask(copy, self._row_ahead)
            allowed = None if copy.is_error() else self._row_ahead.view(np.uint32)[0]
        return way

    def _longest(self, allowed: Bitmask) -> int | None:
        """The token that all others begin; None where there is none."""
        words = np.flatnonzero(allowed)
        if words.size > _MOST_BEGINNINGS:
            return None
        bits = np.unpackbits(allowed[words, None].view(np.uint8), axis=1, bitorder="little")
        at, places = np.nonzero(bits)
        tokens: list[int] = (32 * words[at] + places).tolist()
        pieces = self._vocabulary.pieces
        if not tokens or len(tokens) > _MOST_BEGINNINGS or tokens[-1] >= len(pieces):
            return None
        longest = max(tokens, key=lambda token: len(pieces[token]))
        return longest if all(pieces[longest].startswith(pieces[token]) for token in tokens) else None

    def _spelling(self, way: Sequence[int]) -> Iterator[int]:
        """How the tokenizer writes the text of these tokens."""
        pieces, reserved = self._vocabulary.pieces, self._vocabulary.reserved
        for is_reserved, tokens in groupby(way, key=reserved.__contains__):
            together = list(tokens)
            yield from together if is_reserved else self._tokenize(b"".join(pieces[token] for token in together))

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

    def _inside(self, matcher: LLMatcher) -> Bitmask:
        allowed = self._allowed(matcher)
        if matcher.is_accepting():
            allowed |= self._only_stops
        if self._free is not None:
            allowed &= self._free
        if not allowed.any():
            raise GenerationFailed("the grammar allows no token here")
        return allowed

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

"""Conversations to batches of tokens: rows of about one length, and a weight for every token that is to be said."""

import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from train_embedded_model.conversations import Conversation, assignments, conversation, errands
from train_embedded_model.drills import choosing, copying, practising
from train_embedded_model.pointers import Finder, Pointer
from train_embedded_model.tokens import Encoder

FIRST_WEIGHT = 4.0
"""Of a token that chooses: the first of an answer or of an argument, an operator. The others mostly go on copying."""
NAME_WEIGHT = 8.0
"""Of a token that chooses the tool."""
BOXED, BOXED_ERRANDS = 0.4, 0.7
"""The shares of conversations and of errands over the tools of a server as it comes out of the box, besides those that
happen to be: what a newcomer asks first has to be right most often."""
_PRACTICE, _ASSIGNMENTS, _ERRANDS = 0.12, 0.12, 0.4
"""Shares of the rows, each of what the ones before it have left; the rest are whole conversations."""
_LENGTHS = (*range(128, 1025, 128), 1280, 1536, 2048, 3072, 4096)
"""Every shape of a batch is compiled once, so there are few."""
_POOL = 192
SHORT = 1024
"""Tokens of the longest conversation of most pools: long ones cost twice as much time a token."""
_LONG_EVERY = 16
_COPYING_POOLS, _CHOOSING_POOLS, _EASY_POOLS = 60, 200, 80
"""How many pools it takes until drills of copying, those of choosing and short conversations are rare."""


@dataclass(frozen=True, slots=True)
class Row:
    """An encoded conversation."""

    ids: list[int]
    weights: list[float]
    """Of each token as a target; 0 where it is not to be said."""
    pointers: list[Pointer]


@dataclass(frozen=True, slots=True)
class Batch:
    """ids, targets: [rows, time]; weights alike, 0 where nothing is to be said.

    places: [rows, pointers], filled up with 0; sources: [rows, pointers, time], whether to look there.
    """

    ids: NDArray[np.int64]
    targets: NDArray[np.int64]
    weights: NDArray[np.float32]
    places: NDArray[np.int64]
    sources: NDArray[np.bool_]


class Weigher:
    """Gives tokens their weights."""

    def __init__(self, encoder: Encoder) -> None:
        find = encoder.token
        self._finder = Finder(encoder)
        self._before_name, self._after_name = find('{"name": "'), find('", "arguments": ')
        self._before_choice = {find(text) for text in ('{"', '": "', '", "', '": ', ', "')}
        self._underscore, self._blank = find("_"), find("Ġ")
        self._operators = {find(sign) for sign in "+-*/%"}

    def row(self, ids: list[int], trained: list[bool]) -> Row:
        """Weights of a conversation's tokens."""
        weights = [0.0] * len(ids)
        names = False
        for place, said in enumerate(trained):
            if said:
                before = ids[place - 1]
                names = before == self._before_name or (names and ids[place] != self._after_name)
                if names and before in (self._before_name, self._underscore):
                    weights[place] = NAME_WEIGHT
                else:
                    operator = before == self._blank and ids[place] in self._operators
                    chooses = operator or not trained[place - 1] or before in self._before_choice
                    weights[place] = FIRST_WEIGHT if chooses else 1.0
        return Row(ids, weights, list(self._finder.pointers(ids, trained)))


@dataclass(frozen=True, slots=True)
class Recipe:
    """Makes pools of batches; a pool depends on the recipe and its turn alone, so any process can make it.

    longest: tokens of a conversation in every so many pools from the number `long_from` on; the others have those up to
    SHORT. rank, ranks: which of the processes that train the pool is for; one turn gives a pool to each of them.
    """

    tokenizer: Path
    seed: int
    batch_tokens: int
    longest: int
    long_from: int
    rank: int = 0
    ranks: int = 1

    def pool(self, turn: int) -> list[Batch]:
        """The batches of a pool, the longest rows first."""
        first = turn * self.ranks
        long = first >= self.long_from and turn % _LONG_EVERY == 0
        longest = self.longest if long else min(self.longest, SHORT)
        rows = _rows(self.tokenizer, self.seed).pool(first + self.rank, longest)
        return batches(rows, self.batch_tokens)


@lru_cache(maxsize=1)
def _rows(tokenizer: Path, seed: int) -> "Rows":
    return Rows(Encoder(tokenizer), seed)


class Rows:
    """Makes pools of rows; a pool depends on the seed, its number and the longest row that it may have."""

    def __init__(self, encoder: Encoder, seed: int) -> None:
        self._encoder, self._seed, self._weigher = encoder, seed, Weigher(encoder)

    def pool(self, number: int, longest: int) -> list[Row]:
        """A pool of conversations of at most so many tokens."""
        rng = random.Random(f"{self._seed}/{number}")
        made: list[Row] = []
        while len(made) < _POOL:
            ids, trained = self._encoder.encode(_any_conversation(rng, longest, number))
            if len(ids) <= longest + 1:
                made.append(self._weigher.row(ids, trained))
        return made


def _any_conversation(rng: random.Random, longest: int, pool: int) -> Conversation:
    """At first drills of copying and of choosing, and short conversations with few tools; later all kinds."""
    if rng.random() < max(0.02, 0.6 * (1 - pool / _COPYING_POOLS)):
        return copying(rng)
    if rng.random() < max(0.14, 0.6 * (1 - pool / _CHOOSING_POOLS)):
        return choosing(rng, most_tools=2 + pool // 10)
    if rng.random() > pool / _EASY_POOLS:
        return conversation(rng, turns=rng.choice((1, 1, 2)), most_tools=rng.choice((1, 2, 3)))
    if rng.random() < _PRACTICE:
        return practising(rng)
    if rng.random() < _ASSIGNMENTS:
        return assignments(rng)
    if rng.random() < _ERRANDS:
        return errands(rng, boxed=rng.random() < BOXED_ERRANDS)
    turns = rng.randint(8, 26) if longest > 1024 and rng.random() < 0.5 else None
    return conversation(rng, turns=turns, boxed=rng.random() < BOXED)


def batches(made: list[Row], tokens: int) -> list[Batch]:
    """A pool of rows as batches of about so many tokens, the longest rows first."""
    ordered = sorted(made, key=lambda row: len(row.ids))
    found: list[Batch] = []
    while ordered:
        time = next(length for length in _LENGTHS if length >= len(ordered[-1].ids) - 1)
        count = max(1, tokens // time)
        chosen = ordered[-count:]
        del ordered[-count:]
        # Filled up with empty rows, to be of a known shape.
        found.append(_batch([*chosen, *[Row([0], [0.0], [])] * (count - len(chosen))], time))
    return found


def _batch(chosen: list[Row], time: int) -> Batch:
    ids = np.zeros((len(chosen), time), np.int64)
    targets = np.zeros((len(chosen), time), np.int64)
    weights = np.zeros((len(chosen), time), np.float32)
    most = max([1, *(len(row.pointers) for row in chosen)])
    places = np.zeros((len(chosen), most), np.int64)
    sources = np.zeros((len(chosen), most, time), np.bool_)
    for place, row in enumerate(chosen):
        size = len(row.ids) - 1
        ids[place, :size] = row.ids[:-1]
        targets[place, :size] = row.ids[1:]
        weights[place, :size] = row.weights[1:]
        for number, pointer in enumerate(row.pointers):
            places[place, number] = pointer.place
            sources[place, number, pointer.sources] = True
    return Batch(ids, targets, weights, places, sources)

"""Guesses from what a sequence has said or read before: answers repeat results, and calls repeat calls."""

from tenuto.sessions.tokens import Tokens

SURE = 8
"""After so many equal tokens a repetition is likely to go on."""
LEAST = 3
"""After fewer equal tokens nothing is guessed."""


class Lookup:
    """Follows a sequence through an earlier place in it. One round, engine thread only."""

    def __init__(self) -> None:
        self._at: int | None = None  # what follows the sequence's end is guessed to be what stands here
        self._matched = 0
        self._seen = 0

    @property
    def is_sure(self) -> bool:
        """Whether the last guess follows a long repetition."""
        return self._matched >= SURE

    def guess(self, tokens: Tokens, most: int) -> list[int]:
        """At most so many tokens that may come next. The sequence has grown, or is as it was, since the last call."""
        if not self._goes_on(tokens):
            self._search(tokens)
        self._seen = len(tokens)
        return [] if self._at is None else tokens[self._at : self._at + most]

    def _goes_on(self, tokens: Tokens) -> bool:
        """Whether what has come since is what was guessed."""
        if self._at is None:
            return False
        new = len(tokens) - self._seen
        if tokens[self._at : self._at + new] != tokens[self._seen :]:
            return False
        self._at += new
        self._matched += new
        return True

    def _search(self, tokens: Tokens) -> None:
        self._at, self._matched = tokens.behind_last(LEAST), LEAST
        if self._at is not None and (sure := tokens.behind_last(SURE)) is not None:
            self._at, self._matched = sure, SURE

"""Where a model reasons in a turn, and for how many tokens: told by the tokens alone, as they come."""

import codecs

from tenuto.pipelines.formats.alphabet import Alphabet
from tenuto.pipelines.vocabulary import Vocabulary


class ReasoningWatch:
    """Follows one turn. An opener of plain text counts only where the turn begins with it: further on it may be quoted.

    One that a token of the vocabulary is a part of cannot be, and counts wherever it stands. `begun`: the turn begins
    inside of the reasoning.
    """

    def __init__(self, opener: str, closer: str, vocabulary: Vocabulary, *, begun: bool = False) -> None:
        alphabet = Alphabet(vocabulary, (opener, closer))
        self._vocabulary, self._alphabet, self._text = vocabulary, alphabet, alphabet.decoder()
        self._opener, self._closer = alphabet.stream(opener), alphabet.stream(closer)
        self._is_marker = not alphabet.signs.isdisjoint(self._opener)
        self._longest = max(len(self._opener), len(self._closer))
        self._at_start, self._seen = not begun, ""
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self.inside = begun
        """Whether the model is reasoning now."""
        self.tokens = 0
        """How many tokens of the turn were reasoning, without its markers where these are one token each."""

    @property
    def is_within_character(self) -> bool:
        """Whether the last token has left a character half written."""
        return bool(self._bytes.getstate()[0])

    def push(self, token: int) -> None:
        """The next token of the turn."""
        is_reserved = token in self._vocabulary.reserved
        self._bytes.decode(b"" if is_reserved else self._vocabulary.pieces[token])
        text = self._text.push(token)
        self._seen = (self._seen + text)[-(self._longest + len(text)) :]
        if self.inside:
            self._read_inside()
        elif self._at_start:
            self._read_start(is_other=is_reserved and not text)
        elif self._is_marker and self._opener in self._seen:
            self._turn(inside=True)

    def _read_inside(self) -> None:
        if self._closer in self._seen:
            self._turn(inside=False)
        else:
            self.tokens += 1

    def _read_start(self, *, is_other: bool) -> None:
        begun = self._seen.lstrip()
        if self._opener in begun and (self._is_marker or begun.startswith(self._opener)):
            self._turn(inside=True)
        elif is_other or not self._opener.startswith(begun):
            self._at_start = False

    def _turn(self, *, inside: bool) -> None:
        self.inside, self._at_start, self._seen = inside, False, ""
        self._bytes.reset()

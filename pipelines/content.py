"""Content to tokens and tokens to text.

Content is whatever somebody else wrote: messages, tool results, tool descriptions. No control or marker token ever
comes of it, and its tokens always give it back.
"""

import codecs
from collections.abc import Callable
from itertools import pairwise

from tenuto.pipelines.vocabulary import Vocabulary


class ContentTokenizer:
    """Tokenises text so that no reserved token comes of it. Immutable, safe for any thread."""

    def __init__(self, plain_tokens: Callable[[str], list[int]], vocabulary: Vocabulary) -> None:
        self._plain_tokens = plain_tokens
        self._vocabulary = vocabulary
        self._bytes = {
            piece[0]: token
            for token, piece in reversed(list(enumerate(vocabulary.pieces)))
            if len(piece) == 1 and token not in vocabulary.reserved
        }

    def tokens(self, text: str) -> list[int]:
        """The tokens of a content string. A lone surrogate, which no text can hold, becomes U+FFFD."""
        reserved = self._vocabulary.reserved
        tokens: list[int] = []
        waiting = [_without_surrogates(text)]
        while waiting:
            piece = waiting.pop()
            found = self._plain_tokens(piece) if piece else []
            bad = reserved.intersection(found)
            if not bad:
                tokens += found
            elif len(piece) == 1:
                tokens += self._by_bytes(piece)
            else:
                waiting += reversed(self._cut(piece, bad))
        return tokens

    def _cut(self, text: str, tokens: set[int] | frozenset[int]) -> list[str]:
        """Cut inside of every place that could have become one of these tokens; every part is shorter than the text."""
        cuts: set[int] = set()
        for token in tokens:
            marker = self._vocabulary.pieces[token].decode("utf-8", "replace")
            at = text.find(marker) if len(marker) > 1 else -1
            while at >= 0:
                cuts.add(at + 1)
                at = text.find(marker, at + 1)
        # A tokeniser that normalises may make a marker of other text: then halve until it does not.
        places = [0, *sorted(cuts or {len(text) // 2}), len(text)]
        return [text[begin:end] for begin, end in pairwise(places)]

    def _by_bytes(self, character: str) -> list[int]:
        return [self._bytes[byte] for byte in character.encode() if byte in self._bytes]


def _without_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class StreamDecoder:
    """Tokens to text while they stream; implements TextDecoder. Reserved tokens give no text."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that has become whole with this token."""
        if token in self._vocabulary.reserved:
            return ""
        return self._utf8.decode(self._vocabulary.pieces[token])

    def flush(self) -> str:
        """What is left, with the replacement character for a character that was cut."""
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text

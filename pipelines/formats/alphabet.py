"""A turn as a stream of characters, in which each marker that is one token is one character that no text can hold.

So whatever reads a turn looks for markers in one way, be they tokens of the vocabulary or text.
"""

import re
from collections.abc import Iterable

from tenuto.pipelines.content import StreamDecoder
from tenuto.pipelines.formats.lark import lark_text
from tenuto.pipelines.vocabulary import Vocabulary

_FIRST_SIGN, _LAST_SIGN = 0xD800, 0xDFFF
"""Surrogates: what is decoded from UTF-8 has none."""
_SHORTEST = 3


class Alphabet:
    """The markers of one format as one vocabulary has them. Immutable, safe for any thread."""

    def __init__(self, vocabulary: Vocabulary, texts: Iterable[str]) -> None:
        written = "\n".join(texts)
        found = [text for text in vocabulary.markers if len(text) >= _SHORTEST and text in written]
        found = sorted(found, key=len, reverse=True)[: _LAST_SIGN - _FIRST_SIGN]
        self.vocabulary = vocabulary
        self._signs = {text: chr(_FIRST_SIGN + place) for place, text in enumerate(found)}
        self._ids = {text: vocabulary.markers[text] for text in found}
        self._of_token = {self._ids[text]: sign for text, sign in self._signs.items()}
        self._texts = {ord(sign): text for text, sign in self._signs.items()}
        self._pattern = re.compile("|".join(map(re.escape, found)) or r"(?!)")
        self._of_sign = {sign.encode("utf-8", "surrogatepass"): token for token, sign in self._of_token.items()}
        self.signs = frozenset(self._signs.values())

    def stream(self, text: str) -> str:
        """A text of the format as it comes in the stream."""
        return self._pattern.sub(lambda found: self._signs[found[0]], text)

    def shown(self, stream: str) -> str:
        """A stretch of the stream as people read it."""
        return stream.translate(self._texts)

    def lark(self, text: str) -> str:
        """A text of the format in a grammar; empty where it is."""
        parts: list[str] = []
        place = 0
        for found in self._pattern.finditer(text):
            parts += [lark_text(text[place : found.start()])] * (found.start() > place)
            parts.append(f"<[{self._ids[found[0]]}]>")
            place = found.end()
        parts += [lark_text(text[place:])] * (len(text) > place)
        return " ".join(parts)

    def token(self, text: str) -> int | None:
        """The id of a text that is one token; None for any other."""
        return self._ids.get(text)

    def sign(self, token: int) -> str | None:
        """The character of a token that is a marker."""
        return self._of_token.get(token)

    def token_of(self, encoded: bytes) -> int | None:
        """The token of a sign's three bytes."""
        return self._of_sign.get(encoded)

    def decoder(self) -> "SignedText":
        """A fresh decoder of a turn."""
        return SignedText(self)


class SignedText:
    """Sampled tokens as the stream. Reserved tokens that are no markers of the format give nothing."""

    def __init__(self, alphabet: Alphabet) -> None:
        self._alphabet = alphabet
        self._decoder = StreamDecoder(alphabet.vocabulary)

    def push(self, token: int) -> str:
        """What has become whole with this token."""
        sign = self._alphabet.sign(token)
        return self._decoder.push(token) if sign is None else self._decoder.flush() + sign

    def flush(self) -> str:
        """What is left of a character that was cut."""
        return self._decoder.flush()

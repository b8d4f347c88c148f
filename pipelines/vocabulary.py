"""What the entries of a vocabulary are: pieces, control entries, markers. Plain facts; no tokenising here."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

_WRAPPINGS = (("<", ">"), ("[", "]"), ("]<]", "[>["), ("｜", "｜"))
"""What markers begin and end with; the last two are MiniMax's and DeepSeek's."""


def is_marker(text: str) -> bool:
    """Whether a user-defined entry is a marker, such as `<tool_call>` or `[INST]`, which content never becomes.

    The others are macros: long pieces of ordinary text, which content may become.
    """
    wrapped = any(text.startswith(begin) and text.endswith(end) for begin, end in _WRAPPINGS)
    return len(text) > 2 and wrapped and not any(character.isspace() for character in text)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The facts that content, parsers and grammars need of a tokeniser."""

    pieces: tuple[bytes, ...]
    """The bytes of every entry, control entries as their text."""
    stops: frozenset[int]
    """The tokens that end a turn."""
    reserved: frozenset[int]
    """Control and marker ids: content never becomes them and they give no text."""
    markers: Mapping[str, int]
    """Text and id of every reserved entry."""

    def identity(self) -> bytes:
        """A digest that two vocabularies share only if their entries are the same."""
        digest = hashlib.sha256()
        for token, piece in enumerate(self.pieces):
            kind = b"r" if token in self.reserved else b"t"
            digest.update(b"%d%b" % (len(piece), kind))
            digest.update(piece)
        return digest.digest()


def vocabulary_of(
    pieces: tuple[bytes, ...], stops: frozenset[int], control: frozenset[int], user_defined: Mapping[str, int]
) -> Vocabulary:
    """Sort a tokeniser's entries into ordinary and reserved ones."""
    reserved = control | stops | {token for text, token in user_defined.items() if is_marker(text)}
    markers = {pieces[token].decode("utf-8", "replace"): token for token in sorted(reserved)}
    return Vocabulary(pieces=pieces, stops=stops, reserved=reserved, markers=markers)

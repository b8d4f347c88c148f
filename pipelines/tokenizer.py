"""What a codec needs of a vocabulary: a Protocol that each pipeline implements."""

from collections.abc import Mapping
from typing import Any, Protocol


class Tokenizer(Protocol):
    """A vocabulary and how text becomes its tokens. Immutable, safe for any thread."""

    @property
    def vocabulary(self) -> int:
        """How many entries the model's logits have."""

    @property
    def stop_tokens(self) -> frozenset[int]:
        """Every end-of-generation id."""

    @property
    def control_tokens(self) -> frozenset[int]:
        """The ids of type control (and unknown, unused)."""

    @property
    def user_defined(self) -> Mapping[str, int]:
        """Text and id of each user-defined entry."""

    @property
    def bos(self) -> int | None:
        """The id to put before everything, where the model wants one that its template does not write."""

    @property
    def text_bos(self) -> int | None:
        """The id to put before a text that no template has rendered, where the model wants one."""

    @property
    def special_texts(self) -> Mapping[str, str]:
        """What templates expect: `bos_token`, `eos_token` and so on, as text."""

    def template_tokens(self, text: str) -> list[int]:
        """Tokenise template text: control and user-defined entries are recognised; nothing is added around it."""

    def plain_tokens(self, text: str) -> list[int]:
        """Tokenise text without recognising control entries; user-defined ones may still be; nothing is added."""

    def piece(self, token: int) -> bytes:
        """The bytes of an entry, control entries as their text."""

    def grammar_tokenizer(self) -> Any:
        """The llguidance.LLTokenizer of this vocabulary; built at the first call and kept."""

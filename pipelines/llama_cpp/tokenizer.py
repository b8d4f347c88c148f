"""A GGUF vocabulary as the codec sees it. No weights are needed; any thread may use it."""

import ctypes
import threading
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import llama_cpp as lib
import llguidance
import numpy as np

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.llama_cpp.native import Model
from tenuto.pipelines.vocabulary import is_marker

_NOT_TEXT = lib.LLAMA_TOKEN_ATTR_UNKNOWN | lib.LLAMA_TOKEN_ATTR_UNUSED | lib.LLAMA_TOKEN_ATTR_CONTROL
_SPECIAL = lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_UNKNOWN | lib.LLAMA_TOKEN_ATTR_USER_DEFINED
_SPECIAL_TEXTS = {  # from the metadata: the library invents some where the file names none
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
    "sep_token": "tokenizer.ggml.seperator_token_id",
}
_SENTINEL = "\x01"


class LlamaTokenizer:
    """The vocabulary of a loaded model, whole or `vocabulary_only`.

    Raises:
        ModelLoadFailed: the vocabulary has no tokeniser that gives exactly a text's tokens.
    """

    def __init__(self, model: Model) -> None:
        self._model = model  # keeps the native vocabulary alive
        self._vocab = model.vocab
        self._building = threading.Lock()
        entries = range(model.vocabulary)
        attributes = [lib.llama_vocab_get_attr(self._vocab, token) for token in entries]
        self._pieces = self._read_pieces()
        self._stop_tokens = frozenset(token for token in entries if lib.llama_vocab_is_eog(self._vocab, token))
        self._control_tokens = frozenset(t for t, a in enumerate(attributes) if a & _NOT_TEXT)
        self._user_defined = MappingProxyType(
            {self._text(t): t for t, a in enumerate(attributes) if a & lib.LLAMA_TOKEN_ATTR_USER_DEFINED}
        )
        self._bos = self._find_bos()
        self._spaced = self._find_spacing(attributes)

    @property
    def vocabulary(self) -> int:
        """How many entries the model's logits have."""
        return len(self._pieces)

    @property
    def stop_tokens(self) -> frozenset[int]:
        """Every end-of-generation id."""
        return self._stop_tokens

    @property
    def control_tokens(self) -> frozenset[int]:
        """The ids of type control, unknown and unused."""
        return self._control_tokens

    @property
    def user_defined(self) -> Mapping[str, int]:
        """Text and id of each user-defined entry."""
        return self._user_defined

    @property
    def bos(self) -> int | None:
        """The id to put before everything, where the model wants one that its template does not write."""
        return self._bos

    @property
    def text_bos(self) -> int | None:
        """The id to put before a text that no template has rendered, where the model wants one."""
        bos = int(lib.llama_vocab_bos(self._vocab))
        return bos if bos >= 0 and lib.llama_vocab_get_add_bos(self._vocab) else None

    @cached_property
    def special_texts(self) -> Mapping[str, str]:
        """What templates expect: `bos_token`, `eos_token` and so on, as text."""
        texts = {}
        for name, key in _SPECIAL_TEXTS.items():
            token = int(self._model.metadata(key) or -1)
            if 0 <= token < self.vocabulary:
                texts[name] = self._text(token)
        return MappingProxyType(texts)

    def template_tokens(self, text: str) -> list[int]:
        """Tokenise template text: control and user-defined entries are recognised; nothing is added around it."""
        return self._tokens(text, specials=True)

    def plain_tokens(self, text: str) -> list[int]:
        """Tokenise text without recognising control entries; user-defined ones may still be; nothing is added."""
        return self._tokens(text, specials=False)

    def piece(self, token: int) -> bytes:
        """Give the bytes of an entry, control entries as their text."""
        return self._pieces[token]

    def grammar_tokenizer(self) -> Any:
        """Give the llguidance.LLTokenizer of this vocabulary; built at the first call and kept."""
        with self._building:
            return self._grammar_tokenizer

    @cached_property
    def _grammar_tokenizer(self) -> Any:
        stops = [lib.llama_vocab_eos(self._vocab), lib.llama_vocab_eot(self._vocab), *sorted(self._stop_tokens)]
        ends = list(dict.fromkeys(token for token in stops if token in self._stop_tokens))
        # As llguidance.llamacpp does it, but that it asks for each entry's kind by a name that is deprecated.
        return llguidance.LLTokenizer.from_llamacpp(  # type: ignore[attr-defined]  # its stub lacks it
            tokens=[self._grammar_piece(token) for token in range(self.vocabulary)],
            vocab_ptr=self._vocab,
            tokenize_fptr=ctypes.cast(lib.llama_cpp._lib.llama_tokenize, ctypes.c_void_p).value,
            eos_token=ends or None,
            slices=None,
        )

    def _grammar_piece(self, token: int) -> bytes:
        """The bytes of an entry; a byte that no text has stands before those that no grammar's text may use."""
        piece, attributes = self._pieces[token], lib.llama_vocab_get_attr(self._vocab, token)
        marker = attributes & lib.LLAMA_TOKEN_ATTR_USER_DEFINED and is_marker(piece.decode(errors="replace"))
        return b"\xff" + piece if marker or attributes & lib.LLAMA_TOKEN_ATTR_CONTROL else piece

    def _text(self, token: int) -> str:
        return self._pieces[token].decode(errors="replace")

    def _read_pieces(self) -> list[bytes]:
        pieces = []
        size = 256
        buffer = ctypes.create_string_buffer(size)
        for token in range(self._model.vocabulary):
            length = lib.llama_token_to_piece(self._vocab, token, buffer, size, 0, True)
            if length < 0:
                size = -length
                buffer = ctypes.create_string_buffer(size)
                length = lib.llama_token_to_piece(self._vocab, token, buffer, size, 0, True)
            pieces.append(buffer.raw[:length])
        return pieces

    def _find_bos(self) -> int | None:
        bos = self.text_bos
        template = self._model.chat_template or ""
        if bos is None or "bos_token" in template or self._text(bos) in template:
            return None
        return bos

    def _find_spacing(self, attributes: list[int]) -> "_Spacing | None":
        """Whether the tokeniser puts a space before text, as SentencePiece does, and how to be rid of it."""
        alone = b"".join(self._pieces[token] for token in self._native("a", specials=False))
        if alone == b"a":
            return None
        if alone != b" a" or any(_SENTINEL.encode() in p for t, p in enumerate(self._pieces) if len(p) > 1):
            raise ModelLoadFailed(f"{self._model.path}: this kind of vocabulary is not supported")
        special = {t: a for t, a in enumerate(attributes) if a & _SPECIAL and self._pieces[t]}
        return _Spacing(self._native(_SENTINEL, specials=False), {self._text(t): (t, a) for t, a in special.items()})

    def _tokens(self, text: str, *, specials: bool) -> list[int]:
        if not text:
            return []
        if self._spaced is None:
            return self._native(text, specials=specials)
        tokens: list[int] = []
        for part in self._spaced.split(text, self._user_defined, specials=specials):
            tokens.extend([part] if isinstance(part, int) else self._behind_sentinel(part, self._spaced.before))
        return tokens

    def _behind_sentinel(self, text: str, before: list[int]) -> list[int]:
        """Tokenise without the added space: no entry joins with the sentinel, so that it can be cut off."""
        tokens = self._native(_SENTINEL + text, specials=False)
        assert tokens[: len(before)] == before, "the sentinel has joined with the text"
        return tokens[len(before) :]

    def _native(self, text: str, *, specials: bool) -> list[int]:
        encoded = text.encode(errors="replace")  # lone surrogates have no UTF-8
        found = np.empty(len(encoded) + 8, dtype=np.int32)
        target = found.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        count = lib.llama_tokenize(self._vocab, encoded, len(encoded), target, found.size, False, specials)
        if count < 0:
            found = np.empty(-count, dtype=np.int32)
            target = found.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
            count = lib.llama_tokenize(self._vocab, encoded, len(encoded), target, found.size, False, specials)
        tokens: list[int] = found[:count].tolist()
        return tokens


class _Spacing:
    """How a SentencePiece vocabulary's special entries part a text, so that each part can be tokenised without a space.

    llama.cpp would put a space before the text after every special entry too.
    """

    def __init__(self, before: list[int], special: dict[str, tuple[int, int]]) -> None:
        self.before = before
        # llama.cpp looks for the longest entries first.
        self._special = sorted(special.items(), key=lambda entry: -len(entry[0].encode()))

    def split(self, text: str, user_defined: Mapping[str, int], *, specials: bool) -> Iterator[str | int]:
        parts: list[str | int] = [text]
        for entry, (token, attributes) in self._special:
            if entry in text and (specials or entry in user_defined):
                parts = [new for part in parts for new in self._cut(part, entry, token, attributes)]
        return (part for part in parts if part != "")

    def _cut(self, part: str | int, entry: str, token: int, attributes: int) -> Iterator[str | int]:
        if isinstance(part, int) or entry not in part:
            yield part
            return
        *heads, tail = part.split(entry)
        first = True
        for head in heads:
            yield self._strip(head, attributes, left_of_entry=True, right_of_entry=not first)
            yield token
            first = False
        yield self._strip(tail, attributes, left_of_entry=False, right_of_entry=True)

    @staticmethod
    def _strip(text: str, attributes: int, *, left_of_entry: bool, right_of_entry: bool) -> str:
        if left_of_entry and attributes & lib.LLAMA_TOKEN_ATTR_LSTRIP:
            text = text.rstrip()
        if right_of_entry and attributes & lib.LLAMA_TOKEN_ATTR_RSTRIP:
            text = text.lstrip()
        return text

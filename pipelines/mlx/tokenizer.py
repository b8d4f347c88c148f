"""The vocabulary of a model's folder as the codec sees it. No weights are needed; any thread may use it."""

import json
import re
import threading
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import llguidance
from llguidance import TokenizerWrapper
from tokenizers import AddedToken
from tokenizers import Tokenizer as NativeTokenizer

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.mlx import vocabulary_json
from tenuto.pipelines.mlx.folder import read_folder, read_tokenizer
from tenuto.pipelines.vocabulary import is_marker
from tenuto.sessions.items import JsonObject

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
# Some files name only the end of a document: these end a turn wherever a vocabulary has them as control entries.
_END_TEXTS = frozenset({"<|im_end|>", "<|eot_id|>", "<|eot|>", "<end_of_turn>", "<turn|>", "<|end_of_turn|>"})
_PROBE = "a b"


class MlxTokenizer:
    """The vocabulary of a model's folder, for a model whose logits have `vocabulary` entries.

    Raises:
        ModelLoadFailed: there is no tokenizer.json, it is broken, or its tokens cannot give a text back exactly.
    """

    def __init__(self, path: Path, vocabulary: int) -> None:
        folder = read_folder(path)
        written = read_tokenizer(path)
        exact = vocabulary_json.exact(written, folder, vocabulary)
        self._path = path
        self._building = threading.Lock()
        self._template_tokenizer = self._native(exact)
        self._plain_tokenizer = self._native(vocabulary_json.for_content(exact))
        self._plain_tokenizer.encode_special_tokens = True
        self._chat_template = folder.chat_template()

        added = self._template_tokenizer.get_added_tokens_decoder()
        self._pieces = self._read_pieces(exact, vocabulary, added)
        unused = (token for token, piece in enumerate(self._pieces) if not piece)
        self._control_tokens = frozenset((*(token for token, entry in added.items() if entry.special), *unused))
        self._user_defined = MappingProxyType(
            {entry.content: token for token, entry in added.items() if not entry.special}
        )
        self._special_texts = MappingProxyType(dict(folder.special_texts))
        self._stop_tokens = self._find_stops(folder.end_tokens)
        self._text_bos = self._find_text_bos(folder.tokenizer.get("add_bos_token"), written)
        single = {t: piece[0] for t, piece in enumerate(self._pieces) if len(piece) == 1}
        self._bytes = {byte: t for t, byte in single.items() if t not in self._control_tokens}
        self._apart = _read_otherwise(exact)
        self._require_exact()

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
        """The ids of special entries, and of those that no text has."""
        return self._control_tokens

    @property
    def user_defined(self) -> Mapping[str, int]:
        """Text and id of each entry that was added and is not special."""
        return self._user_defined

    @property
    def bos(self) -> int | None:
        """The id to put before everything, where the model wants one that its template does not write."""
        bos, template = self._text_bos, self._chat_template or ""
        return None if bos is None or "bos_token" in template or self._text(bos) in template else bos

    @property
    def text_bos(self) -> int | None:
        """The id to put before a text that no template has rendered, where the model wants one."""
        return self._text_bos

    @property
    def special_texts(self) -> Mapping[str, str]:
        """What templates expect: `bos_token`, `eos_token` and so on, as text."""
        return self._special_texts

    @property
    def chat_template(self) -> str | None:
        """The Jinja template of the folder."""
        return self._chat_template

    def template_tokens(self, text: str) -> list[int]:
        """Tokenise template text: control and user-defined entries are recognised; nothing is added around it."""
        return _tokens(self._template_tokenizer, text)

    def plain_tokens(self, text: str) -> list[int]:
        """Tokenise text without recognising control entries; user-defined ones may still be; nothing is added."""
        tokens: list[int] = []
        for part in self._apart.split(text) if self._apart else [text]:
            if part == vocabulary_json.SPACE and self._apart:
                tokens += [self._bytes[byte] for byte in part.encode() if byte in self._bytes]
            else:
                tokens += _tokens(self._plain_tokenizer, part)
        return tokens

    def piece(self, token: int) -> bytes:
        """Give the bytes of an entry, control entries as their text."""
        return self._pieces[token]

    def grammar_tokenizer(self) -> Any:
        """Give the llguidance.LLTokenizer of this vocabulary; built at the first call and kept."""
        with self._building:
            return self._grammar_tokenizer

    @cached_property
    def _grammar_tokenizer(self) -> Any:
        # Over our own pieces: it must agree with the codec on which entries are text.
        stops = sorted(self._stop_tokens)
        markers = (token for text, token in self._user_defined.items() if is_marker(text))
        source = _GrammarSource(self, sorted({*self._control_tokens, *markers}))
        return llguidance.LLTokenizer(TokenizerWrapper(source), n_vocab=self.vocabulary, eos_token=stops or None)

    def _text(self, token: int) -> str:
        return self._pieces[token].decode(errors="replace")

    def _native(self, tokenizer: JsonObject) -> NativeTokenizer:
        try:
            return NativeTokenizer.from_str(json.dumps(tokenizer, ensure_ascii=False))
        except Exception as error:  # the library raises nothing more precise
            raise ModelLoadFailed(f"{self._path / 'tokenizer.json'} cannot be used: {error}") from error

    def _read_pieces(self, tokenizer: JsonObject, vocabulary: int, added: Mapping[int, AddedToken]) -> list[bytes]:
        marked = vocabulary_json.has_spaces_marked(tokenizer)
        byte_level = vocabulary_json.is_byte_level(tokenizer)
        fallback = vocabulary_json.falls_back_to_bytes(tokenizer)
        texts = {token: text for text, token in self._template_tokenizer.get_vocab(with_added_tokens=True).items()}
        ordinary = set(self._template_tokenizer.get_vocab(with_added_tokens=False).values()) if marked else set()
        # An ordinary entry may be added too, so that it is not cut: `▁▁` still stands for spaces then.
        literal = {t: entry.content for t, entry in added.items() if entry.special or byte_level or t not in ordinary}

        def piece(token: int) -> bytes:
            text = texts.get(token, "")
            if token in literal:
                return literal[token].encode()
            if byte_level:
                return _from_byte_level(text)
            if fallback and _BYTE.fullmatch(text):
                return bytes([int(text[3:5], 16)])
            return (text.replace(vocabulary_json.SPACE, " ") if marked else text).encode()

        return [piece(token) for token in range(vocabulary)]

    def _find_stops(self, named: frozenset[int]) -> frozenset[int]:
        stops = {token for token in named if 0 <= token < self.vocabulary}
        end = self._special_texts.get("eos_token")
        texts = _END_TEXTS | ({end} if end else set())
        return frozenset(stops | {token for token in self._control_tokens if self._text(token) in texts})

    def _find_text_bos(self, wanted: object, written: JsonObject) -> int | None:
        """Some files say it by a flag, and the others by what their post-processor puts before a text."""
        begin = vocabulary_json.begins_with(written)
        text = begin if wanted is None else self._special_texts.get("bos_token") if wanted else None
        return None if text is None else self._template_tokenizer.token_to_id(text)

    def _require_exact(self) -> None:
        tokens = self.plain_tokens(_PROBE)
        given = b"".join(self._pieces[token] for token in tokens)
        if given != _PROBE.encode() and not self._control_tokens.intersection(tokens):
            raise ModelLoadFailed(f"{self._path}: this kind of vocabulary is not supported: it does not keep spaces")


class _GrammarSource:
    """What llguidance asks of a vocabulary. Safe for any thread."""

    def __init__(self, tokenizer: MlxTokenizer, special: list[int]) -> None:
        self.eos_token_id = min(tokenizer.stop_tokens, default=0)
        self.bos_token_id = None
        self.tokens = [tokenizer.piece(token) for token in range(tokenizer.vocabulary)]
        self.special_token_ids = special
        self._tokenizer = tokenizer

    def __call__(self, text: bytes) -> list[int]:
        return self._tokenizer.plain_tokens(text.decode(errors="replace"))


def _read_otherwise(tokenizer: JsonObject) -> re.Pattern[str] | None:
    """What a vocabulary of SentencePiece's kind would read otherwise than it is written, and what is cut apart there.

    The sign for a space would come back as a space, and is spelled in bytes; `<0x0A>` would come back as that byte.
    """
    if vocabulary_json.is_byte_level(tokenizer):
        return None
    sign = [vocabulary_json.SPACE] if vocabulary_json.has_spaces_marked(tokenizer) else []
    byte = [f"<(?={_BYTE.pattern[1:]})"] if vocabulary_json.falls_back_to_bytes(tokenizer) else []
    return re.compile(f"({'|'.join(sign + byte)})") if sign or byte else None


def _tokens(tokenizer: NativeTokenizer, text: str) -> list[int]:
    if not text:
        return []
    # Lone surrogates have no UTF-8.
    return tokenizer.encode(text.encode(errors="replace").decode(), add_special_tokens=False).ids


def _byte_characters() -> dict[str, int]:
    """GPT-2's alphabet: the printable bytes stand for themselves, the others for characters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTES = _byte_characters()


def _from_byte_level(text: str) -> bytes:
    if all(character in _BYTES for character in text):
        return bytes(_BYTES[character] for character in text)
    return text.encode()

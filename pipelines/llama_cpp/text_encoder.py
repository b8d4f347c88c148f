"""Texts to the tokens that a GGUF model embeds or ranks. No weights are needed; any thread may use it."""

import ctypes
import re

import llama_cpp as lib
import numpy as np

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.embedding import EncoderInfo, TextTokens
from tenuto.pipelines.llama_cpp.native import Model

_SPECIAL = lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_UNKNOWN | lib.LLAMA_TOKEN_ATTR_USER_DEFINED
_RERANK = "tokenizer.chat_template.rerank"
_QUERY, _DOCUMENT = "{query}", "{document}"
_PLACE = re.compile(f"({re.escape(_QUERY)}|{re.escape(_DOCUMENT)})")


class LlamaTextEncoder:
    """The vocabulary of a loaded model, and what it wants around texts.

    Raises:
        ModelLoadFailed: the tokens around a text are not the same for every text.
    """

    def __init__(self, name: str, model: Model) -> None:
        self._model = model  # keeps the native vocabulary alive
        self._vocab = model.vocab
        self._info = EncoderInfo(name, model.vocabulary)
        self._before, self._after = self._around()
        template = model.metadata(_RERANK)
        self._template = None if template is None else self._parts(template)

    @property
    def info(self) -> EncoderInfo:
        """Facts that do not change."""
        return self._info

    def encode(self, text: str) -> TextTokens:
        """A text, with what the model wants around it."""
        return np.concatenate([self._before, self._native(text), self._after])

    def pair(self, query: str, document: str) -> TextTokens:
        """A question and a text: as the file's template for it says, or else one after the other, each with its end."""
        if self._template is not None:
            texts = {_QUERY: query, _DOCUMENT: document}
            parts = [self._filled(part, texts) if isinstance(part, str) else part for part in self._template]
        else:
            vocab = self._vocab
            begin = [lib.llama_vocab_bos(vocab)] * bool(lib.llama_vocab_get_add_bos(vocab))
            end = [self._end()] * bool(lib.llama_vocab_get_add_eos(vocab))
            between = [lib.llama_vocab_sep(vocab)] * bool(lib.llama_vocab_get_add_sep(vocab))
            parts = [_ids(begin), self._native(query), _ids([*end, *between]), self._native(document), _ids(end)]
        return np.concatenate(parts)

    def cut(self, tokens: TextTokens, most: int) -> TextTokens:
        """No more than `most` of a text's tokens: its beginning, and what stands at its end."""
        if len(tokens) <= most:
            return tokens
        return np.concatenate([tokens[: most - len(self._after)], self._after])

    def _around(self) -> tuple[TextTokens, TextTokens]:
        alone, whole = self._native("a"), self._native("a", around=True)
        for begin in range(len(whole) - len(alone) + 1):
            if np.array_equal(whole[begin : begin + len(alone)], alone):
                return whole[:begin], whole[begin + len(alone) :]
        raise ModelLoadFailed(f"{self._model.path}: this kind of vocabulary is not supported for embeddings")

    def _end(self) -> int:
        end = int(lib.llama_vocab_eos(self._vocab))
        return end if end >= 0 else int(lib.llama_vocab_sep(self._vocab))

    def _parts(self, template: str) -> list[str | TextTokens]:
        """The template between its special entries, which the library would find there first, and these entries."""
        found = {self._piece(t): t for t in range(self._info.vocabulary) if self._is_special(t)}
        entries = sorted((text for text in found if text), key=len, reverse=True)
        if not entries:
            return [template]
        split = re.split(f"({'|'.join(map(re.escape, entries))})", template)
        return [_ids([found[part]]) if part in found else part for part in split if part]

    def _filled(self, part: str, texts: dict[str, str]) -> TextTokens:
        return self._native("".join(texts.get(piece, piece) for piece in _PLACE.split(part)))

    def _is_special(self, token: int) -> bool:
        return bool(lib.llama_vocab_get_attr(self._vocab, token) & _SPECIAL)

    def _piece(self, token: int) -> str:
        return str(lib.llama_vocab_get_text(self._vocab, token).decode(errors="replace"))

    def _native(self, text: str, *, around: bool = False) -> TextTokens:
        encoded = text.encode(errors="replace")  # lone surrogates have no UTF-8
        found = np.empty(len(encoded) + 8, dtype=np.int32)
        count = self._tokenize(encoded, found, around)
        if count < 0:
            found = np.empty(-count, dtype=np.int32)
            count = self._tokenize(encoded, found, around)
        return found[:count].copy()

    def _tokenize(self, encoded: bytes, found: TextTokens, around: bool) -> int:
        target = found.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        return int(lib.llama_tokenize(self._vocab, encoded, len(encoded), target, found.size, around, False))


def _ids(tokens: list[int]) -> TextTokens:
    return np.array(tokens, dtype=np.int32)

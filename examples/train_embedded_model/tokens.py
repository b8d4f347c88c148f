"""The tokeniser: byte-level BPE in which words, digits and signs never merge with each other or with a blank.

So a word is the same tokens wherever it stands, and copying it is copying its tokens. At run time it is the `qwen2`
tokeniser of llama.cpp, whose pattern is coarser: no merge crosses the finer borders, so both give the same tokens.
"""

import json
import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from train_embedded_model.conversations import Conversation, conversation
from train_embedded_model.layout import CONTROL, MACROS, MARKERS, Piece, pieces

_FINE = r"\p{L}+|\p{N}|[^\s\p{L}\p{N}]|\s"
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(path: Path, vocabulary: int, seed: int, conversations: int = 20_000) -> None:
    """Train a tokeniser on generated conversations and write it as Hugging Face's `tokenizer.json`."""
    added = len(CONTROL) + len(MARKERS) + len(MACROS)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _pre_tokenizer(_FINE)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - added,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=10,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(seed, conversations), trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in (*MARKERS, *MACROS)])
    tokenizer.pre_tokenizer = _pre_tokenizer(_QWEN2)
    tokenizer.save(str(path))
    # Markers are ordinary added tokens to whoever reads the file: special ones would vanish from the text.
    kept = json.loads(path.read_text())
    for entry in kept["added_tokens"]:
        entry["special"] = entry["content"] in CONTROL
    path.write_text(json.dumps(kept, ensure_ascii=False))


def _pre_tokenizer(pattern: str) -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _texts(seed: int, conversations: int) -> Iterator[str]:
    rng = random.Random(seed)
    for _ in range(conversations):
        for piece in pieces(conversation(rng)):
            text = piece.text
            for macro in (*CONTROL, *MARKERS, *MACROS):
                text = text.replace(macro, "\n")
            yield text


class Encoder:
    """Conversations to token ids, each with whether the model shall say it."""

    def __init__(self, path: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(path))
        self.vocabulary = -(-self.tokenizer.get_vocab_size() // 64) * 64
        """Entries of the model's embedding, rounded up for speed."""
        self._short = lru_cache(maxsize=200_000)(self._tokens)

    def tokens(self, text: str) -> Sequence[int]:
        """The tokens of one piece of text."""
        return self._short(text) if len(text) < 60 else self._tokens(text)

    def token(self, text: str) -> int:
        """The token of a marker, a macro or a sign. Raises KeyError where the tokeniser has none."""
        found = self.tokenizer.token_to_id(text)
        if found is None:
            raise KeyError(f"the tokeniser has no token for {text!r}")
        return int(found)

    def encode(self, talk: Conversation) -> tuple[list[int], list[bool]]:
        """A conversation's tokens, and which of them are trained on."""
        return self.encode_pieces(pieces(talk))

    def encode_pieces(self, parts: Sequence[Piece]) -> tuple[list[int], list[bool]]:
        """Pieces, each tokenised by itself."""
        ids: list[int] = []
        trained: list[bool] = []
        for part in parts:
            found = self.tokens(part.text)
            ids += found
            trained += [part.trained] * len(found)
        return ids, trained

    def _tokens(self, text: str) -> Sequence[int]:
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return found

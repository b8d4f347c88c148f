"""GGUF files of models that embed or rank, with random weights: under a megabyte, the same at every run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from gguf import PoolingType, TokenType

from tests.pipelines.tiny_gguf import HEADS, INNER, LAYERS, WIDTH, begun, byte_symbols, ended, norm

Kind = Literal["mean", "cls", "rank", "last", "none"]

CONTEXT = 96
WORDS = ("a", "the", "sky", "is", "blue", "grass", "green", "hello", "world", "what", "colour", ".", "?", ",")
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
QUERY = "<|query|>{query}<|document|>{document}<|end|>"


def tiny_bert(path: Path, kind: Kind, *, context: int = CONTEXT, words: Sequence[str] = WORDS) -> Path:
    """An encoder with WordPiece: its texts stand between [CLS] and [SEP], and it attends both ways."""
    # llama.cpp marks where a word begins, and has no mark for what goes on in one.
    letters = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]
    tokens = [*SPECIALS, *(f"▁{word}" for word in dict.fromkeys((*words, *letters))), *letters]
    writer, weight = begun(path, "bert", len(tokens), context)
    weight("token_embd.weight", len(tokens), WIDTH)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    if kind != "none":
        writer.add_pooling_type(PoolingType[kind.upper()])
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("jina-v2-en")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] * len(SPECIALS) + [TokenType.NORMAL] * (len(tokens) - len(SPECIALS)))
    writer.add_token_type_count(2)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    writer.add_eos_token_id(3)
    weight("token_types.weight", 2, WIDTH)
    weight("position_embd.weight", context, WIDTH)
    norm(writer, "token_embd_norm")
    for layer in range(LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weight(f"blk.{layer}.{part}.weight", WIDTH, WIDTH)
            weight(f"blk.{layer}.{part}.bias", WIDTH)
        weight(f"blk.{layer}.ffn_up.weight", INNER, WIDTH)
        weight(f"blk.{layer}.ffn_up.bias", INNER)
        # Small, as in a trained model: the library's GELU is a table of 16 bits, which shows the last bit of a float.
        weight(f"blk.{layer}.ffn_down.weight", WIDTH, INNER, scale=0.1)
        weight(f"blk.{layer}.ffn_down.bias", WIDTH)
        norm(writer, f"blk.{layer}.attn_output_norm")
        norm(writer, f"blk.{layer}.layer_output_norm")
    if kind == "rank":
        weight("cls.weight", WIDTH, WIDTH)
        weight("cls.bias", WIDTH)
        weight("cls.output.weight", 1, WIDTH)
        weight("cls.output.bias", 1)
    return ended(writer, path)


def tiny_decoder(path: Path, kind: Kind) -> Path:
    """A Qwen3 that was made for embeddings or ranks: it has a cache, and a byte for each token."""
    specials = ("<|begin|>", "<|end|>", "<|query|>", "<|document|>")
    tokens = [*byte_symbols(), *specials]
    writer, weight = begun(path, "qwen3", len(tokens), CONTEXT)
    weight("token_embd.weight", len(tokens), WIDTH)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_key_length(WIDTH // HEADS)
    writer.add_value_length(WIDTH // HEADS)
    if kind != "none":
        writer.add_pooling_type(PoolingType[kind.upper()])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_merges(["a b", "c d"])
    writer.add_token_types([TokenType.NORMAL] * 256 + [TokenType.CONTROL] * len(specials))
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(True)
    if kind == "rank":
        writer.add_chat_template([{"name": "rerank", "template": QUERY}])
        writer.add_classifier_output_labels(["yes", "no"])
        weight("cls.output.weight", 2, WIDTH)
    weight("output.weight", len(tokens), WIDTH)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for layer in range(LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weight(f"blk.{layer}.{part}.weight", WIDTH, WIDTH)
        weight(f"blk.{layer}.ffn_gate.weight", INNER, WIDTH)
        weight(f"blk.{layer}.ffn_up.weight", INNER, WIDTH)
        weight(f"blk.{layer}.ffn_down.weight", WIDTH, INNER)
        for part, size in (
            ("attn_norm", WIDTH),
            ("ffn_norm", WIDTH),
            *((f"attn_{x}_norm", WIDTH // HEADS) for x in "qk"),
        ):
            writer.add_tensor(f"blk.{layer}.{part}.weight", np.ones(size, np.float32))
    return ended(writer, path)

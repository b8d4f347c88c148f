"""GGUF files of models that embed or rank, with random weights: under a megabyte, the same at every run."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
from gguf import GGUFWriter, PoolingType, TokenType

Kind = Literal["mean", "cls", "rank", "last", "none"]

CONTEXT, WIDTH, LAYERS, HEADS, INNER = 96, 64, 2, 4, 256
WORDS = ("a", "the", "sky", "is", "blue", "grass", "green", "hello", "world", "what", "colour", ".", "?", ",")
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
QUERY = "<|query|>{query}<|document|>{document}<|end|>"


def tiny_bert(path: Path, kind: Kind) -> Path:
    """An encoder with WordPiece: its texts stand between [CLS] and [SEP], and it attends both ways."""
    # llama.cpp marks where a word begins, and has no mark for what goes on in one.
    letters = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]
    tokens = [*SPECIALS, *(f"▁{word}" for word in (*WORDS, *letters[1:])), *letters]
    writer, weight = _begun(path, "bert", len(tokens))
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
    weight("position_embd.weight", CONTEXT, WIDTH)
    _norm(writer, "token_embd_norm")
    for layer in range(LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weight(f"blk.{layer}.{part}.weight", WIDTH, WIDTH)
            weight(f"blk.{layer}.{part}.bias", WIDTH)
        weight(f"blk.{layer}.ffn_up.weight", INNER, WIDTH)
        weight(f"blk.{layer}.ffn_up.bias", INNER)
        # Small, as in a trained model: the library's GELU is a table of 16 bits, which shows the last bit of a float.
        weight(f"blk.{layer}.ffn_down.weight", WIDTH, INNER, scale=0.1)
        weight(f"blk.{layer}.ffn_down.bias", WIDTH)
        _norm(writer, f"blk.{layer}.attn_output_norm")
        _norm(writer, f"blk.{layer}.layer_output_norm")
    if kind == "rank":
        weight("cls.weight", WIDTH, WIDTH)
        weight("cls.bias", WIDTH)
        weight("cls.output.weight", 1, WIDTH)
        weight("cls.output.bias", 1)
    return _ended(writer, path)


def tiny_decoder(path: Path, kind: Kind) -> Path:
    """A Qwen3 that was made for embeddings or ranks: it has a cache, and a byte for each token."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    specials = ("<|begin|>", "<|end|>", "<|query|>", "<|document|>")
    tokens = [*(chr(byte if byte in plain else next(spare)) for byte in range(256)), *specials]
    writer, weight = _begun(path, "qwen3", len(tokens))
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
        for norm, size in (
            ("attn_norm", WIDTH),
            ("ffn_norm", WIDTH),
            *((f"attn_{x}_norm", WIDTH // HEADS) for x in "qk"),
        ):
            writer.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(size, np.float32))
    return _ended(writer, path)


def _begun(path: Path, architecture: str, vocabulary: int) -> tuple[GGUFWriter, Callable[..., None]]:
    random = np.random.default_rng(0)
    writer = GGUFWriter(path, architecture)
    writer.add_name(path.stem)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_vocab_size(vocabulary)

    def weight(name: str, *shape: int, scale: float = 1.0) -> None:
        values = random.standard_normal(shape, dtype=np.float32)
        writer.add_tensor(name, values * np.float32(scale / np.sqrt(shape[-1])))

    weight("token_embd.weight", vocabulary, WIDTH)
    return writer, weight


def _norm(writer: GGUFWriter, name: str) -> None:
    writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    writer.add_tensor(f"{name}.bias", np.zeros(WIDTH, np.float32))


def _ended(writer: GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

"""A GGUF file of a tiny Llama with random weights over the bytes, and with whatever its metadata are to say."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType

WIDTH, HEADS, INNER, CONTEXT = 32, 2, 64, 512
SPECIALS = ("<s>", "</s>", "<|eot|>", "<|eom|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>")
FIM = {
    "tokenizer.ggml.fim_pre_token_id": "<|fim_prefix|>",
    "tokenizer.ggml.fim_suf_token_id": "<|fim_suffix|>",
    "tokenizer.ggml.fim_mid_token_id": "<|fim_middle|>",
    "tokenizer.ggml.fim_pad_token_id": "<|fim_pad|>",
}
REPOSITORY = {
    "tokenizer.ggml.fim_rep_token_id": "<|repo_name|>",
    "tokenizer.ggml.fim_sep_token_id": "<|file_sep|>",
}


def id_of(special: str) -> int:
    """The token of one of the entries that are no bytes."""
    return 256 + (*SPECIALS, *REPOSITORY.values()).index(special)


def tiny_llama(
    path: Path,
    *,
    numbers: Mapping[str, int | float] = {},
    tokens: Mapping[str, str] = FIM,
    template: str | None = None,
    context: int = CONTEXT,
    seed: int = 0,
) -> Path:
    """Write one. `numbers` are metadata, `tokens` metadata that name entries; without those of FIM it has none."""
    fim = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", *REPOSITORY.values()}
    # The library knows the entries of well-known families by their texts too.
    specials = [
        name if name not in fim or name in tokens.values() else f"<|reserved{place}|>"
        for place, name in enumerate((*SPECIALS, *REPOSITORY.values()))
    ]
    names = [*_bytes(), *specials]
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(names)
    writer.add_token_types([TokenType.NORMAL] * 256 + [TokenType.CONTROL] * len(specials))
    writer.add_token_merges(["a b", "c d"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    for key, entry in tokens.items():
        writer.add_uint32(key, id_of(entry))
    for key, number in numbers.items():
        add = writer.add_int32 if isinstance(number, int) else writer.add_float32
        add(key, number)  # type: ignore[arg-type]  # each by its kind
    if template is not None:
        writer.add_chat_template(template)
    random = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> None:
        writer.add_tensor(f"{name}.weight", random.normal(0, 0.2, shape).astype(np.float32))

    weight("token_embd", len(names), WIDTH)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    weight("output", len(names), WIDTH)
    for part in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{part}.weight", np.ones(WIDTH, np.float32))
    for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
        weight(f"blk.0.{part}", WIDTH, WIDTH)
    weight("blk.0.ffn_gate", INNER, WIDTH)
    weight("blk.0.ffn_up", INNER, WIDTH)
    weight("blk.0.ffn_down", WIDTH, INNER)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _bytes() -> list[str]:
    """The bytes in the letters that GPT-2 writes them with."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {byte: chr(byte) for byte in shown}
    others = (byte for byte in range(256) if byte not in letters)
    letters |= {byte: chr(256 + number) for number, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]

"""A checkpoint as the files that servers read: python -m train_embedded_model.export CHECKPOINT FOLDER

Writes a GGUF file (8-bit blocks of 32, Q8_0) for llama.cpp and a folder for MLX. Both hold the same numbers: MLX's
8-bit groups of 32 have a scale and a bias, and with a bias of -128 scales they are Q8_0's blocks exactly.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from numpy.typing import NDArray
from safetensors.numpy import save_file
from train_embedded_model.layout import TEMPLATE

NAME = "tenuto-embedded"
END = "<|im_end|>"
_BLOCK = 32

Weights = dict[str, NDArray[np.float32]]


def export(checkpoint: Path, folder: Path) -> None:
    """Write both forms; what was there under their names is replaced."""
    kept = torch.load(checkpoint, map_location="cpu")
    shape: dict[str, Any] = kept["shape"]
    weights: Weights = {name: tensor.float().numpy() for name, tensor in kept["network"].items()}
    tokenizer: dict[str, Any] = json.loads((checkpoint.parent / "tokenizer.json").read_text())
    folder.mkdir(parents=True, exist_ok=True)
    write_gguf(folder / f"{NAME}.gguf", weights, shape, tokenizer)
    write_mlx(folder / "mlx", weights, shape, tokenizer)


# GGUF


def write_gguf(path: Path, weights: Weights, shape: dict[str, Any], tokenizer: dict[str, Any]) -> None:
    """The model for llama.cpp."""
    part = path.with_suffix(".part")
    writer = GGUFWriter(part, "llama")
    writer.add_name(NAME)
    writer.add_chat_template(TEMPLATE)
    writer.add_context_length(shape["context"])
    writer.add_embedding_length(shape["width"])
    writer.add_block_count(shape["layers"])
    writer.add_feed_forward_length(shape["hidden"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_layer_norm_rms_eps(shape["epsilon"])
    writer.add_rope_freq_base(shape["theta"])
    writer.add_key_length(shape["head_width"])
    writer.add_value_length(shape["head_width"])
    writer.add_rope_dimension_count(shape["head_width"])
    writer.add_vocab_size(shape["vocabulary"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    _add_tokens(writer, tokenizer, shape["vocabulary"])
    for name, array in _gguf_tensors(weights, shape):
        if array.ndim == 1:
            writer.add_tensor(name, np.ascontiguousarray(array))
        else:
            blocks = gguf.quants.quantize(array, GGMLQuantizationType.Q8_0)
            writer.add_tensor(name, blocks, raw_dtype=GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(path)


def _add_tokens(writer: GGUFWriter, tokenizer: dict[str, Any], vocabulary: int) -> None:
    texts = [f"<|unused_{token}|>" for token in range(vocabulary)]
    kinds = [TokenType.UNUSED] * vocabulary
    for text, token in tokenizer["model"]["vocab"].items():
        texts[token], kinds[token] = text, TokenType.NORMAL
    for added in tokenizer["added_tokens"]:
        texts[added["id"]] = added["content"]
        kinds[added["id"]] = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(texts)
    writer.add_token_types(kinds)
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    ids = _added_ids(tokenizer)
    writer.add_eos_token_id(ids[END])
    writer.add_pad_token_id(ids["<|pad|>"])
    writer.add_add_bos_token(False)


def _gguf_tensors(weights: Weights, shape: dict[str, Any]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    yield "token_embd.weight", weights["embedding.weight"]
    yield "output_norm.weight", weights["norm.weight"]
    for layer in range(shape["layers"]):
        ours, theirs = f"blocks.{layer}.", f"blk.{layer}."
        for name, called in _GGUF_NAMES.items():
            array = weights[f"{ours}{name}.weight"]
            if name in ("q", "k"):
                array = _interleaved(array, shape["heads"] if name == "q" else shape["kv_heads"])
            yield f"{theirs}{called}.weight", array


def _interleaved(matrix: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """llama.cpp's rotary positions turn neighbouring numbers; ours turn the halves of a head against each other."""
    rows, columns = matrix.shape
    parts = matrix.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(parts.swapaxes(1, 2).reshape(rows, columns))


# MLX


def write_mlx(folder: Path, weights: Weights, shape: dict[str, Any], tokenizer: dict[str, Any]) -> None:
    """The model for MLX, in Hugging Face's layout."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, NDArray[Any]] = {}
    for name, array in _mlx_tensors(weights, shape):
        if array.ndim == 1:
            tensors[f"{name}.weight"] = array
        else:
            packed, scales = _quantized(array)
            tensors |= {f"{name}.weight": packed, f"{name}.scales": scales, f"{name}.biases": scales * -128}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "mlx"})
    _write_json(folder / "config.json", _mlx_config(shape, tokenizer))
    _write_json(folder / "tokenizer.json", tokenizer, indent=None)
    facts = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": "<|pad|>",
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    _write_json(folder / "tokenizer_config.json", facts)


def _mlx_config(shape: dict[str, Any], tokenizer: dict[str, Any]) -> dict[str, Any]:
    ids = _added_ids(tokenizer)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape["width"],
        "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["kv_heads"],
        "head_dim": shape["head_width"],
        "intermediate_size": shape["hidden"],
        "vocab_size": shape["vocabulary"],
        "rms_norm_eps": shape["epsilon"],
        "rope_theta": shape["theta"],
        "max_position_embeddings": shape["context"],
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "bos_token_id": None,
        "eos_token_id": ids[END],
        "pad_token_id": ids["<|pad|>"],
        "quantization": {"group_size": _BLOCK, "bits": 8},
    }


def _mlx_tensors(weights: Weights, shape: dict[str, Any]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    yield "model.embed_tokens", weights["embedding.weight"]
    yield "model.norm", weights["norm.weight"]
    for layer in range(shape["layers"]):
        for name, called in _MLX_NAMES.items():
            yield f"model.layers.{layer}.{called}", weights[f"blocks.{layer}.{name}.weight"]


def _quantized(array: NDArray[np.float32]) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    """Q8_0's blocks: signed bytes and their scales, as MLX packs them (unsigned, four to a word)."""
    rows, columns = array.shape
    blocks = gguf.quants.quantize(array, GGMLQuantizationType.Q8_0).reshape(rows, columns // _BLOCK, _BLOCK + 2)
    scales = blocks[..., :2].copy().view(np.float16)[..., 0].astype(np.float32)
    numbers = (blocks[..., 2:].view(np.int8).astype(np.int16) + 128).astype(np.uint8)
    return np.ascontiguousarray(numbers.reshape(rows, columns)).view(np.uint32), np.ascontiguousarray(scales)


def _write_json(path: Path, value: dict[str, Any], indent: int | None = 1) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=indent) + "\n")


def _added_ids(tokenizer: dict[str, Any]) -> dict[str, int]:
    return {added["content"]: added["id"] for added in tokenizer["added_tokens"]}


_GGUF_NAMES = {
    "attention_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "feed_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
_MLX_NAMES = {
    "attention_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "feed_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def main() -> None:
    """Read the command line and export."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    export(given.checkpoint, given.folder)


if __name__ == "__main__":
    main()

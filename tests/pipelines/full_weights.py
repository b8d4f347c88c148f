"""The embedded model's weights, as MLX reads them, in a GGUF file of full precision."""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, Keys
from numpy.typing import NDArray
from safetensors.numpy import load_file

NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def full_gguf(source: Path, mlx: Path, target: Path) -> Path:
    """The facts and the tokeniser of a GGUF file, with the weights of an MLX folder in F32."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == Keys.General.ARCHITECTURE:
            continue
        stored = field.types[0]
        sub_type = field.types[-1] if stored == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), stored, sub_type=sub_type)
    heads = {
        "attn_q": int(reader.fields["llama.attention.head_count"].contents()),
        "attn_k": int(reader.fields["llama.attention.head_count_kv"].contents()),
    }
    tensors = load_file(mlx / "model.safetensors")
    for tensor in reader.tensors:
        array = full(tensors, hugging_face_name(tensor.name))
        kind = tensor.name.split(".")[-2]
        if kind in heads:
            array = interleaved(array, heads[kind])
        writer.add_tensor(tensor.name, np.ascontiguousarray(array), raw_dtype=GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def hugging_face_name(name: str) -> str:
    if name == "token_embd.weight":
        return "model.embed_tokens"
    if name == "output_norm.weight":
        return "model.norm"
    _, layer, kind, _ = name.split(".")
    return f"model.layers.{layer}.{NAMES[kind]}"


def full(tensors: dict[str, NDArray[np.float32]], name: str) -> NDArray[np.float32]:
    """A tensor in F32; MLX's 8-bit groups are scale times byte plus bias."""
    weight = tensors[f"{name}.weight"]
    if f"{name}.scales" not in tensors:
        return weight.astype(np.float32)
    scales, biases = (tensors[f"{name}.{part}"].astype(np.float32) for part in ("scales", "biases"))
    numbers = weight.view(np.uint8).reshape(*scales.shape, -1).astype(np.float32)
    found: NDArray[np.float32] = numbers * scales[..., None] + biases[..., None]
    return found.reshape(weight.shape[0], -1)


def interleaved(matrix: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """llama.cpp turns neighbouring numbers of a head against each other, Hugging Face's layout its halves."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)

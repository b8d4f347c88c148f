"""GGUF files of LoRA adapters with random numbers, which change what a model says."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

from tenuto.pipelines.gguf_header import read_gguf_header

RANK, ALPHA = 4, 8.0
PARTS = ("attn_q.weight", "attn_v.weight", "attn_output.weight", "ffn_down.weight")

Pair = tuple[NDArray[np.float32], NDArray[np.float32]]


def usual_facts(writer: GGUFWriter) -> None:
    """Those that convert_lora_to_gguf.py writes."""
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", ALPHA)


def tiny_adapter(
    path: Path,
    base: Path,
    *,
    seed: int = 0,
    strength: float = 2.0,
    architecture: str | None = None,
    facts: Callable[[GGUFWriter], None] = usual_facts,
    pairs: Callable[[dict[str, Pair]], Mapping[str, Pair]] = lambda pairs: pairs,
) -> Path:
    """Write one for a model: pairs for the same parts of each layer. `facts` writes others than those of an adapter,
    and `pairs` may change them."""
    header = read_gguf_header(base)
    random = np.random.default_rng(seed)
    found: dict[str, Pair] = {}
    for name, tensor in header.tensors.items():
        if name.endswith(PARTS):
            inputs, outputs = tensor.shape
            first = random.standard_normal((RANK, inputs)).astype(np.float32) / np.sqrt(np.float32(inputs))
            found[name] = (first, random.standard_normal((outputs, RANK)).astype(np.float32) * np.float32(strength))
    writer = GGUFWriter(path, architecture or header.architecture)
    facts(writer)
    for name, (first, second) in pairs(found).items():
        writer.add_tensor(f"{name}.lora_a", np.ascontiguousarray(first))
        writer.add_tensor(f"{name}.lora_b", np.ascontiguousarray(second))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

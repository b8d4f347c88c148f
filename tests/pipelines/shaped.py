"""GGUF files with the shapes of any architecture that llama.cpp knows, and without weights: their bytes are holes.

The library says which tensors it misses and which shapes they should have, so only the facts have to be known. No
token can be computed from such a file in earnest, but a context of it takes what one of a real model takes.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import llama_cpp as lib
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quant_shape_to_byte_shape

Facts = Mapping[str, int | float | str | bool | Sequence[int]]

_MISSING = re.compile(r"missing tensor '([^']+)'")
_NOT_FOUND = re.compile(r"tensor '([^']+)' not found")
_SHAPE = re.compile(r"tensor '([^']+)' has wrong shape; expected +([\d, ]+), got")


def shaped_gguf(path: Path, architecture: str, facts: Facts, weights: str = "F16") -> Path:
    """Write one. `weights`: the type of those that have rows of whole blocks; others are F32."""
    shapes: dict[str, tuple[int, ...]] = {}
    for _ in range(10_000):
        _write(path, architecture, facts, shapes, GGMLQuantizationType[weights])
        said = _refusal(path)
        if said is None:
            return path
        if found := _SHAPE.search(said):
            shape = tuple(int(number) for number in found[2].split(","))
            while len(shape) > 1 and shape[-1] == 1:
                shape = shape[:-1]
            _learn(shapes, found[1], shape)
        elif found := _MISSING.search(said) or _NOT_FOUND.search(said):
            _learn(shapes, found[1], (1,))
        else:
            raise AssertionError(f"{architecture}: {said}")
    raise AssertionError(f"{architecture}: no end of tensors")


def _learn(shapes: dict[str, tuple[int, ...]], name: str, shape: tuple[int, ...]) -> None:
    shapes[name] = shape


def _refusal(path: Path) -> str | None:
    """What the library says against a file, its shapes alone being read."""
    said: list[str] = []

    def on_line(_level: int, text: bytes, _data: object) -> None:
        said.append(text.decode(errors="replace"))

    callback = lib.llama_log_callback(on_line)
    lib.llama_log_set(callback, None)
    try:
        parameters = lib.llama_model_default_params()
        parameters.n_gpu_layers, parameters.no_alloc, parameters.load_mode = 0, True, lib.LLAMA_LOAD_MODE_NONE
        model = lib.llama_model_load_from_file(str(path).encode(), parameters)
        if model:
            lib.llama_model_free(model)
            return None
    finally:
        from tenuto.pipelines.llama_cpp.native import log_callback

        lib.llama_log_set(log_callback, None)
    return "".join(said)


def _write(
    path: Path,
    architecture: str,
    facts: Facts,
    shapes: Mapping[str, tuple[int, ...]],
    weights: GGMLQuantizationType,
) -> None:
    writer = GGUFWriter(path, architecture)
    writer.add_string("tokenizer.ggml.model", "no_vocab")
    for key, value in facts.items():
        name = key if key.startswith("general.") else f"{architecture}.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, list(value))
    for name, shape in shapes.items():
        rows = tuple(reversed(shape))
        kind = _kind(name, rows, weights)
        size = int(np.prod(quant_shape_to_byte_shape(rows, kind)))
        if kind in (GGMLQuantizationType.F32, GGMLQuantizationType.F16):
            writer.add_tensor_info(name, rows, np.dtype(np.float32), size, raw_dtype=kind)
        else:
            writer.add_tensor_info(
                name, quant_shape_to_byte_shape(rows, kind), np.dtype(np.uint8), size, raw_dtype=kind
            )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    sizes = [info.nbytes for tensors in writer.tensors for info in tensors.values()]
    writer.close()
    begin = -(-path.stat().st_size // 32) * 32
    with path.open("r+b") as file:
        file.truncate(begin + sum(-(-size // 32) * 32 for size in sizes))


def _kind(name: str, rows: tuple[int, ...], weights: GGMLQuantizationType) -> GGMLQuantizationType:
    is_plain = any(part in name for part in ("norm", "conv", "ssm", "ffn_gate_inp"))
    is_matrix = len(rows) > 1 and name.endswith(".weight") and rows[-1] % 256 == 0
    return weights if is_matrix and not is_plain else GGMLQuantizationType.F32

"""What GGUF files of tiny models with random weights have in common: the same numbers at every run."""

from pathlib import Path
from typing import Protocol

import numpy as np
from gguf import GGUFWriter

WIDTH, LAYERS, HEADS, INNER = 64, 2, 4, 256


class Weight(Protocol):
    """Adds a tensor of random numbers."""

    def __call__(self, name: str, *shape: int, scale: float = 1.0) -> None: ...


def byte_symbols() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, in byte order."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in plain else next(spare)) for byte in range(256)]


def begun(path: Path, architecture: str, vocabulary: int, context: int) -> tuple[GGUFWriter, Weight]:
    """A file with the facts that every architecture has, and what adds weights to it."""
    random = np.random.default_rng(0)
    writer = GGUFWriter(path, architecture)
    writer.add_name(path.stem)
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_vocab_size(vocabulary)

    def weight(name: str, *shape: int, scale: float = 1.0) -> None:
        values = random.standard_normal(shape, dtype=np.float32)
        writer.add_tensor(name, values * np.float32(scale / np.sqrt(shape[-1])))

    return writer, weight


def norm(writer: GGUFWriter, name: str) -> None:
    """A norm with a bias that changes nothing."""
    writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    writer.add_tensor(f"{name}.bias", np.zeros(WIDTH, np.float32))


def ended(writer: GGUFWriter, path: Path) -> Path:
    """The whole file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

"""What the head of a GGUF file says of a model, read without loading it. No backend; hostile files are expected.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import mmap
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenuto.errors import ModelLoadFailed

_VERSIONS = (2, 3)
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The type of a value by its number, as `struct` has it; 8 is a string and 9 an array."""
_STRING, _ARRAY = 8, 9
_MOST_ENTRIES, _MOST_TENSORS, _MOST_ITEMS = 100_000, 100_000, 16_000_000
_MOST_DIMENSIONS = 4
_LONGEST_KEPT = 1 << 20
_LONGEST_ARRAY_KEPT = 1024
"""As many as there are layers, of the largest models."""

# Names of tensor types: how many values a block has, and its bytes.
_TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip
# What a whole file is called that is quantised in a mixture, by general.file_type.
_FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """Its shape, the length of its rows first, its bytes in the file, and its type; empty: it is not known here."""

    shape: tuple[int, ...]
    nbytes: int
    kind: str = ""


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The head of a file. Of `values`, long arrays are left out; `parameters` are those of this file's tensors."""

    version: int
    values: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    parameters: int
    quantisation: str
    kinds: Mapping[str, int] = field(default_factory=dict)
    """The type of each of `values`, by the format's number."""

    @property
    def architecture(self) -> str:
        """The family that llama.cpp knows it by."""
        return str(self.values.get("general.architecture", ""))

    @property
    def context(self) -> int | None:
        """The context length that it was trained for, in tokens."""
        found = self.values.get(f"{self.architecture}.context_length")
        return found if isinstance(found, int) else None

    @property
    def chat_template(self) -> str | None:
        """Its chat template in Jinja."""
        found = self.values.get("tokenizer.chat_template")
        return found if isinstance(found, str) else None


def read_gguf_header(path: Path) -> GgufHeader:
    """Read a file's head, and see that its tensors lie inside of it.

    Raises:
        ModelLoadFailed: the file is missing, is not GGUF, is of a version that is not supported, or is damaged.
    """
    try:
        with path.open("rb") as file:
            if path.stat().st_size < 24:
                raise ModelLoadFailed(f"{path} is damaged: it ends before its head does")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _read(data, path)
    except FileNotFoundError as error:
        raise ModelLoadFailed(f"there is no file {path}") from error
    except OSError as error:
        raise ModelLoadFailed(f"{path} cannot be read: {error.strerror}") from error


def _read(data: mmap.mmap, path: Path) -> GgufHeader:
    if data[:4] != b"GGUF":
        raise ModelLoadFailed(f"{path} is not a GGUF file")
    version = int.from_bytes(data[4:8], "little")
    if version not in _VERSIONS:
        told = "is in big-endian byte order" if data[4:6] == b"\0\0" else f"has version {version} of the format"
        raise ModelLoadFailed(f"{path} {told}, which is not supported")
    reader = _Reader(data, 8)
    try:
        num_tensors, num_values = reader.scalar("Q"), reader.scalar("Q")
        if num_values > _MOST_ENTRIES or num_tensors > _MOST_TENSORS:
            raise _Damaged(f"it claims {num_values} values and {num_tensors} tensors")
        entries = [reader.entry() for _ in range(num_values)]
        return _with_tensors(reader, version, entries, num_tensors, len(data))
    except (_Damaged, struct.error, UnicodeDecodeError, OverflowError) as error:
        why = str(error) if isinstance(error, _Damaged) else "it ends in the middle of its head, or holds no text there"
        raise ModelLoadFailed(f"{path} is damaged: {why}") from error


def _with_tensors(
    reader: "_Reader", version: int, entries: list[tuple[str, int, Any]], count: int, size: int
) -> GgufHeader:
    values = {key: value for key, _, value in entries}
    parameters, end = 0, 0
    by_type: Counter[str] = Counter()
    found: dict[str, tuple[tuple[int, ...], int, str]] = {}
    for _ in range(count):
        name, shape, kind, offset = reader.tensor()
        found[name] = shape, offset, _TYPES[kind][0] if kind in _TYPES else ""
        if kind not in _TYPES:
            continue  # one of a newer library, which says itself whether it knows it
        quantisation, block, block_bytes = _TYPES[kind]
        elements = math.prod(shape)
        parameters += elements
        by_type[quantisation] += elements
        end = max(end, offset + -(-elements // block) * block_bytes)
        if end > size:
            raise _Damaged(f"it ends before its tensor {name[:80]!r} does")
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
        raise _Damaged("its alignment is no number of bytes")
    begin = -(-reader.position // alignment) * alignment
    if count and begin + end > size:
        raise _Damaged(f"it has {size} bytes and its tensors need {begin + end}")
    file_type = values.get("general.file_type")
    most = by_type.most_common(1)[0][0] if by_type else ""
    named = _FILE_TYPES.get(file_type, most) if isinstance(file_type, int) else most
    kinds = {key: number for key, number, _ in entries}
    return GgufHeader(version, values, _sized(found, size - begin), parameters, named, kinds)


def _sized(found: Mapping[str, tuple[tuple[int, ...], int, str]], data_bytes: int) -> dict[str, Tensor]:
    """Each with what lies between its begin and the next one's, which counts those of unknown types too."""
    offsets = sorted(offset for _, offset, _ in found.values())
    ends = dict(zip(offsets, [*offsets, data_bytes][1:], strict=True))
    return {name: Tensor(shape, max(0, ends[offset] - offset), kind) for name, (shape, offset, kind) in found.items()}


class _Damaged(Exception):
    """The file is not what its head says."""


class _Reader:
    """Reads from a position on."""

    def __init__(self, data: mmap.mmap, position: int) -> None:
        self._data, self.position = data, position

    def scalar(self, form: str) -> Any:
        """One number, or a truth value."""
        [value] = struct.unpack_from(f"<{form}", self._data, self.position)
        self.position += struct.calcsize(f"<{form}")
        return value

    def text(self) -> str:
        """A string; of one that is too long to be of use, nothing."""
        length = self.scalar("Q")
        begin, self.position = self.position, self.position + length
        if self.position > len(self._data):
            raise _Damaged("it ends in the middle of its head")
        return self._data[begin : self.position].decode() if length <= _LONGEST_KEPT else ""

    def entry(self) -> tuple[str, int, Any]:
        """A key with the type of its value, and the value."""
        key, kind = self.text(), self.scalar("I")
        return key, kind, self._value(kind)

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """A tensor's name, its shape, its type and where it begins."""
        name, dimensions = self.text(), self.scalar("I")
        if dimensions > _MOST_DIMENSIONS:
            raise _Damaged(f"its tensor {name[:80]!r} has {dimensions} dimensions")
        shape = tuple(self.scalar("Q") for _ in range(dimensions))
        return name, shape, self.scalar("I"), self.scalar("Q")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self._array()
        if kind not in _SCALARS:
            raise _Damaged(f"it has a value of the unknown type {kind}")
        return self.scalar(_SCALARS[kind])

    def _array(self) -> list[Any] | None:
        """A short array; of a long one, as of a vocabulary, nothing."""
        kind, count = self.scalar("I"), self.scalar("Q")
        if count > _MOST_ITEMS:
            raise _Damaged(f"it claims an array of {count} items")
        if kind == _ARRAY:
            raise _Damaged("it has an array of arrays")
        if kind in _SCALARS and count > _LONGEST_ARRAY_KEPT:
            self.position += count * struct.calcsize(f"<{_SCALARS[kind]}")
            return None
        if kind == _STRING and count > _LONGEST_ARRAY_KEPT:
            for _ in range(count):
                [length] = struct.unpack_from("<Q", self._data, self.position)
                self.position += 8 + length
            return None
        return [self._value(kind) for _ in range(count)]

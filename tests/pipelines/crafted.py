"""GGUF files that are wrong in one place: the embedded model with other metadata."""

import struct
from pathlib import Path

import gguf

from tenuto.pipelines.loader import find

ALIGNMENT = 32


class Crafted:
    """The bytes of the embedded model, and where its metadata lie."""

    def __init__(self) -> None:
        path = find("embedded:gguf").path
        self.whole = path.read_bytes()
        reader = gguf.GGUFReader(path)
        self._data = int(reader.data_offset)
        last = reader.tensors[-1].field
        self.header = int(last.offset) + sum(int(part.nbytes) for part in last.parts)

    def number(self, key: str, packed: bytes) -> bytes:
        """With other bytes for a number."""
        place = self._value(key)
        return self.whole[:place] + packed + self.whole[place + len(packed) :]

    def template(self, text: str) -> bytes:
        """With another chat template."""
        place = self._value("tokenizer.chat_template")
        (length,) = struct.unpack_from("<Q", self.whole, place)
        new = text.encode()
        changed = struct.pack("<Q", len(new)) + new
        head = self.whole[:place] + changed + self.whole[place + 8 + length : self.header]
        return head + bytes(-len(head) % ALIGNMENT) + self.whole[self._data :]

    def _value(self, key: str) -> int:
        named = struct.pack("<Q", len(key)) + key.encode()
        return self.whole.index(named) + len(named) + 4


def written(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)

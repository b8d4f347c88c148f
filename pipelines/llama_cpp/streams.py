"""A saved sequence from a context of another number of streams, as a context of this many reads it. Pure.

llama.cpp writes for each cache of a context how many streams that has, and for each of them how many cells follow,
though a sequence lies in one of them; and it reads nothing that was written with another number:

    magic, sequence, then for each cache: streams, and for each stream: cells, and where there are any:
        for each cell: position, 1, where positions have further numbers: these and the token, sequence
        whether values are transposed, layers
        for each layer: type of the keys, bytes of a row in eight bytes, a row for each cell
        for each layer: type of the values, bytes of a row in eight bytes, a row for each cell; or, transposed:
            type, bytes of an element in four bytes, rows, and for each row an element for each cell
    where the model has a running state too: that state

All other numbers have four bytes. What does not look like this is left as it is, for the library to refuse.
"""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

StateBytes = NDArray[np.uint8]

_HEAD_BYTES = 8
_CELL_BYTES = (12, 24)
_MOST_TYPES = _MOST_LAYERS = 4096


def for_streams(data: StateBytes, streams: int) -> StateBytes:
    """The same sequence for so many streams; the array itself, where it is so already or is nothing of this kind."""
    if data.size < _HEAD_BYTES + 4 or _Reader(data, _HEAD_BYTES).word() == streams:
        return data
    sequence = _Reader(data, _HEAD_BYTES - 4).word()
    parts, place = [data[:_HEAD_BYTES]], _HEAD_BYTES
    while place < data.size and (cache := _cache_at(data, place, sequence)) is not None:
        empty = streams - (cache.begin < cache.end)
        parts += [_words(streams), data[cache.begin : cache.end], np.zeros(4 * empty, np.uint8)]
        place = cache.after
    return data if place == _HEAD_BYTES else np.concatenate([*parts, data[place:]])


@dataclass(frozen=True, slots=True)
class _Cache:
    """Where in the bytes a sequence's cells lie, with their number before them, and where the cache is over."""

    begin: int
    end: int
    after: int


class _Unlike(Exception):
    """The bytes are not what they were taken for."""


class _Reader:
    def __init__(self, data: StateBytes, place: int) -> None:
        self._data, self.place = data, place

    def word(self) -> int:
        return int(self._number(struct.Struct("<I")))

    def long(self) -> int:
        return int(self._number(struct.Struct("<Q")))

    def skip(self, count: int) -> None:
        if count > self._data.size - self.place:
            raise _Unlike
        self.place += count

    def words(self, rows: int, columns: int) -> NDArray[np.uint32]:
        begin = self.place
        self.skip(4 * rows * columns)
        return np.frombuffer(self._data, "<u4", rows * columns, begin).reshape(rows, columns)

    def expect(self, is_so: bool) -> None:
        if not is_so:
            raise _Unlike

    def _number(self, form: struct.Struct) -> int:
        begin = self.place
        self.skip(form.size)
        (number,) = form.unpack_from(self._data.data, begin)
        return int(number)


def _cache_at(data: StateBytes, place: int, sequence: int) -> _Cache | None:
    for cell_bytes in _CELL_BYTES:
        for has_values in (True, False):  # a latent cache has keys alone
            try:
                return _read_cache(_Reader(data, place), sequence, cell_bytes, has_values)
            except _Unlike:
                continue
    return None


def _read_cache(reader: _Reader, sequence: int, cell_bytes: int, has_values: bool) -> _Cache:
    streams = reader.word()
    begin = end = reader.place
    for _ in range(streams):
        before = reader.place
        cells = reader.word()
        if cells:
            reader.expect(begin == end)  # a sequence lies in one stream
            _skip_cells(reader, cells, sequence, cell_bytes, has_values)
            begin, end = before, reader.place
    return _Cache(begin, end, reader.place)


def _skip_cells(reader: _Reader, cells: int, sequence: int, cell_bytes: int, has_values: bool) -> None:
    placed = reader.words(cells, cell_bytes // 4)
    reader.expect(bool((placed[:, 1] == 1).all() and (placed[:, -1] == sequence).all()))
    is_transposed, layers = reader.word(), reader.word()
    reader.expect(is_transposed <= 1 and layers <= _MOST_LAYERS)
    for is_key in (True,) * layers + (False,) * (layers if has_values else 0):
        reader.expect(reader.word() < _MOST_TYPES)
        row = reader.long() if is_key or not is_transposed else reader.word() * reader.word()
        reader.skip(row * cells)


def _words(number: int) -> StateBytes:
    return np.frombuffer(struct.pack("<I", number), np.uint8)

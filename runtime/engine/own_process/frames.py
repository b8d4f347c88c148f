"""A stream of bytes as frames: a length, then so many bytes, of which the first tells what they are. Pure."""

import struct
from collections.abc import Iterator
from enum import IntEnum

_LENGTH = struct.Struct("<I")
MOST = 1 << 24
"""Bytes of a frame that an engine may send: a hundredfold of its longest report."""


class Kind(IntEnum):
    """What a frame is."""

    ORDER = 0
    """What is to be loaded: to the engine, once, before all else."""
    OPENED = 1
    """What was loaded: from the engine."""
    REFUSED = 2
    """Why it was not, in words: from the engine, which then ends."""
    BEGIN = 3
    """What the engine is to hold itself to: to it, once, before any command."""
    SUBMIT = 4
    CANCEL = 5
    READ = 6
    RELEASE = 7
    STOP = 8
    REPORT = 9
    FORGET = 11
    HINT = 12
    VECTORS = 10
    """That what was to be loaded generates no text: from the engine, which then ends."""


def frame(kind: Kind, payload: bytes = b"") -> bytes:
    """One as it is sent."""
    return b"".join((_LENGTH.pack(len(payload) + 1), kind.to_bytes(), payload))


class Frames:
    """Cuts what comes into frames. A frame that has come in pieces waits for its end.

    `most` bounds the bytes of one, where whoever sends them is not to be trusted with this process's memory.
    """

    def __init__(self, most: int | None = None) -> None:
        self._bytes = bytearray()
        self._most = most

    def push(self, data: bytes) -> Iterator[tuple[Kind, bytes]]:
        """What has become whole with these bytes. To be read to its end before the next.

        Raises:
            ValueError: it is too long, or none of these kinds, so nothing after it can be read.
        """
        self._bytes += data
        begin = 0
        while len(self._bytes) - begin >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes, begin)
            if not length or (self._most is not None and length > self._most):
                raise ValueError(f"a frame of {length} bytes")
            end = begin + _LENGTH.size + length
            if len(self._bytes) < end:
                break
            body = bytes(self._bytes[begin + _LENGTH.size : end])
            begin = end
            yield Kind(body[0]), body[1:]
        del self._bytes[:begin]

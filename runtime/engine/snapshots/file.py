"""The form of a snapshot's file: what it is of, then the cache, with checksums of both. No names, no threads.

All numbers are little-endian:

    magic, version, length of the facts, number of tokens, digest of all this and of the next two
    facts in JSON
    token ids, in four bytes each
    the cache
    a CRC-32 of each MiB of the cache

The length of a file follows from its header, so that a file that was cut is known by its header alone. Each CRC begins
from the header's digest and the piece's number: pieces of other files, or in another order, do not pass.
"""

import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt, TypeAdapter

from tenuto.pipelines.backend import Snapshot
from tenuto.sessions.tokens import Tokens

VERSION = 1
_MAGIC = b"tenutokv"
_LEAD = struct.Struct("<8sIIQ")
_DIGEST_BYTES = 16
_TOKEN_BYTES = _CRC_BYTES = 4
_PIECE = 1 << 20
_MOST_FACTS, _MOST_TOKENS = 1 << 24, 1 << 24


class Flaw(StrEnum):
    """Why a file is not used."""

    CUT = "cut"
    """Its length is not the one that it names."""
    ALTERED = "altered"
    """A checksum says so."""
    FORM = "form"
    """It is no snapshot, or one of another version of this form."""
    MODEL = "model"
    """It is of another model, or of one that was loaded in another way."""
    SEQUENCE = "sequence"
    """It is not of the sequence by which it is named."""
    PRINCIPAL = "principal"
    """It is of somebody else's sequence."""
    FATAL = "fatal"
    """An engine ended while it tried it: it may be what ended it."""
    REFUSED = "refused"
    """The library did not take it."""
    UNREADABLE = "unreadable"
    """The system cannot read it, or it is no file."""


class Unusable(Exception):
    """A file that is not to be used."""

    def __init__(self, flaw: Flaw) -> None:
        super().__init__(flaw.value)
        self.flaw = flaw


@dataclass(frozen=True, slots=True)
class Facts:
    """What a snapshot is of. `written_at` in seconds since 1970; `nbytes` of the cache."""

    fingerprint: str
    sequence: str
    principal: str
    written_at: float
    nbytes: NonNegativeInt
    extents: tuple[tuple[int, int, int], ...] = ()


_FACTS = TypeAdapter(Facts)


@dataclass(frozen=True, slots=True)
class Header:
    """All of a file but its cache."""

    facts: Facts
    tokens: Tokens


class Packed:
    """A snapshot as the bytes of a file. Its cache is not copied."""

    def __init__(self, header: Header, snapshot: Snapshot) -> None:
        facts, ids = _FACTS.dump_json(header.facts), header.tokens.to_bytes()
        lead = _LEAD.pack(_MAGIC, VERSION, len(facts), len(header.tokens))
        digest = _digest(lead, facts, ids)
        self._begin = b"".join((lead, digest, facts, ids))
        self._seed = _seed(digest)
        cache = memoryview(snapshot.data)
        self._cache = cache.cast("B") if cache.nbytes else memoryview(b"")
        assert len(self._cache) == header.facts.nbytes, "a snapshot has as many bytes as it says"
        self.size = len(self._begin) + len(self._cache) + _CRC_BYTES * _pieces(len(self._cache))
        """Of the file."""

    def write(self, descriptor: int, between: Callable[[], None]) -> None:
        """Write all to a file that is empty. `between` is called between pieces, and may end it by raising.

        Raises:
            OSError: it could not be written.
        """
        _write(descriptor, memoryview(self._begin))
        checks = bytearray()
        for number, begin in enumerate(range(0, len(self._cache), _PIECE)):
            between()
            piece = self._cache[begin : begin + _PIECE]
            checks += _check(piece, self._seed, number)
            _write(descriptor, piece)
        _write(descriptor, memoryview(checks))


def read_header(descriptor: int) -> Header:
    """What the file says that it is, of which no more is read than that.

    Raises:
        Unusable: it is not whole, as far as that can be told by its header and its length, or not of this form.
        OSError: it could not be read.
    """
    return _read_header(descriptor)[0]


def read_whole(descriptor: int, expected: Callable[[Header], None]) -> tuple[Header, Snapshot]:
    """All of a file. `expected` sees the header before the cache is read, and may raise.

    Raises:
        Unusable: it is not whole, or not of this form.
        OSError: it could not be read.
    """
    header, seed = _read_header(descriptor)
    expected(header)
    cache: NDArray[np.uint8] = np.empty(header.facts.nbytes, np.uint8)
    view = cache.data
    found = bytearray()
    for number, begin in enumerate(range(0, len(view), _PIECE)):
        piece = view[begin : begin + _PIECE]
        _read_into(descriptor, piece)
        found += _check(piece, seed, number)
    if _read(descriptor, len(found)) != found:
        raise Unusable(Flaw.ALTERED)
    return header, Snapshot(len(header.tokens), len(view), cache, header.facts.extents)


def _read_header(descriptor: int) -> tuple[Header, int]:
    size = os.fstat(descriptor).st_size
    lead = _read(descriptor, _LEAD.size)
    magic, version, facts_bytes, tokens = _LEAD.unpack(lead)
    if magic != _MAGIC or version != VERSION or facts_bytes > _MOST_FACTS or tokens > _MOST_TOKENS:
        raise Unusable(Flaw.FORM)
    if _LEAD.size + _DIGEST_BYTES + facts_bytes + _TOKEN_BYTES * tokens > size:  # before so much is read
        raise Unusable(Flaw.CUT)
    digest = _read(descriptor, _DIGEST_BYTES)
    encoded, ids = _read(descriptor, facts_bytes), _read(descriptor, _TOKEN_BYTES * tokens)
    if _digest(lead, encoded, ids) != digest:
        raise Unusable(Flaw.ALTERED)
    try:
        facts = _FACTS.validate_json(encoded)
    except ValueError:
        raise Unusable(Flaw.FORM) from None
    whole = _LEAD.size + _DIGEST_BYTES + facts_bytes + len(ids) + facts.nbytes + _CRC_BYTES * _pieces(facts.nbytes)
    if whole != size:
        raise Unusable(Flaw.CUT)
    return Header(facts, Tokens.from_bytes(ids)), _seed(digest)


def _pieces(nbytes: int) -> int:
    return -(-nbytes // _PIECE)


def _digest(*parts: bytes) -> bytes:
    return blake2b(b"".join(parts), digest_size=_DIGEST_BYTES).digest()


def _seed(digest: bytes) -> int:
    return int.from_bytes(digest[:_CRC_BYTES], "little")


def _check(piece: memoryview, seed: int, number: int) -> bytes:
    return zlib.crc32(piece, (seed + number) & 0xFFFFFFFF).to_bytes(_CRC_BYTES, "little")


def _write(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _read(descriptor: int, count: int) -> bytes:
    data = bytearray(count)
    _read_into(descriptor, memoryview(data))
    return bytes(data)


def _read_into(descriptor: int, view: memoryview) -> None:
    with open(descriptor, "rb", buffering=0, closefd=False) as file:
        while view:
            read = file.readinto(view)
            if not read:
                raise Unusable(Flaw.CUT)
            view = view[read:]

"""A stream of token ids that grows at its end, and names for its beginnings. No text, no I/O."""

import hashlib
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

_LOOKED_BACK = 16384


@dataclass(frozen=True, slots=True)
class Prefix:
    """Names the first `length` tokens of a stream without carrying them: equal names, equal tokens."""

    length: int
    digest: bytes


class Tokens(Sequence[int]):
    """Token ids in four bytes each. What it costs to add to it, or to name all of it, is the size of what was added.

    An index or a slice gives plain ints. One thread at a time may use it.
    """

    __slots__ = ("_hash", "_hashed", "_ids")

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._ids: array[int] = ids._ids[:] if isinstance(ids, Tokens) else array("I", ids)
        self._hash = _fresh_hash()
        self._hashed = 0  # the hash is of so many

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> list[int]: ...
    def __getitem__(self, place: int | slice) -> int | list[int]:
        return self._ids[place].tolist() if isinstance(place, slice) else self._ids[place]

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Tokens):
            return self._ids == other._ids
        return isinstance(other, list | tuple) and self._ids.tolist() == list(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"Tokens({self._ids.tolist()!r})"

    def __reduce__(self) -> tuple[type["Tokens"], tuple["array[int]"]]:
        return Tokens, (self._ids,)  # a hash can be computed again, and cannot be copied deeply

    def append(self, token: int) -> None:
        """Add one token."""
        self._ids.append(token)

    def extend(self, tokens: Iterable[int]) -> None:
        """Add tokens. Raises OverflowError or TypeError, with none of them added, where one is not of four bytes."""
        self._ids += tokens._ids if isinstance(tokens, Tokens) else array("I", tokens)

    def cut(self, length: int) -> None:
        """Keep the first `length` tokens."""
        if length < len(self._ids):
            del self._ids[length:]
            if length < self._hashed:
                self._hash, self._hashed = _fresh_hash(), 0

    def copy(self, length: int | None = None, since: int = 0) -> "Tokens":
        """Those from `since` up to the first `length` of them, or all, as a stream of its own."""
        twin = Tokens()
        twin._ids = self._ids[since:length]
        return twin

    def ids(self, length: int | None = None) -> "array[int]":
        """The first `length` of them, or all, as an array of its own."""
        return self._ids[:length]

    def to_bytes(self) -> bytes:
        """Their ids in four bytes each, little-endian."""
        return _little_endian(self._ids).tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Tokens":
        """What `to_bytes` gave. Raises ValueError where it is not of whole ids."""
        tokens = cls()
        tokens._ids.frombytes(data)
        tokens._ids = _little_endian(tokens._ids)
        return tokens

    def shared(self, other: "Tokens") -> int:
        """How many tokens this and the other have in common from the start."""
        return shared(self._ids, other._ids)

    def behind_last(self, length: int) -> int | None:
        """The place behind the last earlier stand of the last `length` tokens; None where there is none among the last
        16,384."""
        count = len(self._ids)
        if length >= count:
            return None
        begin = max(0, count - _LOOKED_BACK)
        seen, ending = self._ids[begin : count - 1].tobytes(), self._ids[count - length :].tobytes()
        size, at = self._ids.itemsize, seen.rfind(ending)
        while at % size and at >= 0:
            at = seen.rfind(ending, 0, at + len(ending) - 1)
        return None if at < 0 else begin + at // size + length

    def prefix(self, length: int | None = None) -> Prefix:
        """The name of the first `length` of them, or of all."""
        with memoryview(self._ids) as ids:
            if length is not None and length < len(ids):
                return Prefix(length, _fresh_hash(ids[:length]).digest())
            self._hash.update(ids[self._hashed :])
            self._hashed = len(ids)
        return Prefix(self._hashed, self._hash.digest())

    def begins_with(self, prefix: Prefix) -> bool:
        """Whether these are the tokens that are named."""
        return prefix.length <= len(self) and self.prefix(prefix.length) == prefix


def shared(left: "array[int]", right: "array[int]") -> int:
    """How many ids two arrays have in common from the start."""
    end = min(len(left), len(right))
    if not end or left[0] != right[0]:
        return 0
    if left[:end] == right[:end]:
        return end
    low, high = 0, end  # left[:low] == right[:low], left[:high] != right[:high]
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _little_endian(ids: "array[int]") -> "array[int]":
    """From the machine's order of bytes, or back to it."""
    if sys.byteorder == "big":
        ids = ids[:]
        ids.byteswap()
    return ids


def _fresh_hash(data: memoryview | bytes = b"") -> "hashlib.blake2b":
    return hashlib.blake2b(data, digest_size=16)


NOTHING = Tokens().prefix()
"""Names no tokens at all."""

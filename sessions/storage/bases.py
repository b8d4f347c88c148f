"""Long spans as what they have beyond one that is kept already: every session begins with its tool block. No SQL.

The writer's thread only.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from tenuto.sessions.blobs import Blob, digest

TOKEN_BYTES = 4
_LONG = 512 * TOKEN_BYTES
"""A shorter span is kept as it is."""
_CANDIDATES = 4
"""So many spans of a kind are compared with; the one that was used longest ago goes first."""
_KNOWN_BYTES = 16 << 20

Kind = tuple[str, bool]
"""A ledger's fingerprint, and whether the span is its first."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A span as it is kept: `tokens` between the first `head` and the last `tail` ids of `base`, or all by itself."""

    tokens: bytes
    base: Blob | None = None
    head: int | None = None
    tail: int | None = None


class Bases:
    """The spans that others are kept against. What is forgotten here is only no longer found."""

    def __init__(self) -> None:
        self._known: OrderedDict[Kind, OrderedDict[str, Blob]] = OrderedDict()
        self._bytes = 0

    def cut(self, kind: Kind, span: bytes) -> Cut:
        """How a span of packed ids is kept. A long one that is like no other becomes a base."""
        if len(span) < _LONG:
            return Cut(span)
        candidates = self._known.setdefault(kind, OrderedDict())
        self._known.move_to_end(kind)
        cuts = (_against(base, span) for base in reversed(candidates.values()))
        best = min(cuts, key=lambda cut: len(cut.tokens), default=None)
        if best is None or best.base is None or 2 * len(best.tokens) > len(span):
            base = Blob(digest(span), span)
            best = Cut(b"", base, len(span) // TOKEN_BYTES, 0)
            self._add(candidates, base)
        assert best.base is not None
        candidates.move_to_end(best.base.digest)
        return best

    def _add(self, candidates: OrderedDict[str, Blob], base: Blob) -> None:
        candidates[base.digest] = base
        self._bytes += len(base.body)
        if len(candidates) > _CANDIDATES:
            self._bytes -= len(candidates.popitem(last=False)[1].body)
        while self._bytes > _KNOWN_BYTES and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._bytes -= sum(len(blob.body) for blob in oldest.values())


def joined(tokens: bytes, base: bytes | None, head: int | None, tail: int | None) -> bytes:
    """The whole span of a cut."""
    if base is None:
        return tokens
    end = len(base) - TOKEN_BYTES * (tail or 0)
    return base[: TOKEN_BYTES * (head or 0)] + tokens + base[end:]


def _against(base: Blob, span: bytes) -> Cut:
    body, most = base.body, min(len(base.body), len(span))
    head = _common(most, lambda low, high: body[low:high] == span[low:high])
    tail = _common(
        most - head * TOKEN_BYTES,
        lambda low, high: body[len(body) - high : len(body) - low] == span[len(span) - high : len(span) - low],
    )
    own = span[head * TOKEN_BYTES : len(span) - tail * TOKEN_BYTES]
    return Cut(own, base, head, tail)


def _common(most: int, same: Callable[[int, int], bool]) -> int:
    """How many ids are the same, of `most` bytes, where `same` compares two places."""
    low, high = 0, most // TOKEN_BYTES  # the first `low` are the same
    if same(0, high * TOKEN_BYTES):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if same(low * TOKEN_BYTES, middle * TOKEN_BYTES):
            low = middle
        else:
            high = middle
    return low
